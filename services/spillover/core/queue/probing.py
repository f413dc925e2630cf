"""Where probes go from one producer: the draw by the consumer's probabilities, among the peers that
can be reached (`policy.queue`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from random import Random
from typing import NamedTuple

from spillover.core.queue.events import Probe
from spillover.policy.queue import pick_producer, pick_unvisited

PASSED_OVER_S = 1.0
"""A peer that could not be reached is passed over for so long, where there are others."""


class ParkedProbe(NamedTuple):
    """A probe that waits for an object, until it expires: then the `alarm` rings."""

    probe: Probe
    until_s: float
    alarm: int


class Reached(NamedTuple):
    """Producers by name, and the sums of their probabilities up to each."""

    names: Sequence[str]
    sums: Sequence[float]


class Ways:
    """The choice among the `peers` that the producer `own` knows."""

    def __init__(self, own: str, peers: tuple[str, ...], random: Random) -> None:
        self._own = own
        self._known = frozenset((own, *peers))
        self._random = random
        self._failed_s: dict[str, float] = {}

    def reach(self, access: Mapping[str, float]) -> int:
        """Returns how many producers a sweep visits, the own one among them."""
        reached = {name for name, share in access.items() if share > 0.0}
        return len((reached & self._known) | {self._own})

    def failed(self, peer: str, now_s: float) -> None:
        """It could not be reached just now."""
        self._failed_s[peer] = now_s

    def within_reach(
        self, access: Mapping[str, float], now_s: float, *, own_too: bool = True
    ) -> Reached:
        """Returns the producers to which a probe with these probabilities may go now, the own one
        among them unless that is left out."""
        passed_over = {
            peer for peer, failed_s in self._failed_s.items() if now_s < failed_s + PASSED_OVER_S
        }
        names = [
            name
            for name, share in access.items()
            if share > 0.0
            and name in self._known
            and (own_too or name != self._own)
            and name not in passed_over
        ]
        return Reached(names, list(accumulate(access[name] for name in names)))

    def next_hop(self, probe: Probe, hop: int, among: Reached) -> str | None:
        """Returns the producer to send a probe to, which is at this hop of its by now; None where
        there is none."""
        names, reached = among
        if not names:
            return None
        draw = self._random.random()
        # Whoever avoids the visited and comes back to itself has been everywhere.
        if not probe.avoid_visited or hop > probe.hop:
            return names[pick_producer(reached, draw)]
        been = frozenset(probe.visited)
        visited = [name == self._own or name in been for name in names]
        return names[pick_unvisited(reached, visited, draw)]
