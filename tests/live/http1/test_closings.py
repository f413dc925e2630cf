"""Connections that servers close without saying so, at any time after an answer, in any way: no
client sees an error for a request that the server was not shown, and none is shown twice unless
that does no harm. On sockets of the system, since their kernel tells what was read.
"""

import asyncio
import contextlib
import itertools
import socket
import struct
import threading
from collections import Counter

import pytest
import uvloop
from hypothesis import example, given
from hypothesis import strategies as st

from spillover.live.http1.blocking import BlockingClient
from spillover.live.http1.client import HttpClient
from spillover.live.http1.connection import UPLOAD_BYTES
from spillover.live.http1.kept_for import read_keep_alive_s
from spillover.live.http1.outgoing import Again, LostThenRefused, Response
from spillover.model.errors import NotDelivered, OutcomeUnknown, PeerError
from spillover.policy.reuse import Keeping
from support.waiting import until as wait

REQUESTS = 24
CLIENTS = 6
TIMEOUT_S = 10.0
RESET = struct.pack("ii", 1, 0)

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
PIECES = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"


class Closer:
    """A server of threads. `close(connection, count)` is called after each answer, with its number,
    and returns whether it has closed. `shown` counts by path what was read."""

    def __init__(self, close, says=OK):
        self.close, self.says = close, says
        self.shown = Counter()
        self.opened = 0
        self._count = itertools.count(1)
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join(TIMEOUT_S)

    def _accept(self):
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.opened += 1
            self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self._threads[-1].start()

    def _serve(self, connection):
        connection.settimeout(TIMEOUT_S)
        with connection, contextlib.suppress(OSError):
            heard = b""
            while True:
                while b"\r\n\r\n" not in heard:
                    read = connection.recv(65_536)
                    if not read:
                        return
                    heard += read
                head, _, heard = heard.partition(b"\r\n\r\n")
                self.shown[head.split(b" ")[1].decode()] += 1
                connection.sendall(self.says)
                if self.close(connection, next(self._count)):
                    return


def in_order(connection):
    connection.close()


