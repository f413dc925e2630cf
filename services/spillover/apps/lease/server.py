"""A lease member's HTTP service in a thread and an event loop of its own: however slow or many
those are who ask, and however busy the member's own loop is, neither waits for the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterator

import uvicorn
import uvloop

from spillover.apps.lease.app import create_app
from spillover.apps.lease.http_protocol import BriefProtocol
from spillover.live.leases.group import LeaseGroup
from spillover.live.leases.metrics import LeaseMetrics
from spillover.live.leases.report import GroupReport
from spillover.live.process.listening import bind_socket
from spillover.live.process.logs import OncePerPeriod
from spillover.live.process.own_threads import start_own
from spillover.model.errors import RunError

START_S = 10.0

STOP_S = 1
"""For answers that are under way at the end."""

CONNECTIONS_MAX = 256
"""Beyond it 503 is answered; each ends by itself soon, see `http_protocol`."""

KEEP_ALIVE_S = 75

_server_log = logging.getLogger("uvicorn.error")
_server_log.addFilter(OncePerPeriod())
_server_log.setLevel(logging.WARNING)  # when it begins, the member's events say


class LeaseService:
    """Serves one member while `with` lasts, which gives the url. Raises InputError if `bind` cannot
    be bound, RunError if it does not start, for whatever reason."""

    def __init__(self, member: LeaseGroup, bind: tuple[str, int]) -> None:
        self._member = member
        self._metrics = LeaseMetrics(member)
        self._socket = bind_socket(*bind)
        host, port = self._socket.getsockname()[:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        """Where it listens, with the port that was found for port 0."""
        self._ready = threading.Event()
        self._server: _Server | None = None
        self._thread = threading.Thread(target=self._run, name="lease-service", daemon=True)

    def __enter__(self) -> str:
        try:
            start_own(self._thread)
        except RunError:
            self._socket.close()
            raise
        self._ready.wait(START_S)
        if self._server is None or not self._server.started:
            raise RunError(f"{self.url}: the service did not start within {START_S:g} s")
        return self.url

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.should_exit = True
        self._thread.join(2.0 * STOP_S)
        self._socket.close()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        report = GroupReport(self._member)
        app = create_app(report, self._metrics)
        self._server = _Server(_config(app), self._ready, app.state.console.close)
        try:
            await self._server.serve([self._socket])
        finally:
            await report.close()


class _Server(uvicorn.Server):
    """uvicorn without its own signal handling, which is the member's business."""

    def __init__(
        self, config: uvicorn.Config, ready: threading.Event, on_shutdown: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._ready = ready
        self._on_shutdown = on_shutdown
        """Ends what would hold up the end."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_shutdown()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _config(app: object) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=BriefProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=STOP_S,
    )
