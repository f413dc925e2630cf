"""A producer as a process: sockets, signals, the server, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spillover.apps.http.certificates import watching
from spillover.apps.http.reach import warn_of_clients
from spillover.apps.http.server import HttpServer, url_of
from spillover.apps.http.token_files import TokenFiles
from spillover.apps.queue.app import QueueApp
from spillover.apps.queue.asked import DEADLINE_S_MAX
from spillover.apps.queue.calls import BODY_S
from spillover.core.queue.settings import ProducerSettings
from spillover.live.http1.bounds import Bounds
from spillover.live.process.listening import bind_socket
from spillover.live.process.logs import Message
from spillover.live.process.stdin_end import on_stdin_end
from spillover.live.process.stopping import StopSignals
from spillover.live.queue.certified import CertifiedProducers
from spillover.live.queue.metrics import LABEL
from spillover.live.queue.shell import QueueShell
from spillover.live.queue.store import ObjectStore
from spillover.live.tls.handshakes import Front

IDLE_LEAVING_S = 1.0
"""So long a connection without a call is kept that a client is to let go of."""

OUTLIVE = "objects outlive this process: they are on the disk"
LOST_WITH_IT = "objects are lost with this process: they are in memory alone, without --store"

_log = logging.getLogger(__name__)


async def serve_producer(
    settings: ProducerSettings,
    peers: Mapping[str, str],
    store: ObjectStore | None,
    *,
    bind: tuple[str, int],
    object_limit_bytes: int,
    url: str | None = None,
    drain_timeout_s: float = 30.0,
    end_with_stdin: bool = False,
    on_ready: Callable[[str], None] = lambda _: None,
    token_files: TokenFiles | None = None,
    shown: Sequence[tuple[bytes, bytes]] = (),
    certified: CertifiedProducers | None = None,
) -> None:
    """Serve one producer until SIGTERM or SIGINT, then drain for up to `drain_timeout_s` and
    return. A second signal ends it at once, and with `end_with_stdin` the end of standard input.
    `url` is where consumers reach it, if not where it listens; `on_ready` is told where that is.
    With `token_files` only who has an API token is let in; `shown` are the headers that show this
    producer's own to the others. Where producers are `certified` all is TLS. Raises InputError if
    the address cannot be bound.
    """
    with contextlib.ExitStack() as ends:
        listening = ends.enter_context(bind_socket(*bind))
        own_url = url or url_of(listening, is_secure=certified is not None)
        shell = QueueShell(settings, peers, store, own_url, headers=shown, certified=certified)
        access = None if token_files is None else token_files.access
        app = QueueApp(shell, object_limit_bytes=object_limit_bytes, access=access)
        _raise_file_limit()
        server = HttpServer(app, Bounds(body_s=DEADLINE_S_MAX + BODY_S), tls=front_of(certified))
        shell.on_draining.append(lambda drains: server.leave(IDLE_LEAVING_S if drains else None))
        stop, end = asyncio.Event(), asyncio.Event()
        signals = StopSignals(lambda _: stop.set(), end.set, drain_timeout_s)
        signals.heed(watch_files(ends, shell, server, token_files))
        if end_with_stdin:
            on_stdin_end(end)
        serving = asyncio.create_task(server.serve([listening]))
        waits = [asyncio.create_task(one.wait()) for one in (server.ready, stop, end)]
        try:
            await asyncio.wait([waits[0], serving], return_when=asyncio.FIRST_COMPLETED)
            if waits[0].done():
                on_ready(own_url)
                _say_who_starts(shell, listening, has_tokens=access is not None)
            await _until_over(shell, serving, waits[1], waits[2], drain_timeout_s)
        finally:
            _cancel(waits)
            app.cold.state.console.close()
            await shell.close()
            server.stop()
            await serving


def _say_who_starts(shell: QueueShell, door: socket.socket, *, has_tokens: bool) -> None:
    _log.info(Message(OUTLIVE if shell.bodies.is_durable else LOST_WITH_IT))
    is_secure = shell.certified is not None
    url = url_of(door, is_secure=is_secure)
    warn_of_clients("producer", door, url, is_secure=is_secure, has_tokens=has_tokens)


def front_of(certified: CertifiedProducers | None) -> Front | None:
    """Returns how to listen. Who comes is asked for a certificate where there are CAs that could
    vouch for a peer; consumers have none."""
    if certified is None:
        return None
    credentials = certified.credentials
    return credentials.front(ssl.CERT_OPTIONAL if credentials.material.cas else ssl.CERT_NONE)


def watch_files(
    ends: contextlib.ExitStack,
    shell: QueueShell,
    server: HttpServer,
    token_files: TokenFiles | None,
) -> list[Callable[[], None]]:
    """Have files looked at now and then, until `ends`. Returns what has them looked at at once."""
    rereads = []
    if token_files is not None:
        ends.callback(token_files.begin_watching(shell.fail).cancel)
        rereads.append(token_files.look_now)
    if shell.certified is not None:
        credentials = shell.certified.credentials
        registry, labelled = shell.metrics.registry, (LABEL, shell.settings.id)
        ends.enter_context(watching(credentials, [server], registry, labelled, shell.fail))
        rereads.append(credentials.wake)
    return rereads


async def _until_over(
    shell: QueueShell,
    serving: asyncio.Future[Any],
    stopped: asyncio.Future[Any],
    ended: asyncio.Future[Any],
    drain_timeout_s: float,
) -> None:
    """Return when it is drained, or must end at once. Raises what has made the producer fail."""
    over: list[asyncio.Future[Any]] = [stopped, ended, serving, shell.failed]
    await asyncio.wait(over, return_when=asyncio.FIRST_COMPLETED)
    if stopped.done() and not shell.failed.done():
        draining = asyncio.create_task(shell.drain(drain_timeout_s))
        await asyncio.wait([draining, ended], return_when=asyncio.FIRST_COMPLETED)
        draining.cancel()
    if shell.failed.done():
        shell.failed.result()


def _cancel(waits: Sequence[asyncio.Task[Any]]) -> None:
    for wait in waits:
        wait.cancel()


def _raise_file_limit() -> None:
    """Each call that waits holds a connection."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
