"""A node as a process: sockets, signals, the server, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from spillover import __version__
from spillover.apps.http.access import Access
from spillover.apps.http.asgi import AsgiApp
from spillover.apps.http.reach import is_loopback, warn_of_clients
from spillover.apps.http.server import HttpServer, url_of
from spillover.apps.http.token_files import TokenFiles
from spillover.apps.node.app import create_app
from spillover.apps.node.certificates import door_contexts, is_secure, proxy_context, watching
from spillover.apps.node.exposure import CertifiedPeers, PeersOnly, PublicOnly
from spillover.apps.node.file_limit import FileWatch, raise_file_limit
from spillover.apps.node.hot_paths import HotPaths
from spillover.apps.node.processes import OwnProcess, ServerInTurn
from spillover.live.handlers.make import upstreams_of
from spillover.live.http1.bounds import Bounds
from spillover.live.membership.store import ConfigurationStore
from spillover.live.overflow.ending import tell_drained, tell_lost, wait_for_requests
from spillover.live.overflow.shell import NodeShell
from spillover.live.overflow.tenants import Tenants
from spillover.live.process.allocator import keep_freed_memory
from spillover.live.process.listening import bind_socket, let_nobody_begin
from spillover.live.process.logs import Message
from spillover.live.process.stdin_end import on_stdin_end
from spillover.live.process.stopping import StopSignals
from spillover.model.topology import Topology

if TYPE_CHECKING:
    from spillover.apps.node.proxy_door import ProxyDoor
    from spillover.live.tls.rotation import Credentials

Servers: TypeAlias = "Sequence[HttpServer | ProxyDoor]"

LAST_WORDS_S = 0.1
"""The time, in seconds, for which messages at the end of a node are still answered: with 503, by
which a neighbor that has not heard of the end decides again. A connection that is just closed would
leave it in doubt."""

ACCEPTED_S = 0.01
"""The time, in seconds, before its doors close in which no client begins to connect, so that those
who have connected are accepted. Otherwise they would be reset, perhaps with a request sent. Clients
that come meanwhile are refused a second later, so that it is short where no balancer has gone
before."""

IDLE_LEAVING_S = 1.0
"""The least time, in seconds, for which a connection without a request is kept that a client is to
let go of: a client that sends a request just then is answered."""

BUSY_LOOK_S = 0.05

WHO_RUNS_S = 2.0
"""The longest time, in seconds, for which clients of a service that connect to a node as it starts
wait until it has reached the service, or heard a neighbor that takes work. Before that it could
only refuse them. Neighbors that start at the same time are heard within a second or so."""

WHO_RUNS_LOOK_S = 0.01

_BINDS = ("--bind", "--peer-bind", "--proxy-bind")

_log = logging.getLogger(__name__)


class Ends(NamedTuple):
    """The events that have a node end. Each is set for good."""

    stop: asyncio.Event
    """Set when the node shall drain and then end."""
    soon: asyncio.Event
    """Set when the node shall drain at once, without a lame duck: somebody waits for its end at a
    terminal."""
    end: asyncio.Event
    """Set when the node shall end without a drain."""


async def serve_node(
    topology: Topology,
    cluster_id: str,
    *,
    node: int = 1,
    process: OwnProcess | None = None,
    bind: tuple[str, int],
    peer_bind: tuple[str, int] | None = None,
    proxy_bind: tuple[str, int] | None = None,
    seed: int | None = None,
    source: str | None = None,
    drain_timeout_s: float = 30.0,
    results_timeout_s: float = 5.0,
    lame_duck_s: float = 0.0,
    testbed: bool = False,
    end_with_stdin: bool = False,
    allowed_origins: frozenset[str] = frozenset(),
    store: ConfigurationStore | None = None,
    config_from_peers: bool = True,
    credentials: Credentials | None = None,
    token_files: TokenFiles | None = None,
    make_shell: Callable[..., NodeShell] = NodeShell,
) -> None:
    """Serve one cluster until SIGTERM or SIGINT, then leave (`_leave` has the limits) and return.

    `node` is which one of several nodes of the cluster this is, `process` which one of several
    processes. A second signal ends it at once; so does, with `end_with_stdin`, the end of standard
    input. With `peer_bind` neighbors are served there alone, and with `proxy_bind` the clients of
    the service to which requests are passed. A `store` has to take a configuration first; unless
    `config_from_peers`, none is taken that others go by. `credentials` are for `https` doors, and
    `token_files` say who is let in. Raises InputError, as `make_shell` does.
    """
    with contextlib.ExitStack() as sockets:
        if process is None:
            bound = _bind(sockets, bind, peer_bind, proxy_bind)
        else:
            bound = process.bind(sockets)
        of_site = node if process is None else process.of_site
        told = {"node": of_site, "seed": seed, "source": source, "credentials": credentials}
        shell = make_shell(topology, cluster_id, **told)
        _say_who_starts(shell, [*bound[:2], bound[-1]], source, has_tokens=token_files is not None)
        from_peers = config_from_peers and process is None  # the others would not hear of it
        new = partial(create_app, shell, testbed=testbed, config_from_peers=from_peers)
        app = new(store=store, allowed_origins=allowed_origins, access=_watched(shell, token_files))
        app.cold.made()  # no thread of a handler runs yet
        if process is None:
            of_app = _servers(shell, app, credentials, apart=peer_bind is not None)
        else:
            of_app = _servers_of(process, shell, app, credentials)
        servers: Servers = [*of_app, *_doors(shell, app, credentials, proxy_bind, allowed_origins)]
        _watch(shell, servers, lame_duck_s)
        limits_s = drain_timeout_s, results_timeout_s, lame_duck_s
        if credentials is not None:
            sockets.enter_context(watching(credentials, shell, of_app))
        ends = _signals(
            limits_s, _rereads(credentials, token_files, store), end_with_stdin=end_with_stdin
        )
        if not await _is_ready(shell, ends):
            return
        running = asyncio.create_task(shell.run())
        serving = _serving(shell, servers, bound, ends)
        try:
            await _all_listen(servers, running, serving)
            if process is not None:
                process.tell_alive()
            own = bound if process is None else process.not_inherited(bound)
            leave = partial(_leave, shell, servers, own, ends, limits_s)
            await _until_over(shell, ends, leave, running, serving)
        finally:
            await close_node(shell, servers, running, serving)


async def _is_ready(shell: NodeShell, ends: Ends) -> bool:
    """Returns whether the node's servers can run requests; False if the node was to end before they
    could. Raises InputError if they cannot. Nobody is answered before: a server would be cold."""
    is_ready = False
    preparing = asyncio.create_task(shell.be_ready())
    try:
        await _first(preparing, ends.stop.wait(), ends.end.wait())
        is_ready = preparing.done()
    finally:
        if not is_ready:
            preparing.cancel()
            await shell.close()
    return is_ready


def _serving(
    shell: NodeShell, servers: Servers, bound: Sequence[socket.socket | None], ends: Ends
) -> asyncio.Future[Any]:
    each = zip(servers, filter(None, bound), strict=True)
    return asyncio.gather(*(_serve(shell, server, one, ends) for server, one in each))


async def _serve(
    shell: NodeShell, server: HttpServer | ProxyDoor, bound: socket.socket, ends: Ends
) -> None:
    """Serve a door. Clients of a service are let in once somebody is known to run their requests.
    They may connect before that; neighbors, who come through another door, cannot wait, since
    nobody would be heard then."""
    if not isinstance(server, HttpServer):
        until_s = shell.now_s + WHO_RUNS_S
        while shell.now_s < until_s and not (  # noqa: ASYNC110
            _knows_who_runs(shell) or ends.stop.is_set() or ends.end.is_set()
        ):
            await asyncio.sleep(WHO_RUNS_LOOK_S)
    await server.serve([bound])


def _knows_who_runs(shell: NodeShell) -> bool:
    """Returns whether the service was reached, or a neighbor takes work, or nobody else could."""
    upstreams = list(upstreams_of(shell.requests.workers))
    accepting = shell.machine.neighbors.accepting
    reached = any(one.up and one.was_reached for one in upstreams)
    return reached or any(accepting) or not (upstreams and accepting)


async def _all_listen(
    servers: Servers,
    running: asyncio.Task[None],
    serving: asyncio.Future[Any],
) -> None:
    for server in servers:
        await _first(server.ready.wait(), running, serving)
    _settle_memory()


async def _until_over(
    shell: NodeShell,
    ends: Ends,
    leaving: Callable[[], Awaitable[None]],
    running: asyncio.Task[None],
    serving: asyncio.Future[Any],
) -> None:
    """Return once the node is to end and has left, or is to end at once."""
    await _first(ends.stop.wait(), ends.end.wait(), running, serving)
    tell_drained(shell.machine)
    if not ends.end.is_set():
        await _first(leaving(), ends.end.wait(), running, serving)
        tell_lost(shell.requests.left, shell.requests.home.lose_results())


async def _leave(
    shell: NodeShell,
    servers: Servers,
    bound: Sequence[socket.socket | None],
    ends: Ends,
    limits_s: tuple[float, float, float],
) -> None:
    """Drain; then let nobody connect any more, and answer what has come in the meantime.

    Requests that came meanwhile went to neighbors: clients send more as long as they find somebody
    here. The limits are for requests under way, within that for results that nobody has fetched,
    and for the lame duck before, which SIGINT leaves out.
    """
    drain_s, results_s, lame_duck_s = limits_s
    lame_duck_s = 0.0 if ends.soon.is_set() else lame_duck_s
    rest_s = await shell.drain(drain_s, results_s, lame_duck_s)
    if shell.site is not None:
        shell.site.siblings.is_closed = True  # before its port refuses, as others go by that
    let_nobody_begin(filter(None, bound))
    await asyncio.sleep(LAST_WORDS_S if lame_duck_s > 0.0 else ACCEPTED_S)
    # A busy loop sees that this time is over before it looks for connections to accept.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for server in servers:
        server.stop_listening()
    until_s = shell.now_s + rest_s
    while shell.now_s < until_s and _asks_others(shell):  # noqa: ASYNC110
        await asyncio.sleep(BUSY_LOOK_S)
    rest_s = until_s - shell.now_s
    await wait_for_requests(shell.requests.home, shell.requests.foreign, rest_s)
    # A request beside the servers is no request of the node: only doors know of it.
    doors = [server for server in servers if not isinstance(server, HttpServer)]
    while shell.now_s < until_s and any(door.is_busy for door in doors):  # noqa: ASYNC110
        await asyncio.sleep(BUSY_LOOK_S)


def _asks_others(shell: NodeShell) -> bool:
    """Returns whether clients here wait for other nodes of the cluster."""
    return shell.site is not None and shell.site.asks_others


def _watch(shell: NodeShell, servers: Servers, lame_duck_s: float) -> None:
    """Has clients go elsewhere while the node drains, and watches the number of files."""

    def changed(is_leaving: bool) -> None:  # noqa: FBT001 - as it is told
        idle_s = max(IDLE_LEAVING_S, lame_duck_s) if is_leaving else None
        for server in servers:
            server.leave(idle_s)

    shell.leaving.lame_duck_s = lame_duck_s
    shell.leaving.on_change.append(changed)
    _watch_files(shell, servers)


def _bind(
    sockets: contextlib.ExitStack, *addresses: tuple[str, int] | None
) -> list[socket.socket | None]:
    """Returns a listening socket for each option that has an address."""
    return [
        None if at is None else sockets.enter_context(bind_socket(*at, option=option))
        for at, option in zip(addresses, _BINDS, strict=True)
    ]


def _servers(
    shell: NodeShell, app: HotPaths, credentials: Credentials | None, *, apart: bool
) -> list[HttpServer]:
    """Returns a server for each door: one for clients, or for all callers, and one for
    neighbors."""
    of_peers = CertifiedPeers(app, shell.neighborhood.peers) if shell.topology.is_secure else app
    apps: list[AsgiApp] = [PublicOnly(app), PeersOnly(of_peers)] if apart else [of_peers]
    tls = door_contexts(shell.topology, shell.cluster, credentials, apart=apart)
    bounds = _bounds(shell)
    return [HttpServer(app, bounds, tls=context) for app, context in zip(apps, tls, strict=True)]


def _servers_of(
    process: OwnProcess, shell: NodeShell, app: HotPaths, credentials: Credentials | None
) -> list[HttpServer]:
    """Returns a server for each door of a process of several: for clients, for neighbors if there
    are any, and for the other processes."""
    of_peers = CertifiedPeers(app, shell.neighborhood.peers) if shell.topology.is_secure else app
    of_clients, tls = door_contexts(shell.topology, shell.cluster, credentials, apart=True)
    bounds, neighbors = _bounds(shell), PeersOnly(of_peers, has_siblings=False)
    return [
        HttpServer(PublicOnly(app), bounds, tls=of_clients),
        *([] if process.peer_fd is None else [ServerInTurn(process, neighbors, bounds, tls=tls)]),
        HttpServer(PeersOnly(of_peers), bounds, tls=tls),
    ]


def _bounds(shell: NodeShell) -> Bounds:
    idle_ms = shell.cluster.client_idle_ms
    return Bounds() if idle_ms is None else Bounds(idle_s=idle_ms / 1e3)


def _doors(
    shell: NodeShell,
    app: HotPaths,
    credentials: Credentials | None,
    proxy_bind: tuple[str, int] | None,
    allowed_origins: frozenset[str],
) -> list[ProxyDoor]:
    """Returns the doors of the service to which requests are passed: one, if there is any."""
    if proxy_bind is None:
        return []
    from spillover.apps.node.proxy_door import ProxyDoor  # noqa: PLC0415 - few have such a door

    tls = proxy_context(shell.cluster, credentials)
    told = shell, _bounds(shell)
    return [ProxyDoor(*told, tls=tls, doors=app.doors, allowed_origins=allowed_origins)]


def _watched(shell: NodeShell, token_files: TokenFiles | None) -> Access | None:
    """Returns the access rules, by files that are read again until the node ends."""
    if token_files is None:
        return None
    token_files.on_change = Tenants(shell, token_files.tokens).go_by
    shell.on_close.append(partial(_cancel, token_files.begin_watching(shell.fail)))
    return token_files.access


def _settle_memory() -> None:
    """Has the garbage collector skip all that is there now, once the node listens: that stays."""
    _log.info(Message("node listens"))
    keep_freed_memory()
    gc.collect()
    gc.freeze()


async def close_node(
    shell: NodeShell,
    servers: Servers,
    running: asyncio.Task[None],
    serving: asyncio.Future[Any],
    last_words_s: float = LAST_WORDS_S,
) -> None:
    """End a node that runs: first nothing is asked any more, then nothing taken, then nothing
    answered. All doors stay open until the node takes nothing more, and for last words."""
    for server in servers:
        server.leave(last_words_s)
    running.cancel()
    await asyncio.wait([running])
    await shell.close()
    await asyncio.sleep(last_words_s)
    for server in servers:
        server.stop()
    await serving


async def _first(*waits: Awaitable[object]) -> None:
    """Waits until one is done, drops those that were made here, and raises the error of one that
    failed."""
    futures = [asyncio.ensure_future(wait) for wait in waits]
    done, _ = await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
    for wait, future in zip(waits, futures, strict=True):
        if future is not wait:
            future.cancel()
    for future in done:
        future.result()


def _rereads(
    credentials: Credentials | None,
    token_files: TokenFiles | None,
    store: ConfigurationStore | None,
) -> list[Callable[[], None]]:
    """Returns the calls that read files at once which are otherwise read now and then."""
    return [
        *([] if credentials is None else [credentials.wake]),
        *([] if token_files is None else [token_files.look_now]),
        *([] if store is None or store.address.file is None else [store.address.look_now]),
    ]


def _signals(
    limits_s: tuple[float, float, float],
    rereads: Sequence[Callable[[], None]],
    *,
    end_with_stdin: bool,
) -> Ends:
    """Heeds signals while it is entered. On SIGHUP files are read again."""
    ends = Ends(asyncio.Event(), asyncio.Event(), asyncio.Event())
    if end_with_stdin:
        on_stdin_end(ends.end)

    def on_first(number: int) -> None:
        if number == signal.SIGINT:
            ends.soon.set()
        ends.stop.set()

    drain_s, _, lame_duck_s = limits_s
    StopSignals(on_first, ends.end.set, lame_duck_s + drain_s).heed(rereads)
    return ends


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


def _say_who_starts(
    shell: NodeShell,
    sockets: Sequence[socket.socket | None],
    source: str | None,
    *,
    has_tokens: bool,
) -> None:
    """Writes the first lines of a node's log."""
    public, peer, proxied = sockets
    assert public is not None  # noqa: S101 - it has clients
    secure = is_secure(shell.topology, shell.cluster, apart=peer is not None)
    address = url_of(public, is_secure=secure[0])
    is_proxy_secure = (shell.cluster.proxy_url or "").startswith("https:")
    _log.info(
        Message(
            "node starts",
            cluster=shell.cluster.id,
            node=shell.number if shell.site is not None else None,
            address=address,
            peer_address=None if peer is None else url_of(peer, is_secure=secure[1]),
            proxy_address=None if proxied is None else url_of(proxied, is_secure=is_proxy_secure),
            federation=shell.topology.name,
            topology=source,
            version=__version__,
        )
    )
    for door, is_secret in ((public, secure[0]), (proxied, is_proxy_secure)):
        if door is not None:
            url = url_of(door, is_secure=is_secret)
            warn_of_clients("node", door, url, is_secure=is_secret, has_tokens=has_tokens)
    of_peers = public if peer is None else peer
    if shell.neighborhood.links and not (shell.topology.is_secure or is_loopback(of_peers)):
        words = "whoever reaches this node may pose as a neighbor: there are no certificates"
        _log.warning(Message(words, address=url_of(of_peers, is_secure=secure[-1])))


def _watch_files(shell: NodeShell, servers: Servers) -> None:
    allowed = raise_file_limit(shell.machine.settings)
    if allowed is None:
        return

    def connections() -> int:
        taken = sum(server.connection_count for server in servers)
        return taken + shell.machine.register.away + shell.machine.servers.jobs

    FileWatch(allowed, connections).begin(shell.timers, lambda: shell.now_s)
