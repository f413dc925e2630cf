"""The handler `spin`: burns the service time on a processor, in a process of its own per server.

On a server that is shared each job has a process: they share the processors of the machine, not the
emulated server. `sleep` shares that.
"""

from __future__ import annotations

import msgspec

from spillover.core.overflow.events import Start
from spillover.live.handlers.base import OnEnd
from spillover.live.handlers.calls import spin
from spillover.live.handlers.python.pooled import PooledWorkers
from spillover.live.handlers.python.processes import ServerProcesses
from spillover.live.handlers.service_payload import ServiceTimes


class SpinWorkers(PooledWorkers):
    """Runs as many spinning processes as there are requests at a time, each started when it is
    first needed. A server of this `rate` is done with work in so many times less."""

    def __init__(self, times: ServiceTimes, on_end: OnEnd, rate: float = 1.0) -> None:
        super().__init__(on_end, ServerProcesses())
        self._times = times
        self._rate = rate

    def problem_with(self, payload: msgspec.Raw) -> str | None:
        return self._times.problem_with(payload)

    def start(self, command: Start) -> None:
        self.run(command, spin, self._times.read_s(command.request.work) / self._rate)

    def stop(self, ref: int) -> None:
        """A spinning process spins on: its server is free when it has done so."""
