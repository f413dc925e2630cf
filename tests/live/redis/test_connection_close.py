"""Closing connections to a server that hangs: over TLS it is to take leave, and never does."""

import asyncio
import socket
import ssl
import threading
from contextlib import closing, suppress
from functools import partial
from importlib.util import find_spec
from random import Random

import pytest
import uvloop

pytest.importorskip("cryptography")

from spillover.live.leases.hints import Hints
from spillover.live.leases.streams.client import AsyncClient
from spillover.live.leases.streams.steps import Run
from spillover.live.redis.connection import RedisLink, Script
from spillover.model.errors import StoreRefused, StoreUnreachable
from support.certificates import Authority, put
from support.few import all_in_soak
from support.loop import turn

pytestmark = pytest.mark.slow

TIMEOUT_S = 0.5
LIMIT_S = 20.0
SCRIPT = Script.of("return 1")
loops = pytest.mark.parametrize(
    "loop", all_in_soak([uvloop.new_event_loop, asyncio.new_event_loop], 1)
)


@pytest.fixture(scope="module")
def certificate(require, tmp_path_factory):
    require(find_spec("redis"), "the extra `leases`")
    authority = Authority()
    files = put(tmp_path_factory.mktemp("tls"), "redis", authority.sign("localhost"), authority)
    return files.cert, files.key


class Hanging:
    """A server that says `answer` to what it is asked first on each connection, and then no more:
    it reads nothing and closes nothing before `close`."""

    def __init__(self, files, answer):
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*files)
        self._answer = answer
        self._listening = socket.create_server(("127.0.0.1", 0))
        port = self._listening.getsockname()[1]
        self.url = f"rediss://localhost:{port}/0?ssl_cert_reqs=none"
        self._connections = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self):
        with suppress(OSError):
            while True:
                raw, _ = self._listening.accept()
                raw.settimeout(LIMIT_S)
                connection = self._context.wrap_socket(raw, server_side=True)
                self._connections.append(connection)
                self._converse(connection)

    def _converse(self, connection):
        """The library introduces itself first, with CLIENT."""
        while True:
            asked = connection.recv(65_536)
            introduced = asked.count(b"CLIENT\r\n")
            connection.sendall(b"+OK\r\n" * introduced)
            if not asked or asked.count(b"*") > introduced:
                connection.sendall(self._answer)
                return

    def close(self):
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(LIMIT_S)
        for connection in self._connections:
            with closing(connection), suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65_536):
                    pass


def runs(loop, server, main):
    """In the end the server lets go, so that nothing of the connection is left in the loop."""

    async def limited():
        async with asyncio.timeout(LIMIT_S):
            try:
                await main()
            finally:
                await asyncio.to_thread(server.close)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(limited())


READ_ONLY = b"-READONLY You can't write against a read only replica.\r\n"


@loops
def test_a_link_is_closed_without_an_answer(certificate, loop):
    """That is no failure of whoever ends; and what a replica said is told, not that it hangs."""

    async def main(is_refused):
        link = RedisLink(server.url, TIMEOUT_S)
        if is_refused:
            with pytest.raises(StoreRefused, match="is read-only"):
                await link.call("SET", "k", "v")
        else:
            assert await link.call("PING")
        await link.close()

    for answer in (b"+PONG\r\n", READ_ONLY):
        server = Hanging(certificate, answer)
        runs(loop, server, partial(main, answer is READ_ONLY))


@loops
def test_clients_of_streams(certificate, loop):
    def ask():
        return (yield Run(SCRIPT, (), ()))

    async def main(expected):
        client = AsyncClient(server.url, TIMEOUT_S)
        if expected is None:
            with pytest.raises(StoreRefused, match="is read-only"):
                await client.carry_out(ask())
        else:
            assert await client.carry_out(ask()) == expected
        await client.close()

    for answer, expected in ((b":1\r\n", 1), (READ_ONLY, None)):
        server = Hanging(certificate, answer)
        runs(loop, server, lambda expected=expected: main(expected))


@loops
def test_hints_say_why_they_ended(certificate, loop):
    """Not that the close was not answered."""
    lost = []

    async def main():
        heard = asyncio.Event()

        def on_lost(error):
            lost.append(error)
            heard.set()

        def ignore(*_):
            return

        hints = Hints(
            server.url, "g", on_challenge=ignore, on_allocated=ignore, on_resync=ignore,
            on_lost=on_lost, random=Random(1), ping_period_s=TIMEOUT_S,
        )  # fmt: skip
        task = asyncio.create_task(hints.run())
        await heard.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    server = Hanging(certificate, b"-NOPERM no channels for you\r\n")
    runs(loop, server, main)
    assert isinstance(lost[0], StoreRefused)


@loops
def test_calls_under_way_while_a_link_is_closed(require, redis_server, loop):
    """They are answered, or told that nobody can be reached, at whatever moment of connecting or
    asking it was."""
    require(find_spec("redis"), "the extra `leases`")

    async def main():
        for moment in range(60):
            link = RedisLink(redis_server.url, TIMEOUT_S)
            calls = [asyncio.ensure_future(link.call("PING")) for _ in range(4)]
            for _ in range(moment // 2):
                await turn(0)
            await link.close()
            for told in await asyncio.gather(*calls, return_exceptions=True):
                assert told in {True, "PONG"} or isinstance(told, StoreUnreachable), repr(told)
            await link.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())
