"""Where probes go from one producer: the draw by the consumer's probabilities, among the peers that
can be reached (`policy.queue`).
"""

from __future__ import annotations

from collections.abc import Mapping
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


class Ways:
    """Of one producer, `own`, which knows these `peers`."""

    __slots__ = ("_failed_s", "_known", "_own", "_random")

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

    def next_hop(self, probe: Probe, now_s: float, *, own_too: bool = True) -> str | None:
        """Returns the producer to send a probe to, which may be the own one unless that is left
        out; None where there is none."""
        passed_over = {
            peer for peer, failed_s in self._failed_s.items() if now_s < failed_s + PASSED_OVER_S
        }
        names = [
            name
            for name, share in probe.access.items()
            if share > 0.0
            and name in self._known
            and (own_too or name != self._own)
            and name not in passed_over
        ]
        if not names:
            return None
        reached = list(accumulate(probe.access[name] for name in names))
        draw = self._random.random()
        if not probe.avoid_visited:
            return names[pick_producer(reached, draw)]
        visited = [name == self._own or name in probe.visited for name in names]
        return names[pick_unvisited(reached, visited, draw)]
