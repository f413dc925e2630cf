"""A node as a process: sockets, signals, the server, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
from collections.abc import Awaitable, Sequence
from typing import Any

from spillover import __version__
from spillover.apps.http.asgi import AsgiApp
from spillover.apps.http.server import HttpServer, url_of
from spillover.apps.node.app import create_app
from spillover.apps.node.exposure import PeersOnly, PublicOnly
from spillover.apps.node.file_limit import FileWatch, raise_file_limit
from spillover.apps.node.proxy_door import ProxyDoor
from spillover.live.membership.store import ConfigurationStore
from spillover.live.overflow.ending import tell_lost
from spillover.live.overflow.shell import NodeShell
from spillover.live.process.allocator import keep_freed_memory
from spillover.live.process.listening import bind_socket
from spillover.live.process.logs import Message
from spillover.live.process.stdin_end import on_stdin_end
from spillover.model.topology import Topology

LAST_WORDS_S = 0.1
"""So long what comes in at the end of a node is still answered: 503, by which a neighbor that has
not heard of the end decides again. A connection that is just closed would leave it in doubt."""

_BINDS = ("--bind", "--peer-bind", "--proxy-bind")

_log = logging.getLogger(__name__)


async def serve_node(
    topology: Topology,
    cluster_id: str,
    *,
    bind: tuple[str, int],
    peer_bind: tuple[str, int] | None = None,
    proxy_bind: tuple[str, int] | None = None,
    seed: int | None = None,
    source: str | None = None,
    drain_timeout_s: float = 30.0,
    results_timeout_s: float = 5.0,
    testbed: bool = False,
    end_with_stdin: bool = False,
    allowed_origins: frozenset[str] = frozenset(),
    store: ConfigurationStore | None = None,
) -> None:
    """Serve one cluster until SIGTERM or SIGINT, then drain and return: requests under way are
    waited for up to `drain_timeout_s`, results that nobody has fetched up to `results_timeout_s`
    of that. A second signal ends it at once, and with `end_with_stdin` the end of standard input:
    whoever started it has died. With `peer_bind` neighbors are served there, and nowhere else; with
    `proxy_bind` the clients of the service that requests are passed to. With a `store`, a
    configuration is taken only if that takes it. Raises InputError if an address cannot be bound,
    and what NodeShell raises, naming `source`.
    """
    with contextlib.ExitStack() as sockets:
        bound = _bind(sockets, bind, peer_bind, proxy_bind)
        listening = [one for one in bound if one is not None]
        shell = NodeShell(topology, cluster_id, seed=seed, source=source)
        _say_who_starts(shell, bound, source)
        stop, end = _ends(end_with_stdin=end_with_stdin)
        app = create_app(shell, testbed=testbed, allowed_origins=allowed_origins, store=store)
        apps: list[AsgiApp] = [app] if peer_bind is None else [PublicOnly(app), PeersOnly(app)]
        servers = _servers(apps, None if proxy_bind is None else ProxyDoor(shell))
        _watch_files(shell, servers)
        running = asyncio.create_task(shell.run())
        serving = asyncio.gather(
            *(server.serve([one]) for server, one in zip(servers, listening, strict=True))
        )
        try:
            for server in servers:
                await _first(server.ready.wait(), running, serving)
            _log.info(Message("node listens"))
            _settle_memory()
            await _first(stop.wait(), end.wait(), running, serving)
            if not end.is_set():
                drained = shell.drain(drain_timeout_s, results_timeout_s)
                await _first(drained, end.wait(), running, serving)
                tell_lost(shell.left)
        finally:
            await close_node(shell, servers, running, serving)


def _servers(apps: Sequence[AsgiApp], door: ProxyDoor | None) -> list[HttpServer | ProxyDoor]:
    """In the order of their sockets."""
    return [*map(HttpServer, apps), *([] if door is None else [door])]


def _bind(
    sockets: contextlib.ExitStack, *addresses: tuple[str, int] | None
) -> list[socket.socket | None]:
    """A listening socket for each option that has an address."""
    return [
        None if at is None else sockets.enter_context(bind_socket(*at, option=option))
        for at, option in zip(addresses, _BINDS, strict=True)
    ]


def _settle_memory() -> None:
    """What is there now stays: the collector need not look at it again."""
    keep_freed_memory()
    gc.collect()
    gc.freeze()


async def close_node(
    shell: NodeShell,
    servers: Sequence[HttpServer | ProxyDoor],
    running: asyncio.Task[None],
    serving: asyncio.Future[Any],
    last_words_s: float = LAST_WORDS_S,
) -> None:
    """End a node that runs: nothing is asked any more, then nothing taken, then nothing answered.
    All doors stay open until the node takes nothing more, and for last words."""
    running.cancel()
    await asyncio.wait([running])
    await shell.close()
    await asyncio.sleep(last_words_s)
    for server in servers:
        server.stop()
    await serving


async def _first(*waits: Awaitable[object]) -> None:
    """Wait until one is done, drop the ones made here, and raise what failed."""
    futures = [asyncio.ensure_future(wait) for wait in waits]
    done, _ = await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
    for wait, future in zip(waits, futures, strict=True):
        if future is not wait:
            future.cancel()
    for future in done:
        future.result()


def _ends(*, end_with_stdin: bool) -> tuple[asyncio.Event, asyncio.Event]:
    """Set when the node is to drain and end, and when it is to end at once."""
    stop, end = asyncio.Event(), asyncio.Event()
    if end_with_stdin:
        on_stdin_end(end)

    def on_signal() -> None:
        if stop.is_set():
            end.set()
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    return stop, end


def _say_who_starts(
    shell: NodeShell, sockets: Sequence[socket.socket | None], source: str | None
) -> None:
    """The first line of a node's log."""
    public, peer, doorstep = (None if one is None else url_of(one) for one in sockets)
    _log.info(
        Message(
            "node starts",
            cluster=shell.cluster.id,
            address=public,
            peer_address=peer,
            proxy_address=doorstep,
            federation=shell.topology.name,
            topology=source,
            version=__version__,
        )
    )


def _watch_files(shell: NodeShell, servers: Sequence[HttpServer | ProxyDoor]) -> None:
    allowed = raise_file_limit(shell.machine.settings)
    if allowed is None:
        return

    def connections() -> int:
        taken = sum(server.connection_count for server in servers)
        return taken + shell.machine.register.away + shell.machine.servers.jobs

    FileWatch(allowed, connections).begin(shell.timers, lambda: shell.now_s)
