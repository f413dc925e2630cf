"""The system of `full` at instants that are given: when each producer makes an object, when each
consumer is done with its own, and where its probes go. Who plays a live system at the same instants
has a pair: by far the most of what is chance in one is the same chance in the other.

That the instants are given and not counted from what happens changes no law: the time left of an
exponential one does not depend on how much of it is over.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, Self

from spillover.core.queue.events import Probe
from spillover.core.queue.probing import Reached, Ways
from spillover.sim.engine.world import rare_collections, stream
from spillover.sim.queue.full import ProbingQueue
from spillover.sim.queue.system import ProbingSystem


@dataclass(frozen=True, slots=True)
class Instants:
    """The random part of a run, by the numbers of producers and consumers. Instants are in
    ascending order, from the beginning of the run on."""

    made_s: Sequence[Sequence[float]]
    """The instants, for each producer, at which it has made an object, if it is making one."""
    asked_s: Sequence[Sequence[float]]
    """The instants, for each consumer, at which it is done with its object, if it has one, and asks
    for another. It begins with the first."""
    ways: Sequence[Sequence[Sequence[int]]]
    """The producers, for each consumer and instant, that a request of then probes, the first one at
    least. Those after the last given are drawn."""


class Came(NamedTuple):
    """An object that has reached its consumer."""

    at_s: float
    wait_s: float
    probes: int


def replay(
    system: ProbingSystem,
    instants: Instants,
    until_s: float,
    seed: int,
    *,
    probe_expiry_s: float,
    legs: Mapping[str, float],
) -> list[Came]:
    """Returns the objects that come before that. `legs` are as of `full.simulate`."""
    queue = _Replay(system, seed, instants, probe_expiry_s=probe_expiry_s, legs=legs)
    with rare_collections():
        queue.start()
        queue.world.run(lambda: queue.world.now_s >= until_s)
    return [came for came in queue.seen if came.at_s < until_s]


class _Replay(ProbingQueue):
    def __init__(
        self,
        system: ProbingSystem,
        seed: int,
        instants: Instants,
        *,
        probe_expiry_s: float,
        legs: Mapping[str, float],
    ) -> None:
        self._instants = instants
        self._seed = seed
        self._draws = [_Draws.told(ways, system.producers) for ways in instants.ways]
        self._made_last = [-1] * system.producers
        self.seen: list[Came] = []
        super().__init__(
            system, seed, avoid_visited=False, probe_expiry_s=probe_expiry_s, legs=legs
        )

    def start(self) -> None:
        self.start_producers()
        ways = {
            take_name(i, k): [f"p{j}" for j in way]
            for i, of_one in enumerate(self._instants.ways)
            for k, way in enumerate(of_one)
            if len(way) > 1
        }
        for name, producer in self.producers.items():
            peers = tuple(peer for peer in self.producers if peer != name)
            random = stream(self._seed, f"ways/{name}")
            producer.machine.ways = _ToldWays(name, peers, random, ways)
        for consumer, asked_s in zip(self.consumers, self._instants.asked_s, strict=True):
            self.world.at(asked_s[0], consumer.boot)

    def makes_s(self, producer: int, /) -> float:
        last = self._made_last[producer]
        self._made_last[producer] = next_of(self._instants.made_s[producer], self.world.now_s, last)
        return self._left_s(self._instants.made_s[producer], self._made_last[producer])

    def uses_s(self, consumer: int, /) -> float:
        draws, asked_s = self._draws[consumer], self._instants.asked_s[consumer]
        draws.instant = next_of(asked_s, self.world.now_s, draws.instant)
        return self._left_s(asked_s, draws.instant)

    def draws_of(self, consumer: int, /) -> Random:
        return self._draws[consumer]

    def came(self, wait_s: float, probes: int) -> None:
        self.seen.append(Came(self.world.now_s, wait_s, probes))

    def _left_s(self, times_s: Sequence[float], number: int) -> float:
        if number == len(times_s):  # the run is over before that
            return math.inf
        return max(0.0, times_s[number] - self.world.now_s)


def next_of(times_s: Sequence[float], now_s: float, last: int) -> int:
    """Returns the number of the first instant after now, and after the last that was used."""
    return max(bisect_right(times_s, now_s), last + 1)


def take_name(consumer: int, instant: int) -> str:
    """Returns how the machine of a consumer that draws from `_Draws` names its take."""
    return f"c{consumer}-{instant:016x}"


class _Draws(Random):
    """The draws of one consumer's machine as it asks: the producer, and the name of the take."""

    ways: Sequence[Sequence[int]]
    producers: int
    instant = 0

    @classmethod
    def told(cls, ways: Sequence[Sequence[int]], producers: int) -> Self:
        draws = cls()
        draws.ways, draws.producers = ways, producers
        return draws

    def random(self) -> float:
        return (self.ways[self.instant][0] + 0.5) / self.producers

    def getrandbits(self, _: int, /) -> int:
        return self.instant


class _ToldWays(Ways):
    """Ways that are told, as far as they are; a sweep's are drawn."""

    __slots__ = ("_told",)

    def __init__(
        self,
        own: str,
        peers: tuple[str, ...],
        random: Random,
        told: Mapping[str, Sequence[str]],
    ) -> None:
        super().__init__(own, peers, random)
        self._told = told

    def next_hop(self, probe: Probe, hop: int, among: Reached) -> str | None:
        way = self._told.get(probe.id, ())
        if hop < len(way) and not probe.avoid_visited:
            return way[hop]
        return super().next_hop(probe, hop, among)
