"""Answers of a service behind `https` that closes right behind them, while nobody reads: all that
it has sent comes, and what may have been cut off is never whole."""

import asyncio
import ssl
from contextlib import suppress
from functools import partial

import pytest
import uvloop

pytest.importorskip("cryptography")

from spillover.live.engine.write_batch import WriteBatch
from spillover.live.handlers.proxy.exchange import PassedExchange
from spillover.live.http1.client import HttpClient
from spillover.live.http1.connection import Connection
from spillover.live.http1.known_heads import KnownHeads
from spillover.live.http1.outgoing import Response
from spillover.live.tls.contexts import trusting_context
from support.certificates import Authority, put

LIMIT = 1_000_000
SIZES = (60_000, 100_000, 600_000)
PAUSE_S = 0.02
RECORD_BYTES = 16_384


class Tls:
    """The end of a connection that says no more than it is told to: loops would wait for the other
    end to agree before they close."""

    def __init__(self, context, reader, writer):
        self.coming, self.going = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.object = context.wrap_bio(self.coming, self.going, server_side=True)
        self.reader, self.writer = reader, writer

    async def step(self, act):
        while True:
            try:
                return act()
            except ssl.SSLWantReadError:
                await self.flush()
                data = await self.reader.read(65_536)
                if not data:
                    raise EOFError from None
                self.coming.write(data)

    async def flush(self):
        self.writer.write(self.going.read())
        await self.writer.drain()

    async def say(self, data):
        for start in range(0, len(data), RECORD_BYTES):
            self.object.write(data[start : start + RECORD_BYTES])
            await self.flush()

    async def say_end(self):
        """That nothing follows, and not wait for an answer."""
        with suppress(ssl.SSLWantReadError):
            self.object.unwrap()
        await self.flush()


@pytest.fixture
def contexts(tmp_path):
    authority = Authority()
    files = put(tmp_path, "service", authority.sign("localhost"), authority)
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(files.cert, files.key)
    return served, trusting_context(files.ca)


async def got(client, *, pauses_each):
    """The bytes of one answer that is paused at its head, or at each piece, and how it ended."""
    loop = asyncio.get_running_loop()
    done, pieces = loop.create_future(), []

    def pause():
        exchange.pause()
        loop.call_later(PAUSE_S, exchange.resume)

    def on_piece(data):
        pieces.append(data)
        if pauses_each:
            pause()

    exchange = PassedExchange(
        "GET", "u", done.set_result, LIMIT, on_begin=lambda _: pause(), on_piece=on_piece
    )
    client.dispatch(exchange, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", ())
    async with asyncio.timeout(10.0):
        came_to = await done
    return b"".join(pieces), isinstance(came_to, Response)


@pytest.mark.parametrize("pauses_each", [False, True])
@pytest.mark.parametrize(
    ("tells_length", "says_end"), [(True, True), (True, False), (False, True), (False, False)]
)
def test_all_that_was_sent_comes(contexts, tells_length, says_end, pauses_each):
    served, believed = contexts

    async def main():
        size = 0

        async def serve(reader, writer):
            tls = Tls(served, reader, writer)
            await tls.step(tls.object.do_handshake)
            await tls.step(lambda: tls.object.read(65_536))
            length = b"Content-Length: %d\r\n" % size if tells_length else b""
            head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n%b\r\n" % length
            await tls.say(head + b"x" * size)
            if says_end:
                await tls.say_end()
            writer.write_eof()
            while await reader.read(65_536):
                pass
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            url = f"https://localhost:{port}"
            writes = WriteBatch(asyncio.get_running_loop())
            connection = partial(Connection, writes=writes, heads=KnownHeads(), reads_small=True)
            client = HttpClient(url, tls=believed, make_connection=connection)
            for size in SIZES:
                body, is_whole = await got(client, pauses_each=pauses_each)
                assert len(body) == size
                assert is_whole == (tells_length or says_end), size
            await client.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
