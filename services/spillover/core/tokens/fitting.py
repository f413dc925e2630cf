"""The servers of a pool that fit one group of types, and what concerns them: what the policy and
neighbors are told. Looks only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Generic, Protocol

from spillover.core.tokens.bucket import Bucket
from spillover.core.tokens.server import UnlikeServer
from spillover.core.tokens.waiting import Line, V
from spillover.policy.overflow.estimate import learned, residual
from spillover.policy.tokens import BLOCKED, NONE


class Work:
    """The work of some jobs: those of one type, of a group of types, or all. It is a running mean
    and variance, in seconds on a server of rate 1."""

    def __init__(self, guess_s: float) -> None:
        self.mean_s = guess_s
        self._variance_s2 = 0.0
        self._served = 0

    def add(self, work_s: float) -> None:
        """One more job has had so much."""
        self._served += 1
        self.mean_s, self._variance_s2 = learned(
            self.mean_s, self._variance_s2, self._served, work_s
        )

    @property
    def spread_s(self) -> float:
        """Returns the standard deviation."""
        return math.sqrt(self._variance_s2)

    @property
    def residual(self) -> float:
        """Returns how much of a job is left, on average, of one under way."""
        return residual(self.mean_s, self._variance_s2)


class Halted(Protocol):
    """Says whether anything can start at all, and which places are not to be counted on."""

    down: bool
    resting: bool
    stuck: set[int]

    def stuck_servers(self) -> Iterable[int]: ...


class Fitting(Generic[V]):
    """`core.overflow.pool.FittingServers`: those that jobs of these `classes` run on; none where
    the pool serves no such type. `lines` are of the blocked, with the classes that they may join.

    A server under processor sharing counts once, however many jobs it may have at a time: a job
    beyond one for each server is as good as one that waits.
    """

    def __init__(
        self,
        pool: Halted,
        bucket: Bucket,
        classes: tuple[int, ...],
        servers: Sequence[UnlikeServer[V]],
        lines: Sequence[tuple[Line[V], Sequence[int]]],
        guess_s: float,
        *,
        in_turn: bool,
    ) -> None:
        self._pool = pool
        self._bucket = bucket
        self.classes = classes
        self._servers = servers
        self._all_lines = lines
        self._in_turn = in_turn
        self.work = Work(guess_s)
        """The work of the jobs of the group."""
        self.refresh()

    def __contains__(self, server: UnlikeServer[V]) -> bool:
        return server in self._servers

    def others(self, server: UnlikeServer[V]) -> list[UnlikeServer[V]]:
        """Returns those that could do what this one does for the group."""
        return [each for each in self._servers if each is not server]

    def refresh(self) -> None:
        """Look again which servers take jobs, and whose. Where none does, those count that rest:
        what is here waits for them. Where none does that, all count for how fast they are, and for
        who waits."""
        self._up = [server for server in self._servers if not server.is_closed]
        self._rests = not self._up
        if self._rests:
            self._up = [server for server in self._servers if server.state == "resting"]
        there = self._up or self._servers
        self.serves = serves = frozenset(kind for server in there for kind in server.classes)
        self._lines = [line for line, of in self._all_lines if not serves.isdisjoint(of)]
        rates = [server.rate for server in there]
        self._rates = sum(rates) or 1.0
        self.rate = self._rates / max(1, len(rates))

    @property
    def up(self) -> int:
        """Returns how many take jobs: m."""
        return len(self._up)

    def rest_s(self, now_s: float) -> float:
        """Returns how long what is here waits for a server that rests; 0 if another takes jobs."""
        if not self.resting:
            return 0.0
        return max(0.0, min(server.rest_until_s for server in self._up) - now_s)

    @property
    def resting(self) -> bool:
        return self._rests and bool(self._up)

    @property
    def working(self) -> int:
        if self._rests:
            return 0
        if not self._pool.stuck:
            return len(self._up)
        stuck = set(self._pool.stuck_servers())
        return sum(server.number not in stuck for server in self._up)

    @property
    def waiting(self) -> int:
        blocked = sum([len(line.visits) for line in self._lines])
        if self._in_turn:
            blocked += sum([len(server.line) for server in self._servers])
        return blocked

    @property
    def site_waiting(self) -> int:
        return self.waiting

    @property
    def site_foreign(self) -> int:
        return self.waiting_foreign

    @property
    def waiting_foreign(self) -> int:
        blocked = sum([line.foreign for line in self._lines])
        if self._in_turn:
            lines = [server.line.values() for server in self._servers if server.line]
            blocked += sum(not visit.is_home for line in lines for visit in line)
        return blocked

    @property
    def ahead(self) -> int:
        running = sum([server.running for server in self._up])
        return self.waiting + running - len(self._up)

    @property
    def ready(self) -> bool:
        pool = self._pool
        if pool.down or pool.resting:
            return False
        if not self._in_turn:
            return self._bucket.choose(self.classes) != BLOCKED
        # Its token may still be of a server that is engaged. Then it has its seat there, which
        # nothing refuses: what was said holds.
        return self.idle > 0

    @property
    def idle(self) -> int:
        pool = self._pool
        if pool.down or pool.resting:
            return 0
        return sum(self._is_idle(server) for server in self._up)

    def _is_idle(self, server: UnlikeServer[V]) -> bool:
        """Returns whether the server has nothing to do, and a token of this group is there."""
        oldest = self._bucket.oldest
        return not (server.running or server.line) and any(
            oldest[kind] != NONE for kind in server.classes if kind in self.classes
        )

    @property
    def service_s(self) -> float:
        return self.work.mean_s / self.rate

    @property
    def departure_s(self) -> float:
        return self.work.mean_s / self._rates

    @property
    def residual(self) -> float:
        return self.work.residual

    @property
    def spread_s(self) -> float:
        """Returns the standard deviation of the time that a service takes alone."""
        return self.work.spread_s / self.rate
