"""The handler `sleep` on one server of a pool: it has a speed, and shares it evenly among the
requests that it is given at a time.

As with servers alike, ends are reported at their ideal instants.
"""

from __future__ import annotations

from functools import partial

from spillover.core.overflow.events import ServiceEnded, Start
from spillover.core.tokens.sharing import SharedServer
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
        self._server = SharedServer(rate)
        self._timers = timers
        self._on_end = on_end
        self._began_s: dict[int, float] = {}
        """When each that runs began, by its ref."""
        self._timer: Timer | None = None

    def start(self, command: Start) -> None:
        ref = command.ref
        work_s = self._times.read_s(command.request.work)
        if work_s == 0.0:
            self._on_end(ServiceEnded(ref, DONE, 0.0, NO_TIME), command.at_s)
            return
        self._server.add(ref, command.at_s, work_s)
        self._began_s[ref] = command.at_s
        self._arm()

    def stop(self, ref: int) -> None:
        if self._began_s.pop(ref, None) is not None:
            now_s = self._timers.clock()
            self._server.remove(ref, now_s)
            self._arm()
            self._on_end(ServiceEnded(ref, Outcome.CANCELLED, 0.0), now_s)

    async def close(self) -> None:
        self._began_s.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        """Wake when the next one is done, if nothing happens before."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if (end := self._server.next_end()) is not None:
            due_s, ref = end
            self._timer = self._timers.at(due_s, partial(self._ended, ref))

    def _ended(self, ref: int, due_s: float) -> None:
        self._server.remove(ref, due_s)
        service_s = due_s - self._began_s.pop(ref)
        self._timer = None
        self._arm()
        self._on_end(ServiceEnded(ref, DONE, service_s, slept(service_s)), due_s)
