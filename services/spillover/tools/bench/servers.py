"""Peers as processes on loopback, each on a port that it was given free, and none left behind."""

from __future__ import annotations

import asyncio
import gc
import shutil
import socket
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeAlias

import httpx
import uvloop

from spillover.apps.http.server import HttpServer
from spillover.live.process.listening import bind_socket
from spillover.model.errors import RunError
from spillover.tools.processes.child import Child

HOST = "127.0.0.1"
READY_WITHIN_S = 30.0
KEEP_ALIVE_S = 120
"""As long as the node's server: no connection ends in a pause between two measurements."""
READY_POLL_S = 0.02

# Told its process id, the shell ends HAProxy when its own input ends: so it never outlives us.
_GUARD = '"$@" & echo $!; cat >/dev/null; kill $!; wait'

_HAPROXY = """\
global
    nbthread 1
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    http-reuse always
frontend public
    bind "fd@{descriptor}"
    default_backend upstream
backend upstream
    server upstream {address}
"""


@dataclass(frozen=True, slots=True)
class Server:
    """A running peer."""

    url: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bare:
    """A bare ASGI app on the node's own server, see `peers.BareApp`."""

    answer: bytes
    sleep_s: float = 0.0
    holds: bool = False
    reads_json: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Relay:
    """A bare aiohttp relay, see `peers.serve_relay`."""

    upstream: str


Peer: TypeAlias = Bare | Relay


@asynccontextmanager
async def running(peer: Peer) -> AsyncIterator[Server]:
    """Starts the peer in a process of its own. Raises RunError if it does not start."""
    with Child(f"the peer {type(peer).__name__}", _serve, peer) as child:
        port = await child.receive(READY_WITHIN_S)
        yield Server(f"http://{HOST}:{port}", child.pid)


def haproxy_installed() -> bool:
    """Returns whether there is one on the PATH."""
    return shutil.which("haproxy") is not None


@asynccontextmanager
async def haproxy(upstream: str) -> AsyncIterator[Server]:
    """Starts HAProxy as a relay on one thread. Raises RunError if it does not start."""
    with bind_socket(HOST, 0) as listening, tempfile.TemporaryDirectory() as directory:
        url = f"http://{HOST}:{listening.getsockname()[1]}"
        file = Path(directory) / "haproxy.cfg"
        address = upstream.removeprefix("http://")
        text = _HAPROXY.format(descriptor=listening.fileno(), address=address)
        file.write_text(text, encoding="utf-8")
        guard = await asyncio.create_subprocess_exec(
            *("sh", "-c", _GUARD, "sh", "haproxy", "-db", "-q", "-f", str(file)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            pass_fds=[listening.fileno()],
            start_new_session=True,
        )
        try:
            yield await _ready_haproxy(guard, listening, url)
        finally:
            if guard.stdin is not None:
                guard.stdin.close()
            await guard.wait()


async def _ready_haproxy(
    guard: asyncio.subprocess.Process, listening: socket.socket, url: str
) -> Server:
    if guard.stdout is None:
        raise RunError("HAProxy has no output")
    pid = int(await guard.stdout.readline())
    listening.close()  # it has its own by now: else the port would seem open when it is not
    limit_s = time.monotonic() + READY_WITHIN_S
    async with httpx.AsyncClient(trust_env=False) as client:
        while True:
            if await _answers(client, url):
                return Server(url, pid)
            if guard.returncode is not None or time.monotonic() > limit_s:
                raise RunError("HAProxy did not start")
            await asyncio.sleep(READY_POLL_S)


async def _answers(client: httpx.AsyncClient, url: str) -> bool:
    try:
        return (await client.get(url)).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def _serve(peer: Peer, ready: Connection) -> None:
    """What the process does, until the benchmark ends it."""
    with (
        bind_socket(HOST, 0) as listening,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(_serve_on(peer, listening, ready))


async def _serve_on(peer: Peer, listening: socket.socket, ready: Connection) -> None:
    # Only here: the benchmark itself does without aiohttp's weight.
    from spillover.tools.bench.peers import BareApp, serve_relay  # noqa: PLC0415

    def tell_ready() -> None:
        gc.collect()
        gc.freeze()  # as the node does
        ready.send(listening.getsockname()[1])

    match peer:
        case Relay(upstream=upstream):
            await serve_relay(upstream, listening, tell_ready)
        case Bare():
            app = BareApp(
                peer.answer,
                sleep_s=peer.sleep_s,
                holds=peer.holds,
                reads_json=peer.reads_json,
            )
            server = HttpServer(app)
            # uvicorn's own protocol, which has no bounds, and without what it adds by itself.
            config = server.config
            config.http = "httptools"
            config.proxy_headers = config.server_header = config.date_header = False
            config.timeout_keep_alive = KEEP_ALIVE_S
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            await server.ready.wait()
            tell_ready()
            await serving
