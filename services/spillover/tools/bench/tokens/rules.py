"""The rules that stand beside tokens: which server takes a job, or that it is blocked.

Each knows how many jobs of its own are on each server, as whoever dispatches all of them does, and
a server's limit. Nothing of HTTP is known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Protocol

from spillover.model.pool import Pool
from spillover.policy.tokens import BLOCKED, assigned_at_random


class Rule(Protocol):
    """Chooses for one pool."""

    def choose(self, kind: int, jobs: Sequence[int]) -> int:
        """Returns the server for a job of this type, which has that many `jobs` and room for one
        more; BLOCKED if there is none for it."""


class _Servers:
    """What all rules know of a pool whose classes are its servers."""

    def __init__(self, pool: Pool, random: Random) -> None:
        number = {server.id: index for index, server in enumerate(pool.servers)}
        if [each.servers for each in pool.classes] != [(server.id,) for server in pool.servers]:
            raise ValueError("expected one class for each server, in their order")
        of_class = {each.id: number[each.servers[0]] for each in pool.classes}
        self.limits = [each.tokens for each in pool.classes]
        self.fitting = [[of_class[name] for name in kind.classes] for kind in pool.types]
        self.random = random

    def unless_full(self, server: int, jobs: Sequence[int]) -> int:
        return server if jobs[server] < self.limits[server] else BLOCKED


class Static(_Servers):
    """At random, whatever the servers are doing: by the probabilities of `split`, for each type
    those of its classes."""

    def __init__(
        self, pool: Pool, random: Random, split: Mapping[str, Mapping[str, float]]
    ) -> None:
        super().__init__(pool, random)
        self._shares = [[split[kind.id][name] for name in kind.classes] for kind in pool.types]

    def choose(self, kind: int, jobs: Sequence[int]) -> int:
        servers, shares = self.fitting[kind], self._shares[kind]
        draw = self.random.random()
        return self.unless_full(assigned_at_random(servers, shares, 0, len(servers), draw), jobs)


class Shortest(_Servers):
    """The server with the fewest jobs of all that fit, or the fewest by rate; ties at random."""

    def __init__(self, pool: Pool, random: Random, *, by_rate: bool) -> None:
        super().__init__(pool, random)
        self._rates = [server.rate if by_rate else 1.0 for server in pool.servers]

    def choose(self, kind: int, jobs: Sequence[int]) -> int:
        rates, limits = self._rates, self.limits
        room = [server for server in self.fitting[kind] if jobs[server] < limits[server]]
        if not room:
            return BLOCKED
        least = min(jobs[server] / rates[server] for server in room)
        return self.random.choice([s for s in room if jobs[s] / rates[s] == least])


class TwoChoices(_Servers):
    """Of two servers that fit, drawn without a look at them, the one with fewer jobs."""

    def choose(self, kind: int, jobs: Sequence[int]) -> int:
        drawn = self.random.sample(self.fitting[kind], 2)  # in random order, which decides ties
        return self.unless_full(min(drawn, key=jobs.__getitem__), jobs)
