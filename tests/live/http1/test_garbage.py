"""Connections of the HTTP client leave nothing behind that only a garbage collection would find: an
answer may be large, and collections of all generations are rare."""

import asyncio
import gc

import pytest

from spillover.live.http1.client import HttpClient
from spillover.model.errors import PeerError

pytestmark = pytest.mark.slow

LIMIT_BYTES = 1000
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
HALF = b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello"
LINES = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nline\n\r\n0\r\n\r\n"
SAYS = {
    "whole": (WHOLE, "stays"),
    "whole, closed": (WHOLE, "closes"),
    "close": (WHOLE.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n"), "stays"),
    "until the end": (b"HTTP/1.1 200 OK\r\n\r\nhello", "closes"),
    "no HTTP": (b"garbage\r\n\r\n", "stays"),
    "half": (HALF, "closes"),
    "half, and silent": (HALF, "stays"),
    "nothing": (b"", "closes"),
    "lines": (LINES, "stays"),
    "too long": (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 2 * LIMIT_BYTES, "stays"),
    "nobody there": (b"", "is not there"),
}


class Peer(asyncio.Protocol):
    """Says one thing to whatever it hears."""

    def __init__(self, says, then):
        self.says, self.then = says, then

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, _data):
        self.transport.write(self.says)
        if self.then == "closes":
            self.transport.close()


async def ask(client):
    await client.request("POST", "/", body=b"x", timeout_s=0.03)


async def listen(client):
    await client.stream_lines("/", lambda _: None, silence_s=0.03)


async def cancel(client):
    asked = client.request("POST", "/", body=b"x", timeout_s=1.0)
    await asyncio.wait([asked], timeout=0.02)
    asked.cancel()


async def ask_unheard(client):
    """The client is closed while the answer is waited for."""
    client.request("POST", "/", body=b"x", timeout_s=1.0)


async def use(does, says, then):
    """A client of such a server, twice at it, and closed."""
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(lambda: Peer(says, then), "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    if then == "is not there":
        listener.close()
    client = HttpClient(f"http://127.0.0.1:{port}", body_limit_bytes=LIMIT_BYTES)
    for _ in range(2):
        try:
            await does(client)
        except PeerError:
            continue
    await client.close()
    listener.close()


def ours(found):
    """What is of this client or holds what it has read. asyncio's own transports are cycles."""
    kinds = {type(thing).__module__.partition(".")[0] for thing in found}
    return kinds & {"spillover", "httptools"}


@pytest.mark.parametrize(
    ("does", "case"),
    [
        *((ask, case) for case in SAYS),
        *((listen, case) for case in ("half", "no HTTP", "lines", "too long", "nobody there")),
        *((does, case) for does in (cancel, ask_unheard) for case in ("half, and silent", "lines")),
    ],
)
async def test_nothing_is_left_for_the_collector(case, does):
    """However a request or a stream ends, and whatever the server does."""
    await use(does, *SAYS[case])
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        await use(does, *SAYS[case])
        gc.collect()
        assert not ours(gc.garbage), [t for t in gc.garbage if ours([t])]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
