"""The handler `sleep`: occupies a server for the service time, and nothing else.

Ends are reported at their ideal instants, so that a chain of services on one server lasts exactly
the sum of its service times, as in virtual time.
"""

from __future__ import annotations

import time

import msgspec

from spillover.core.overflow.events import ServiceEnded, Start
from spillover.live.engine.timers import Timer, Timers
from spillover.live.handlers.base import OnEnd
from spillover.live.handlers.service_payload import ServiceTimes
from spillover.model.request import DONE, Outcome

NO_TIME = msgspec.Raw(b'{"service_ms":0.0}')


class SleepWorkers:
    """Servers that wait, each for one request at a time."""

    def __init__(self, times: ServiceTimes, timers: Timers, on_end: OnEnd) -> None:
        self._times = times
        self.problem_with = self._times.problem_with
        self._timers = timers
        self._on_end = on_end
        self._sleeping: dict[int, Timer] = {}

    def start(self, command: Start) -> None:
        ref = command.ref
        service_s = self._times.read_s(command.request.work)
        if service_s == 0.0:  # no timer, which would take a millisecond
            self._on_end(ServiceEnded(ref, DONE, 0.0, NO_TIME), command.at_s)
            return

        def ended(due_s: float) -> None:
            del self._sleeping[ref]
            self._on_end(ServiceEnded(ref, DONE, service_s, slept(service_s)), due_s)

        self._sleeping[ref] = self._timers.at(command.at_s + service_s, ended)

    def stop(self, ref: int) -> None:
        timer = self._sleeping.pop(ref, None)
        if timer is not None:
            timer.cancel()
            self._on_end(ServiceEnded(ref, Outcome.CANCELLED, 0.0), time.monotonic())

    async def close(self) -> None:
        for timer in self._sleeping.values():
            timer.cancel()
        self._sleeping.clear()


def slept(service_s: float) -> msgspec.Raw:
    """Returns the result: how long the request was on the server."""
    return msgspec.Raw(b'{"service_ms":%s}' % msgspec.json.encode(round(service_s * 1e3, 6)))