def by_reset(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    connection.close()


def by_halves(connection):
    """As who lingers: what comes is taken, and nobody looks at it."""
    connection.shutdown(socket.SHUT_WR)
    connection.settimeout(0.3)
    with contextlib.suppress(OSError):
        while connection.recv(65_536):
            pass
    connection.close()


async def ask(client, server, method):
    """What all of the requests came to, by their paths."""
    came_to = {}
    paths = iter([f"/{n}" for n in range(REQUESTS)])

    async def work():
        for path in paths:
            try:
                response = await client.request(method, path, timeout_s=TIMEOUT_S)
            except PeerError as error:
                came_to[path] = error
            else:
                came_to[path] = response

    await asyncio.gather(*(work() for _ in range(CLIENTS)))
    return came_to


@pytest.mark.slow
@given(
    factory=st.sampled_from([asyncio.new_event_loop, uvloop.new_event_loop]),
    close=st.sampled_from([in_order, by_reset, by_halves]),
    after_s=st.sampled_from([0.0, 0.0, 0.0001, 0.001, 0.003, 0.01, 0.03]),
    each=st.integers(1, 8),
    says=st.sampled_from([OK, PIECES]),
    method=st.sampled_from(["GET", "POST"]),
)
@example(asyncio.new_event_loop, in_order, 0.0, 1, OK, "POST")
@example(uvloop.new_event_loop, in_order, 0.0001, 2, PIECES, "POST")
def test_no_request_is_lost_on_a_connection_that_was_kept(
    factory, close, after_s, each, says, method
):
    """By a server that closes after each so many answers, so long after them, without a word."""

    def closes(connection, count):
        if count % each:
            return False
        threading.Event().wait(after_s)  # it closes so much later
        close(connection)
        return True

    async def main():
        client = HttpClient(server.url, idle_s_max=1.0, keeping=Keeping(is_trusted=False))
        try:
            return await ask(client, server, method)
        finally:
            await client.close()

    with Closer(closes, says) as server, asyncio.Runner(loop_factory=factory) as runner:
        came_to = runner.run(main())
    failed = {path: str(one) for path, one in came_to.items() if not isinstance(one, Response)}
    assert failed == {}
    assert len(came_to) == len(server.shown) == REQUESTS
    assert method == "GET" or set(server.shown.values()) == {1}


# --- by the single connection ---------------------------------------------------------------------


@contextlib.asynccontextmanager
async def one_connection(**options):
    """A client with an idle connection that has carried an answer, the server's end of it, and what
    else is accepted there."""
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    loop = asyncio.get_running_loop()
    client = HttpClient(f"http://127.0.0.1:{listening.getsockname()[1]}", **options)
    try:
        asked = client.request("GET", "/first", timeout_s=TIMEOUT_S)
        end, _ = await loop.sock_accept(listening)
        await loop.sock_recv(end, 65_536)
        await loop.sock_sendall(end, OK)
        await asked
        assert client.idle == 1
        with end:
            yield client, end, listening
    finally:
        await client.close()
        listening.close()


async def serve_once(listening, answer=OK):
    """What the next connection asks."""
    loop = asyncio.get_running_loop()
    end, _ = await loop.sock_accept(listening)
    asked = await loop.sock_recv(end, 65_536)
    await loop.sock_sendall(end, answer)
    end.close()
    return asked


@pytest.mark.parametrize("close", [in_order, by_reset])
async def test_a_connection_that_is_closed_unseen_is_not_used(close):
    """The loop has not looked since: the system is asked."""
    async with one_connection() as (client, end, listening):
        close(end)
        asked = client.request("POST", "/next", timeout_s=TIMEOUT_S)
        assert (await serve_once(listening)).startswith(b"POST /next ")
        assert (await asked).status == 200


def cross(client, end, method="POST", **fields):
    """The request is written while the end of its connection is on its way."""
    for connection in client._kept.idle:
        connection._watch = None  # it was just before that it was looked at
    end.close()
    return client.request(method, "/next", timeout_s=TIMEOUT_S, **fields)


async def test_what_crosses_the_end_of_its_connection_is_sent_on_another_one():
    async with one_connection() as (client, end, listening):
        asked = cross(client, end)
        assert (await serve_once(listening)).startswith(b"POST /next ")
        assert (await asked).status == 200


async def test_who_keeps_no_copy_is_told_that_it_surely_was_not_read():
    async with one_connection(again=Again.NEVER) as (client, end, _):
        with pytest.raises(NotDelivered, match="closed the connection"):
            await cross(client, end, body=b"x" * 100_000)


@pytest.mark.parametrize(
    ("method", "keyed", "times"),
    [
        ("POST", False, 1),
        ("PATCH", False, 1),
        ("POST", True, 2),
        ("PUT", False, 3),
        ("GET", False, 3),
    ],
)
async def test_what_was_read_is_sent_again_only_where_that_does_no_harm(method, keyed, times):
    """And not for ever; what is idempotent bears a connection that was kept besides."""
    async with one_connection() as (client, end, listening):
        loop = asyncio.get_running_loop()
        asked = client.request(method, "/x", timeout_s=TIMEOUT_S, keyed=keyed)
        for n in range(times):
            heard = (await loop.sock_accept(listening))[0] if n else end
            assert (await loop.sock_recv(heard, 65_536)).startswith(method.encode())
            heard.close()
        with pytest.raises(OutcomeUnknown):
            await asked
        with pytest.raises(BlockingIOError):
            listening.accept()


async def test_what_may_have_been_read_and_then_cannot_be_sent_again_is_not_known():
    """Unless it changes nothing: then it may be done anywhere."""
    for method, expected in (("POST", LostThenRefused), ("GET", NotDelivered)):
        async with one_connection() as (client, end, listening):
            loop = asyncio.get_running_loop()
            asked = client.request(method, "/x", timeout_s=TIMEOUT_S, keyed=True)
            await loop.sock_recv(end, 65_536)
            listening.close()
            end.close()
            with pytest.raises(expected) as raised:
                await asked
            assert type(raised.value) is expected


async def test_a_connection_is_not_used_after_an_upload_that_was_refused():
    """Nobody knows how much of it was read."""
    refusal = OK.replace(b"200 OK", b"413 X")
    for size, idle in ((UPLOAD_BYTES // 2, 1), (UPLOAD_BYTES, 0)):
        async with one_connection() as (client, end, _):
            loop = asyncio.get_running_loop()
            asked = client.request("POST", "/x", body=b"x" * size, timeout_s=TIMEOUT_S)
            await loop.sock_recv(end, 65_536)
            await loop.sock_sendall(end, refusal)
            assert (await asked).status == 413
            assert client.idle == idle


@pytest.mark.parametrize("length", [b"", b"Content-Length: 4\r\n"])
def test_an_answer_that_comes_before_an_upload_breaks_off_is_read(length):
    """As of busybox, which ends such an answer with its connection: the loop finds that it cannot
    write before it reads."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            connection, _ = listening.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.0 501 No\r\n%b\r\nnone" % length)
                connection.shutdown(socket.SHUT_WR)

        async def main():
            client = HttpClient(f"http://127.0.0.1:{listening.getsockname()[1]}")
            asked = client.request("POST", "/", body=b"x" * 30_000_000, timeout_s=TIMEOUT_S)
            thread.start()
            await asyncio.to_thread(thread.join)  # all of it has come, and the end, by then
            answer = await asked
            await client.close()
            return answer.status, answer.body

        thread = threading.Thread(target=serve)
        for run in (asyncio.run, uvloop.run):
            assert run(main()) == (501, b"none")
            thread = threading.Thread(target=serve)


async def test_connections_end_by_their_age_and_by_how_often_they_were_used():
    with Closer(lambda *_: False) as server:
        for keeping in (Keeping(uses_max=4), Keeping(age_s_max=0.0)):
            before = server.opened
            client = HttpClient(server.url, keeping=keeping)
            for _ in range(20):
                await client.request("GET", "/", timeout_s=TIMEOUT_S)
            assert 3 < server.opened - before <= 20
            await client.close()


async def test_who_says_how_long_it_keeps_connections_is_believed():
    said = OK.replace(b"\r\n\r\n", b"\r\nKeep-Alive: timeout=1\r\n\r\n", 1)
    with Closer(lambda *_: False, said) as server:
        client = HttpClient(server.url)
        await client.request("GET", "/", timeout_s=TIMEOUT_S)
        for connection in client._kept.idle:
            connection.idle_since_s -= 0.6
        await client.request("GET", "/", timeout_s=TIMEOUT_S)
        assert server.opened == 2
        await client.close()


@pytest.mark.parametrize(
    ("value", "kept_s"),
    [
        (b"timeout=5, max=100", 5.0),
        (b"Timeout = 5", 5.0),
        (b"max=0, timeout=5", 0.0),
        (b"timeout=0", 0.0),
        (b"max=7", None),
        (b"timeout=x, timeout=-1, timeout=9999999999", None),
        (b"", None),
    ],
)
def test_how_long_is_read_from_the_field(value, kept_s):
    assert read_keep_alive_s(value) == kept_s


def test_a_thread_that_waits_is_told_the_same():
    """Of a request that crossed the end of its connection."""
    closing = threading.Event()

    def closes(connection, _):
        closing.wait(TIMEOUT_S)
        connection.close()
        return True

    with Closer(closes) as server:
        client = BlockingClient(
            server.url,
            (),
            connect_timeout_s=TIMEOUT_S,
            idle_s_max=TIMEOUT_S,
            body_limit_bytes=1000,
            user_timeout_s=TIMEOUT_S,
        )

        def carry():
            ends = []
            exchange = client.begin("POST", "/x", ends.append)
            client.carry(exchange, "/x", (), b"", TIMEOUT_S)
            return ends[0]

        assert carry().status == 200
        (line,) = client._lines.values()
        closing.set()
        wait(lambda: not line.is_quiet())
        line.is_quiet = lambda: True  # it was just before that it was looked at
        assert isinstance(carry(), NotDelivered)
        assert sum(server.shown.values()) == 1
