"""Peers as processes on loopback, each on a port that it was given free, and none left behind: a
bare app on our own server, a relay such as one writes with aiohttp, and doors of emulated services.

Each does the least that the comparison needs. Nothing is bounded or checked: who asks is ours.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import httptools
import msgspec

from spillover.live.process.listening import bind_socket
from spillover_lab.processes.child import Child

if TYPE_CHECKING:
    from spillover.apps.http.server import HttpServer
    from spillover.testbed.redis import RedisPlace
    from spillover_lab.bench.session import Session

HOST = "127.0.0.1"
READY_WITHIN_S = 30.0
KEEP_ALIVE_S = 120
"""Idle connections are kept this long: none ends in a pause between two measurements."""
READY_POLL_S = 0.02
RELAYED_BYTES_MAX = 64 * 1024 * 1024

Message: TypeAlias = MutableMapping[str, Any]
JSON_HEADER = (b"content-type", b"application/json")
OK = b"200 OK"

_HEAD = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"


@dataclass(frozen=True, slots=True)
class Server:
    """A running peer."""

    url: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bare:
    """A bare ASGI app on the node's own server, see `BareApp`."""

    answer: bytes
    sleep_s: float = 0.0
    holds: bool = False
    reads_json: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Relay:
    """A bare aiohttp relay of every POST to `upstream`, on connections that are kept."""

    upstream: str


Peer: TypeAlias = Bare | Relay


@asynccontextmanager
async def running(peer: Peer) -> AsyncIterator[Server]:
    """Starts the peer in a process of its own. Raises RunError if it does not start."""
    serve = _serve_bare if isinstance(peer, Bare) else _serve_relay
    with Child(f"the peer {type(peer).__name__}", serve, peer) as child:
        port = await child.receive(READY_WITHIN_S)
        yield Server(f"http://{HOST}:{port}", child.pid)


@contextmanager
def own_redis(session: Session) -> Iterator[RedisPlace]:
    """Starts a Redis that keeps nothing on disk and ends with the block, or with the benchmark.
    Raises InputError if there is no redis-server, RunError if it does not start."""
    from spillover.testbed.redis import redis_at  # noqa: PLC0415 - of an extra
    from spillover.testbed.watchdog import Watchdog  # noqa: PLC0415

    with Watchdog() as watchdog, redis_at(None, watchdog) as place:
        session.note(f"redis-server {place.version}, on loopback, nothing kept on disk")
        yield place


# --- a bare app, and a relay ----------------------------------------------------------------------


async def _serve_bare(peer: Bare, ready: Connection) -> None:
    with bind_socket(HOST, 0) as listening:
        server = bare_server(peer)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        await server.ready.wait()
        _tell_ready(listening, ready)
        await serving


async def _serve_relay(peer: Relay, ready: Connection) -> None:
    # Only here and in `bare_server`: all other processes do without their weight.
    import aiohttp  # noqa: PLC0415
    from aiohttp import web  # noqa: PLC0415

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:

        async def relay(request: web.Request) -> web.Response:
            body, headers = await request.read(), {"content-type": request.content_type}
            asked = session.post(peer.upstream + request.path, data=body, headers=headers)
            async with asked as answer:
                content, status, type_ = await answer.read(), answer.status, answer.content_type
            return web.Response(body=content, status=status, content_type=type_)

        app = web.Application(client_max_size=RELAYED_BYTES_MAX)
        app.router.add_post("/{path:.*}", relay)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        with bind_socket(HOST, 0) as listening:
            await web.SockSite(runner, listening).start()
            _tell_ready(listening, ready)
            await asyncio.get_running_loop().create_future()


def _tell_ready(listening: Any, ready: Connection) -> None:
    gc.collect()
    gc.freeze()  # as the node does
    ready.send(listening.getsockname()[1])


def bare_server(peer: Bare) -> HttpServer:
    """Returns the server of a bare app, with nothing between the two. To be made in the loop
    that serves."""
    from spillover.apps.http.server import HttpServer  # noqa: PLC0415

    server = HttpServer(BareApp(peer))
    # uvicorn's own protocol, which has no bounds, and without what it adds by itself.
    config = server.config
    config.http = "httptools"
    config.proxy_headers = config.server_header = config.date_header = False
    config.timeout_keep_alive = KEEP_ALIVE_S
    return server


class Envelope(msgspec.Struct):
    """A body has to be JSON throughout, whatever is in its payload."""

    payload: msgspec.Raw


_decode = msgspec.json.Decoder(Envelope).decode


class BareApp:
    """Answers every POST with the same bytes: at once, after a sleep, or never. Looks at what it
    got only if the peer `reads_json`.

    GET tells how many requests are held, for whoever waits for them all to have come.
    """

    def __init__(self, peer: Bare) -> None:
        self._sleep_s, self._holds, self._reads_json = peer.sleep_s, peer.holds, peer.reads_json
        self._start = _start(peer.answer)
        self._body: Message = {"type": "http.response.body", "body": peer.answer}
        self._held = 0

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        if scope["method"] == "GET":
            held = b'{"queue_length":%d}' % self._held
            await send(_start(held))
            await send({"type": "http.response.body", "body": held})
            return
        parts = []
        more = True
        while more:
            message = await receive()
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        body = b"".join(parts)
        if self._reads_json:
            _decode(body)
        if self._sleep_s:
            await asyncio.sleep(self._sleep_s)
        if self._holds:
            self._held += 1
            await asyncio.get_running_loop().create_future()
        await send(self._start)
        await send(self._body)


def _start(answer: bytes) -> Message:
    headers = [JSON_HEADER, (b"content-length", b"%d" % len(answer))]
    return {"type": "http.response.start", "status": 200, "headers": headers}


# --- doors of emulated services -------------------------------------------------------------------


async def listen(take: Take, stack: ExitStack) -> int:
    """Returns the port on which a door listens from now on, until the stack ends."""
    listening = stack.enter_context(bind_socket(HOST, 0))
    await asyncio.get_running_loop().create_server(partial(Door, take), sock=listening)
    return int(listening.getsockname()[1])


class Door(asyncio.Protocol):
    """One connection, as cheap as can be, on httptools: a request, its answer, and then perhaps the
    next. `take` gets each POST with its body, and answers it here, sooner or later."""

    def __init__(self, take: Take) -> None:
        self._take = take
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.WriteTransport | None = None
        self._body = b""
        self.headers: dict[bytes, bytes] = {}
        """The headers of the request, by lower-case name."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self.headers, self._body = {}, b""

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        if self._parser.get_method() == b"GET":  # whoever wants to know whether there is a way
            self.answer(OK, b"{}")
        else:
            self._take(self, self._body)

    def answer(self, status: bytes, body: bytes) -> None:
        """Unless the other side has gone meanwhile."""
        if self._transport is not None:
            self._transport.write(_HEAD % (status, len(body), body))


Take: TypeAlias = Callable[[Door, bytes], None]
