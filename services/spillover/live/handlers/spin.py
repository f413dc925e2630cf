"""The handler `spin`: burns the service time on a processor, in a process of its own per server."""

from __future__ import annotations

import msgspec

from spillover.core.overflow.events import Start
from spillover.live.handlers.base import OnEnd
from spillover.live.handlers.calls import spin
from spillover.live.handlers.pooled import PooledWorkers
from spillover.live.handlers.python.processes import ServerProcesses
from spillover.live.handlers.service_payload import ServiceTimes


class SpinWorkers(PooledWorkers):
    """As many spinning processes as there are servers, each started when it is first needed."""

    def __init__(self, servers: int, service_s: float, on_end: OnEnd) -> None:
        super().__init__(servers, on_end, ServerProcesses())
        self._times = ServiceTimes(service_s)

    def problem_with(self, payload: msgspec.Raw) -> str | None:
        return self._times.problem_with(payload)

    def start(self, command: Start) -> None:
        self.run(command, spin, self._times.read_s(command.request.work))

    def stop(self, ref: int) -> None:
        """A spinning process spins on: its server is free when it has done so."""
