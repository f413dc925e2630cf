"""Streams of lines over real sockets, and the client against a real uvicorn."""

import asyncio
import contextlib

import pytest

from spillover.live.http1.client import HttpClient
from spillover.model.errors import OutcomeUnknown, PeerError
from support.loop import turn

LIMIT_S = 20.0
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
TO_THE_END = b"HTTP/1.1 200 OK\r\n\r\n"


@contextlib.asynccontextmanager
async def streaming(*pieces, stays_open=False, drips=b""):
    """A client of a server that sends these pieces one after the other, each to be read before the
    next, then ends, or waits, and sends `drips` a hundred times a second."""
    gone = asyncio.Event()

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        for number, piece in enumerate(pieces):
            if number:
                await turn()
            writer.write(piece)
            await writer.drain()
        while stays_open and not gone.is_set():
            try:
                await asyncio.wait_for(reader.read(), 0.01 if drips else None)
                gone.set()
            except ConnectionError:
                gone.set()
            except TimeoutError:
                writer.write(drips)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    client = HttpClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    try:
        yield client, gone
    finally:
        await client.close()
        server.close()
        await server.wait_closed()


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


ENDS = {
    "broken": ([CHUNKED + chunk(b"a\n")], OutcomeUnknown, "closed the connection"),
    "malformed": ([CHUNKED + chunk(b"a\n") + b"zz\r\n"], OutcomeUnknown, "not valid HTTP"),
    "within a line": ([TO_THE_END + b"a\nb"], PeerError, "ended within a line"),
    "endless line": ([TO_THE_END + b"a\n" + b"x" * 99], PeerError, "exceeds 10 bytes"),
    "status": ([b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\na\n"], PeerError, "got 404"),
}


@pytest.mark.parametrize(("pieces", "kind", "what"), ENDS.values(), ids=ENDS)
async def test_a_stream_that_goes_wrong_raises(pieces, kind, what):
    """Lines before the fault still come, unless with it; then a PeerError names the URL and the
    fault."""
    lines = []
    async with streaming(*pieces) as (client, _):
        with pytest.raises(kind, match=what) as caught:
            await client.stream_lines("/s", lines.append, line_limit_bytes=10, silence_s=None)
        assert "GET http://127.0.0.1:" in str(caught.value)
        assert (client.idle, client.busy) == (0, 0)
    assert lines == ([] if "404" in what or "not valid" in what else [b"a"])


@pytest.mark.parametrize(
    ("pieces", "drips"), [([], b""), ([CHUNKED], b""), ([CHUNKED + chunk(b"a\n")], chunk(b"x"))]
)
async def test_silence_ends_a_stream(pieces, drips):
    """A server that sends no line for the time given is taken for dead, and let go: bytes that
    never become one say nothing."""
    async with streaming(*pieces, stays_open=True, drips=drips) as (
        client,
        gone,
    ):
        with pytest.raises(PeerError, match=r"no line arrived for 0\.05 s"):
            await client.stream_lines("/s", lambda _line: None, silence_s=0.05)
        await gone.wait()


async def test_what_the_reader_raises_comes_out():
    """An error of the caller's own ends the stream and is not mistaken for one of the peer."""

    def refuse(line):
        raise KeyError(line)

    async with streaming(CHUNKED + chunk(b"a\nb\n"), stays_open=True) as (client, gone):
        with pytest.raises(KeyError, match="a"):
            await client.stream_lines("/s", refuse, silence_s=LIMIT_S)
        await gone.wait()


async def test_cancelling_a_stream_closes_it():
    """A cancelled stream leaves no connection behind."""
    async with streaming(CHUNKED + chunk(b"a\n"), stays_open=True) as (client, gone):
        first = asyncio.Event()
        stream = asyncio.create_task(
            client.stream_lines("/s", lambda _line: first.set(), silence_s=LIMIT_S)
        )
        await first.wait()
        stream.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stream
        await gone.wait()
        assert (client.idle, client.busy) == (0, 0)
