"""A service on sockets until it is told to stop. All that is known here of uvicorn is in this file:
it binds the two ends, `HttpConnection` is what it makes for each connection, and the rest of its
server, signals and settings is left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
from collections.abc import Iterator
from typing import Any, cast

import uvicorn

from spillover.apps.http.asgi import AsgiApp
from spillover.apps.http.connection import HttpConnection
from spillover.apps.http.service import Edge, HttpService
from spillover.live.engine.write_batch import WriteBatch
from spillover.live.http1.bounds import Bounds, Swept
from spillover.live.process.listening import BACKLOG
from spillover.live.process.logs import OncePerPeriod
from spillover.live.process.open_files import watch_open_files
from spillover.live.tls.handshakes import Front, Handshake, at_door

STOP_S = 2
"""The time that connections have at the end until they are let go of."""

LOOK_S = 0.001, 0.1
"""How soon it is looked first whether they have gone, and how rarely in the end."""

_server_log = logging.getLogger("uvicorn.error")
_server_log.addFilter(OncePerPeriod())
_server_log.setLevel(logging.WARNING)  # when it begins and ends, the services say themselves


class HttpServer(uvicorn.Server):
    """uvicorn without its own signal handling, since signals mean drain here, and without its ten
    looks a second whether to go on: `stop` tells. `ready` is set once connections are accepted.
    With `tls` all connections are encrypted by it. To be made where the loop runs that serves."""

    def __init__(
        self,
        app: AsgiApp,
        bounds: Bounds | None = None,
        *,
        stop_s: int = STOP_S,
        tls: Front | None = None,
    ) -> None:
        config = uvicorn.Config(
            cast("Any", app),
            http=cast("Any", self._connect),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=stop_s,
        )
        super().__init__(config)
        self.bounds = bounds or Bounds()
        self._tls = tls
        self._handshakes: set[Handshake] = set()
        self.ready = asyncio.Event()
        self._listening: list[socket.socket] = []
        self._stopped = asyncio.Event()
        edge, loop = getattr(app, "edge", None) or Edge(), asyncio.get_running_loop()
        swept: Swept[HttpConnection] = Swept(loop, cast("Any", self.server_state.connections))
        told = app, self.bounds, edge, loop, swept, self.server_state.tasks
        self._service = HttpService(*told, edge.writes or WriteBatch(loop), swept.clock)

    def _connect(self, **_: object) -> HttpConnection:
        return HttpConnection(self._service)

    @property
    def connections(self) -> set[HttpConnection]:
        return self._service.swept.connections

    @property
    def connection_count(self) -> int:
        """Returns how many connections there are, also those that have only begun."""
        return len(self.server_state.connections) + len(self._handshakes)

    def leave(self, idle_s: float | None) -> None:
        """Have all clients go elsewhere, with their next answers, and those who ask nothing after
        this time; None: they may stay after all."""
        self._service.leaving_idle_s = math.inf if idle_s is None else idle_s
        for connection in list(self.connections):
            connection.leave()

    def stop_listening(self) -> None:
        """Let nobody connect any more."""
        for server in self.servers:
            server.close()
        for listening in self._listening:
            listening.close()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._listening = sockets or []
        if self._tls is None:
            await super().startup(sockets)
        else:
            await self._listen(sockets or [], self._tls)
        watch_open_files(asyncio.get_running_loop())
        self.ready.set()

    async def _listen(self, sockets: list[socket.socket], tls: Front) -> None:
        """Listen with handshakes in turns, and with limits for them, which uvicorn does not pass
        on."""
        loop, make = asyncio.get_running_loop(), at_door(self._connect, tls, self._handshakes)
        self.servers = [
            await loop.create_server(make, sock=one, backlog=BACKLOG) for one in sockets
        ]
        self.started = True

    async def main_loop(self) -> None:
        await self._stopped.wait()

    async def shutdown(
        self,
        sockets: list[socket.socket] | None = None,  # noqa: ARG002 - as uvicorn calls it
    ) -> None:
        """Let go of all connections, once what is under way is answered or the time for that is up.
        Uvicorn stands still for a tenth of a second first, whether there are any or not."""
        self.stop_listening()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        stop_s = self.config.timeout_graceful_shutdown
        try:
            async with asyncio.timeout(stop_s):
                await self._have_gone()
        except TimeoutError:
            tasks = self.server_state.tasks
            _server_log.error(
                "%d requests are cut off: not answered within %s s", len(tasks), stop_s
            )
            for task in tasks:
                task.cancel()

    async def _have_gone(self) -> None:
        look_s, longest_s = LOOK_S
        await asyncio.sleep(look_s)  # those that are being accepted, too
        while self.server_state.connections or self.server_state.tasks:
            await asyncio.sleep(look_s)
            look_s = min(2.0 * look_s, longest_s)
        for server in self.servers:
            await server.wait_closed()

    def stop(self) -> None:
        """Have `serve` return, once what is under way is answered or the time for that is up."""
        self.should_exit = True
        self._stopped.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def url_of(listening: socket.socket, *, is_secure: bool = False) -> str:
    """Returns where a socket can be called."""
    scheme = "https" if is_secure else "http"
    host, port = listening.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
