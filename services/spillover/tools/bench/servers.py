"""Peers as processes on loopback, each on a port that it was given free, and none left behind."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, TypeAlias

import uvloop

from spillover.live.process.listening import bind_socket
from spillover.tools.processes.child import Child

if TYPE_CHECKING:
    from spillover.apps.http.server import HttpServer

HOST = "127.0.0.1"
READY_WITHIN_S = 30.0
KEEP_ALIVE_S = 120
"""As long as the node's server: no connection ends in a pause between two measurements."""
READY_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Server:
    """A running peer."""

    url: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bare:
    """A bare ASGI app on the node's own server, see `bare.BareApp`."""

    answer: bytes
    sleep_s: float = 0.0
    holds: bool = False
    reads_json: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Relay:
    """A bare aiohttp relay, see `bare.serve_relay`."""

    upstream: str


Peer: TypeAlias = Bare | Relay


@asynccontextmanager
async def running(peer: Peer) -> AsyncIterator[Server]:
    """Starts the peer in a process of its own. Raises RunError if it does not start."""
    with Child(f"the peer {type(peer).__name__}", _serve, peer) as child:
        port = await child.receive(READY_WITHIN_S)
        yield Server(f"http://{HOST}:{port}", child.pid)


def _serve(peer: Peer, ready: Connection) -> None:
    """What the process does, until the benchmark ends it."""
    with (
        bind_socket(HOST, 0) as listening,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(_serve_on(peer, listening, ready))


async def _serve_on(peer: Peer, listening: socket.socket, ready: Connection) -> None:
    # Only here and in `bare_server`: all other processes do without their weight.
    from spillover.tools.bench.bare import serve_relay  # noqa: PLC0415

    def tell_ready() -> None:
        gc.collect()
        gc.freeze()  # as the node does
        ready.send(listening.getsockname()[1])

    match peer:
        case Relay(upstream=upstream):
            await serve_relay(upstream, listening, tell_ready)
        case Bare():
            server = bare_server(peer)
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            await server.ready.wait()
            tell_ready()
            await serving


def bare_server(peer: Bare) -> HttpServer:
    """Returns the server of a bare app, with nothing between the two. To be made in the loop
    that serves."""
    from spillover.apps.http.server import HttpServer  # noqa: PLC0415
    from spillover.tools.bench.bare import BareApp  # noqa: PLC0415

    app = BareApp(peer.answer, sleep_s=peer.sleep_s, holds=peer.holds, reads_json=peer.reads_json)
    server = HttpServer(app)
    # uvicorn's own protocol, which has no bounds, and without what it adds by itself.
    config = server.config
    config.http = "httptools"
    config.proxy_headers = config.server_header = config.date_header = False
    config.timeout_keep_alive = KEEP_ALIVE_S
    return server
