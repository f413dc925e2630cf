"""The pool of servers that are alike where requests state their sizes: what waits is counted by how
long it is expected to run.

A wait is that of a queue of so much work, poured over servers that first do the rest of what they
run. Policies and neighbors are told the number of requests of mean size that has this wait, so that
their formulas, and the messages, stay as they are. The FIFO is the same.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from itertools import islice
from typing import NamedTuple

from spillover.core.overflow.learned_servers import LearnedServers
from spillover.core.overflow.servers import FifoServers
from spillover.core.overflow.visit import Visit
from spillover.core.work.expected import TIME_MIN_S, ExpectedWork
from spillover.model.ranges import AHEAD_MAX
from spillover.model.server_bounds import ServerBounds
from spillover.policy.overflow import admission
from spillover.policy.overflow.base import OwnLoad
from spillover.policy.overflow.report_terms import first_departure, residual_for
from spillover.policy.work import Features, level_s, room_s

RESTS_MAX = 64
"""The most services whose rests are looked at one by one: those that end first."""

LOOKS_MAX = 256
"""The most places of the queue that are looked through for waits."""


class _Running(NamedTuple):
    """A service under way."""

    end_s: float
    """The time when the service is expected to end."""
    off_s: float
    """The mean error of that time: no service is expected to end sooner."""
    kind: str
    features: Features | None
    measure: int


class Line:
    """The work that waits and runs, in seconds of one server."""

    def __init__(self) -> None:
        self.expected = ExpectedWork()
        self.waiting_s = 0.0
        self.foreign_s = 0.0
        """The part of the waiting work that neighbors have sent."""
        self.running: dict[int, _Running] = {}
        self._ends: list[tuple[float, int]] = []
        """The expected ends, in order."""
        self._ends_s = 0.0
        """The sum of the expected ends."""
        self.last: _Running | None = None
        """The service that ended last."""
        self.load = 0.0
        """The load that own clients bring, as a decision last got it."""
        self.version = 0
        """A number that changes with each begin and end of a service."""
        self.known_rests: tuple[object, list[float]] = None, []
        """The rests that were asked for last, and what they depend on: one event asks often."""

    def begin(self, ref: int, running: _Running) -> None:
        self.version += 1
        self.running[ref] = running
        insort(self._ends, (running.end_s, ref))
        self._ends_s += running.end_s

    def end(self, ref: int) -> None:
        """Notes that a service has ended, if it is one."""
        self.version += 1
        self.last = one = self.running.pop(ref, None)
        if one is not None:
            del self._ends[bisect_left(self._ends, (one.end_s, ref))]
            self._ends_s = self._ends_s - one.end_s if self._ends else 0.0

    def rests_s(self, now_s: float, stuck: set[int]) -> list[float]:
        """Returns how long services are expected to go on, of those that end first. A service that
        is overdue is expected to take as long again as it is overdue."""
        running = self.running
        return [
            max(abs(end_s - now_s), running[ref].off_s)
            for end_s, ref in islice(self._ends, RESTS_MAX)
            if ref not in stuck
        ]

    def mean_rest_s(self, now_s: float) -> float:
        """Returns the mean time for which all services are expected to go on."""
        return max(0.0, self._ends_s / len(self._ends) - now_s) if self._ends else 0.0

    def overdue_s(self, now_s: float) -> float:
        """Returns for how long a server is expected to have been free by now."""
        return max(0.0, now_s - self._ends[0][0]) if self._ends else 0.0


class Sizing(FifoServers):
    """The common part of pools that count work."""

    counts_work = True
    line: Line

    # --- the work -----------------------------------------------------------------------------

    def _size(self, visit: Visit) -> float:
        """Returns how long a visit is expected to run; that never changes once it is asked."""
        if not visit.work_s:
            request = visit.request
            told_s = self.line.expected.expected_s(request.type, request.features, request.measure)
            visit.work_s = self.service_s if told_s is None else told_s
        return visit.work_s

    def _off(self, visit: Visit) -> float:
        """Returns the mean error of that time, as a share of it."""
        request = visit.request
        error = self.line.expected.error_of(request.type, request.features, request.measure)
        return self.service_spread_s / self.service_s if error is None else error

    def occupy(self, visit: Visit) -> int:
        work_s, request, line = self._size(visit), visit.request, self.line
        off_s = self._off(visit) * work_s
        end_s = self.now_s + work_s
        says = request.type, request.features, request.measure
        line.begin(visit.ref, _Running(end_s, off_s, *says))
        return super().occupy(visit)

    def vacate(self, ref: int) -> None:
        self.line.end(ref)
        super().vacate(ref)

    def cool(self, ref: int, until_s: float) -> None:
        self.line.end(ref)
        super().cool(ref, until_s)

    def served(self, ref: int, service_s: float) -> None:
        """Learn from the service that has just left its server."""
        super().served(ref, service_s)
        if (last := self.line.last) is not None:
            self.line.expected.took(last.kind, last.features, service_s, last.measure)

    def join(self, visit: Visit, *, first: bool = False) -> None:
        super().join(visit, first=first)
        work_s = self._size(visit)
        self.line.waiting_s += work_s
        if not visit.is_home:
            self.line.foreign_s += work_s

    def leave(self, visit: Visit) -> None:
        super().leave(visit)
        self._left(visit)

    def pop(self) -> Visit | None:
        visit = super().pop()
        if visit is not None:
            self._left(visit)
        return visit

    def _left(self, visit: Visit) -> None:
        line = self.line
        line.waiting_s = max(0.0, line.waiting_s - visit.work_s) if self.waiting else 0.0
        if not self.waiting_foreign:
            line.foreign_s = 0.0
        elif not visit.is_home:
            line.foreign_s = max(0.0, line.foreign_s - visit.work_s)

    # --- waits --------------------------------------------------------------------------------

    def _rests_s(self) -> list[float]:
        """Returns the times when servers are free for waiting work, the first ones first."""
        line = self.line
        by = self.now_s, line.version, self.busy, self.total, self.site_total, tuple(self.stuck)
        if line.known_rests[0] != by:
            line.known_rests = by, self._found_rests_s()
        return line.known_rests[1]

    def _found_rests_s(self) -> list[float]:
        now_s = self.now_s
        rests_s = self.line.rests_s(now_s, self.stuck)
        rests_s += [max(0.0, until_s - now_s) for until_s in self._cooling_s]
        idle = self.working - self.busy + len(self.stuck)
        rests_s += [0.0] * min(idle, RESTS_MAX)
        rests_s.sort()
        # Servers that are to go take nothing more: of the running services, the first ones to end.
        gone = self.busy - max(self.total, self.site_total)
        if gone > 0:
            del rests_s[: min(gone, len(rests_s) - 1)]
        return rests_s or [self.service_s]

    def wait_s(self, work_s: float | None = None) -> float:
        """Returns the expected wait behind so much work; behind all that waits if None."""
        if work_s is None:
            work_s = self.line.waiting_s
        rests_s = self._rests_s()
        if self.busy <= RESTS_MAX:
            return level_s(work_s, rests_s)
        return min(
            level_s(work_s, rests_s),
            max(rests_s[0], self.line.mean_rest_s(self.now_s)) + work_s / max(1, self.working),
        )

    def wait_of(self, visit: Visit) -> float:
        """Returns the expected time for which a waiting visit goes on waiting."""
        before_s = 0.0
        for other in islice(self._fifo, LOOKS_MAX):
            if other is visit:
                return self.wait_s(before_s)
            before_s += other.work_s
        return self.wait_s()

    def first_place(self, there_s: float) -> int:
        """Returns the first place in the queue, from 0 on, with a longer wait than this. Far
        behind, it is reckoned with the mean of what waits there."""
        room, before_s = room_s(there_s, self._rests_s()), 0.0
        for place, visit in enumerate(islice(self._fifo, LOOKS_MAX)):
            if before_s >= room:
                return place
            before_s += visit.work_s
        behind, behind_s = self.waiting - LOOKS_MAX, self.line.waiting_s - before_s
        left_s = max(0.0, room - before_s)
        if behind <= 0 or left_s >= behind_s:
            return self.waiting
        return LOOKS_MAX + int(behind * left_s / behind_s)

    @property
    def ahead(self) -> int:
        ahead = super().ahead
        if ahead < 0 or self.down or self.resting:
            return ahead
        first = first_departure(self.residual, self.line.load, max(1, self.working))
        # Days of work beside a mean of less than a millisecond are more than messages may say.
        return min(max(0, round(self.wait_s() / self.departure_s - first)), AHEAD_MAX)

    @property
    def site_foreign(self) -> int:
        """Returns how many requests of mean size are as much work as the waiting ones of
        neighbors."""
        return round(self.line.foreign_s / self.service_s)

    # --- estimates ----------------------------------------------------------------------------

    def own_load(
        self,
        visit: Visit,
        may_keep: bool,  # noqa: FBT001 - as `ServerPool`
        load: float,
        now_s: float,
        unreported: tuple[int, ...],
    ) -> OwnLoad:
        own = super().own_load(visit, may_keep, load, now_s, unreported)
        line, servers = self.line, own.servers
        line.load = load
        work_s = line.waiting_s
        if visit.place is not None:
            work_s = max(0.0, work_s - visit.work_s)
        departures = self.wait_s(work_s) / own.departure_s
        waiting = max(0, round(departures - first_departure(own.residual, load, servers)))
        return own._replace(
            queue_length=waiting,
            residual=residual_for(departures - waiting, load, servers),
            still_s=min(own.still_s, line.overdue_s(now_s)),
        )

    def stay_s(self, visit: Visit, now_s: float) -> float:
        if not admission.tells_wait(self.waiting, self.total):
            return 0.0
        work_s = self._size(visit)
        margin_s = admission.SPREAD * self._off(visit) * work_s
        return self.wait_s() + work_s + margin_s + self._delivery_s + self.rest_s(now_s)

    def retry_after_s(self, _: Visit, now_s: float) -> float:
        served_s = (self.line.waiting_s + self.service_s) / max(1, self.working)
        return self.rest_s(now_s) + served_s

    def check(self) -> None:
        super().check()
        waiting_s = sum(visit.work_s for visit in self._fifo)
        assert abs(self.line.waiting_s - waiting_s) <= 1e-6 * (1.0 + waiting_s)
        assert len(self.line.running) <= self.busy, "more is counted than runs"


class SizedServers(Sizing):
    """The pool that counts work and has a given number of servers."""

    def __init__(self, total: int, service_s: float, delivery_s: float) -> None:
        super().__init__(total, max(service_s, TIME_MIN_S), delivery_s)
        self.line = Line()


class SizedLearnedServers(Sizing, LearnedServers):
    """The pool that counts work and learns its number of servers."""

    def __init__(self, bounds: ServerBounds, service_s: float, delivery_s: float) -> None:
        LearnedServers.__init__(self, bounds, max(service_s, TIME_MIN_S), delivery_s)
        self.line = Line()
