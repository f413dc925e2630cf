"""The handler `spin`: burns the service time on a processor, in a process of its own per server."""

from __future__ import annotations

import time

import msgspec

from spillover.core.node_events import Start
from spillover.live.workers.base import OnEnd
from spillover.live.workers.pooled import PooledWorkers
from spillover.live.workers.process_pool import make_process_pool
from spillover.live.workers.service_payload import read_service_s, service_problem


def spin(service_s: float) -> bytes:
    """Keep one processor busy for `service_s` of its own time; the encoded result."""
    started_s = time.process_time()
    while time.process_time() - started_s < service_s:
        pass
    return b'{"service_ms":%.3f}' % (service_s * 1e3)


class SpinWorkers(PooledWorkers):
    """As many spinning processes as there are servers."""

    def __init__(self, servers: int, service_s: float, on_end: OnEnd) -> None:
        super().__init__(lambda: make_process_pool(servers), on_end)
        self._service_s = service_s

    def problem_with(self, payload: msgspec.Raw) -> str | None:
        return service_problem(payload)

    def start(self, command: Start) -> None:
        self.run(command, spin, read_service_s(command.request.work, self._service_s))
