"""The handler `sleep` on one server of a pool: it has a speed, and shares it evenly among the
requests that it is given at a time.

As with servers alike, ends are reported at their ideal instants.
"""

from __future__ import annotations

import heapq

from spillover.core.overflow.events import ServiceEnded, Start
from spillover.live.engine.timers import Timer, Timers
from spillover.live.handlers.base import OnEnd
from spillover.live.handlers.service_payload import ServiceTimes
from spillover.live.handlers.sleep import NO_TIME, slept
from spillover.model.request import DONE, Outcome


class SharingSleepWorkers:
    """One server that waits: with n requests at a time each is done with its work n times as
    slowly as alone, which takes work / `rate`."""

    def __init__(self, times: ServiceTimes, rate: float, timers: Timers, on_end: OnEnd) -> None:
        self._times = times
        self.problem_with = times.problem_with
        self._rate = rate
        self._timers = timers
        self._on_end = on_end
        self._began_s: dict[int, float] = {}
        """When each that runs began, by its ref."""
        self._ends: list[tuple[float, int]] = []
        """A heap: what the clock will show when a request is done, and its ref. Those that were
        stopped stand in it too, until they come up."""
        self._had_s = 0.0
        """The clock of work: how much each that was there all along has had."""
        self._settled_s = 0.0
        """When the clock was last moved."""
        self._timer: Timer | None = None

    def start(self, command: Start) -> None:
        ref = command.ref
        work_s = self._times.read_s(command.request.work)
        if work_s == 0.0:
            self._on_end(ServiceEnded(ref, DONE, 0.0, NO_TIME), command.at_s)
            return
        self._settle(command.at_s)
        self._began_s[ref] = command.at_s
        heapq.heappush(self._ends, (self._had_s + work_s, ref))
        self._arm()

    def stop(self, ref: int) -> None:
        now_s = self._timers.clock()
        self._settle(now_s)
        if self._began_s.pop(ref, None) is not None:
            self._arm()
            self._on_end(ServiceEnded(ref, Outcome.CANCELLED, 0.0), now_s)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._began_s.clear()

    def _settle(self, now_s: float) -> None:
        if self._began_s:
            self._had_s += max(0.0, now_s - self._settled_s) * self._rate / len(self._began_s)
        self._settled_s = now_s

    def _arm(self) -> None:
        """Wake when the next one is done, if nothing happens before."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._ends and self._ends[0][1] not in self._began_s:
            heapq.heappop(self._ends)
        if self._ends:
            left_s = (self._ends[0][0] - self._had_s) * len(self._began_s) / self._rate
            self._timer = self._timers.at(self._settled_s + max(0.0, left_s), self._ended)

    def _ended(self, due_s: float) -> None:
        self._timer = None
        self._settle(due_s)
        self._had_s, ref = heapq.heappop(self._ends)  # to the last bit, whatever was added up
        service_s = due_s - self._began_s.pop(ref)
        self._arm()
        self._on_end(ServiceEnded(ref, DONE, service_s, slept(service_s)), due_s)
