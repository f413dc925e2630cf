"""A lease member's HTTP service in a thread and an event loop of its own: however slow or many
those are who ask, and however busy the member's own loop is, neither waits for the other.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import uvloop

from spillover.apps.http.asgi import AsgiApp, Receive, Scope, Send
from spillover.apps.http.audit import Audit
from spillover.apps.http.certificates import watching
from spillover.apps.http.doors import BehindDoors, Doors
from spillover.apps.http.exchange import EXCHANGE
from spillover.apps.http.reach import warn_of_clients
from spillover.apps.http.server import HttpServer, url_of
from spillover.apps.http.token_files import TokenFiles
from spillover.apps.lease.app import create_app
from spillover.apps.lease.doors import TABLE
from spillover.live.http1.bounds import Bounds
from spillover.live.leases.group import LeaseGroup
from spillover.live.leases.metrics import LABEL, LeaseMetrics
from spillover.live.leases.report import GroupReport
from spillover.live.process.listening import bind_socket
from spillover.live.process.logs import Message
from spillover.live.process.own_threads import start_own
from spillover.model.errors import RunError

if TYPE_CHECKING:
    from spillover.live.tls.rotation import Credentials

_log = logging.getLogger(__name__)

START_S = 10.0

STOP_S = 1
"""The time that answers under way have at the end."""

EXCHANGE_S = 10.0
"""Nobody here reads a body or works for long: who takes longer has no place to lose."""

CONNECTIONS_MAX = 256
"""Beyond it 503 is answered; each ends by itself soon."""

KEEP_ALIVE_S = 75.0


class LeaseService:
    """Serves one member while `with` lasts, which gives the url; with `token_files` whoever has an
    API token of theirs, with `credentials` by TLS. Raises InputError if `bind` cannot be bound,
    RunError if it does not start, for whatever reason."""

    def __init__(
        self,
        member: LeaseGroup,
        bind: tuple[str, int],
        token_files: TokenFiles | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self._member = member
        self._token_files = token_files
        self._credentials = credentials
        self._metrics = LeaseMetrics(member)
        self._socket = bind_socket(*bind)
        is_secure = credentials is not None
        self.url = url_of(self._socket, is_secure=is_secure)
        """Where it listens, with the port that was found for port 0."""
        has_tokens = token_files is not None
        where = "member", self._socket, self.url
        warn_of_clients(*where, is_secure=is_secure, has_tokens=has_tokens)
        self._begun = threading.Event()
        self._stop: Callable[[], object] | None = None
        """This stops the service; None unless it listens."""
        self._loop: asyncio.AbstractEventLoop | None = None
        looks = [] if token_files is None else [token_files.look_now]
        looks += [] if credentials is None else [credentials.wake]
        self.rereads = [partial(self._soon, look) for look in looks]
        """Functions that have its files read again now; they may be called from any thread."""
        self._thread = threading.Thread(target=self._run, name="lease-service", daemon=True)

    def __enter__(self) -> str:
        try:
            start_own(self._thread)
        except RunError:
            self._socket.close()
            raise
        self._begun.wait(START_S)
        if self._stop is None:
            raise RunError(f"{self.url}: the service did not start within {START_S:g} s")
        return self.url

    def __exit__(self, *_: object) -> None:
        if self._stop is not None:
            self._soon(self._stop)
        self._thread.join(2.0 * STOP_S)
        self._socket.close()

    def _soon(self, act: Callable[[], object]) -> None:
        """Act in the loop of the service; from any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # it is closed: the service has ended before
                self._loop.call_soon_threadsafe(act)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        finally:
            self._begun.set()

    async def _serve(self) -> None:
        report = GroupReport(self._member)
        files = self._token_files
        app = create_app(report, self._metrics, has_tokens=files is not None)
        behind: AsgiApp = app
        if files is not None:
            behind = BehindDoors(
                app, Doors(files.access, Audit(asyncio.get_running_loop().time), TABLE)
            )
        tls = None if self._credentials is None else self._credentials.front(ssl.CERT_NONE)

        async def telling(scope: Scope, receive: Receive, send: Send) -> None:
            if self._member.draining:  # its clients are to go elsewhere
                scope[EXCHANGE].keep_alive = False
            await behind(scope, receive, send)

        server = HttpServer(telling, _bounds(), stop_s=STOP_S, tls=tls)

        def stop() -> None:
            app.state.console.close()  # its streams would hold up the end
            server.stop()

        def fail(error: BaseException) -> None:
            told = Message("the service of this member ends: its files cannot be read again")
            _log.error(told, exc_info=error)
            stop()

        serving = asyncio.create_task(server.serve([self._socket]))
        ready = asyncio.create_task(server.ready.wait())
        with self._watching(server, fail):
            try:
                await asyncio.wait([ready, serving], return_when=asyncio.FIRST_COMPLETED)
                if ready.done():
                    self._loop, self._stop = asyncio.get_running_loop(), stop
                    self._begun.set()
                await serving
            finally:
                await report.close()

    @contextmanager
    def _watching(
        self, server: HttpServer, fail: Callable[[BaseException], None]
    ) -> Iterator[None]:
        """Have its files looked at now and then."""
        with ExitStack() as ends:
            if self._token_files is not None:
                ends.callback(self._token_files.begin_watching(fail).cancel)
            if self._credentials is not None:
                registry, labelled = self._metrics.registry, (LABEL, self._member.node)
                told = self._credentials, [server], registry, labelled, fail
                ends.enter_context(watching(*told))
            yield


def _bounds() -> Bounds:
    return Bounds(
        body_s=EXCHANGE_S,
        idle_s=KEEP_ALIVE_S,
        unread_s=EXCHANGE_S,
        exchange_s=EXCHANGE_S,
        connections_max=CONNECTIONS_MAX,
    )
