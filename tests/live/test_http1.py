"""The HTTP/1.1 client against servers on loopback, most of which misbehave on purpose."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time

import hypothesis
import pytest
import uvicorn
import uvloop
from hypothesis import strategies as st

from spillover.live.http1 import HttpClient, Response
from spillover.model.errors import InputError, NotDelivered, OutcomeUnknown, PeerError

LIMIT_S = 20.0
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request):
    """Runs a coroutine to its end on either event loop, under a time limit."""

    def run_to_end(main):
        factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(asyncio.wait_for(main, LIMIT_S))

    return run_to_end


async def turn():
    """Let the loop see to everything else, sockets too."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    loop.call_later(0.001, future.set_result, None)
    await future


async def until(condition):
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await turn()


class Peer(asyncio.Protocol):
    """The server's end of a connection; the script acts on each whole request."""

    def __init__(self, server):
        self.server = server
        self.received = b""
        self.requests = []
        self.open = False

    def connection_made(self, transport):
        self.transport = transport
        self.open = True
        self.server.peers.append(self)

    def connection_lost(self, exc):
        self.open = False

    def data_received(self, data):
        self.received += data
        while b"\r\n\r\n" in self.received:
            head, rest = self.received.split(b"\r\n\r\n", 1)
            fields = dict(line.split(b": ", 1) for line in head.lower().split(b"\r\n")[1:])
            length = int(fields.get(b"content-length", 0))
            if self.server.whole_bodies and len(rest) < length:
                return
            self.requests.append(head + b"\r\n\r\n" + rest[:length])
            self.received = rest[length:]
            self.server.script(self)

    def send(self, *pieces):
        for piece in pieces:
            self.transport.write(piece)

    def send_and_close(self, piece):
        self.transport.write(piece)
        self.transport.close()

    def reset(self):
        linger = b"\x01\0\0\0\0\0\0\0"
        self.transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, linger
        )
        self.transport.abort()


class Server:
    """A listener on loopback that plays a script."""

    def __init__(self, script):
        self.script = script
        self.whole_bodies = True
        self.peers = []

    @property
    def open(self):
        return sum(peer.open for peer in self.peers)


@contextlib.asynccontextmanager
async def serving(script, host="127.0.0.1", **options):
    """A scripted server, and a client of it that is closed at the end."""
    server = Server(script)
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(lambda: Peer(server), host, 0, backlog=2048)
    port = listener.sockets[0].getsockname()[1]
    server.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    client = HttpClient(server.url, **options)
    try:
        yield server, client
    finally:
        await client.close()
        assert (client.idle, client.busy) == (0, 0)
        listener.close()
        await until(lambda: not server.open)


@contextlib.contextmanager
def full_backlog():
    """The URL of a listener that lets nobody in any more: connecting to it never ends."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            caller = stack.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def unused_url():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def get(client, path="/", timeout_s=LIMIT_S):
    return client.request("GET", path, timeout_s=timeout_s)


def test_a_request_arrives_as_written(run):
    """Method, prefix, path, headers and body arrive; the answer carries status, headers, times."""

    async def main():
        answer = b"HTTP/1.1 429 No\r\nX-One: 1\r\nx-one: 2\r\nEmpty:\r\nContent-Length: 3\r\n\r\nfue"
        async with serving(lambda peer: peer.send(answer)) as (server, _):
            client = HttpClient(server.url + "/base/")
            before_s = time.monotonic()
            headers = [(b"Idempotency-Key", b"k: 1")]
            got = await client.request("POST", "/a?b=c", headers=headers, body=b"{}", timeout_s=9)
            host = server.url.removeprefix("http://").encode()
            assert server.peers[0].requests == [
                b"post /base/a?b=c http/1.1\r\nhost: %b\r\ncontent-length: 2\r\n"
                b"idempotency-key: k: 1\r\n\r\n{}".replace(b"post", b"POST")
                .replace(b"http/1.1", b"HTTP/1.1")
                .replace(b"host:", b"Host:")
                .replace(b"content-length", b"Content-Length")
                .replace(b"idempotency-key", b"Idempotency-Key")
                % host
            ]
            fields = {b"x-one": b"2", b"empty": b"", b"content-length": b"3"}
            assert (got.status, got.headers, got.body) == (429, fields, b"fue")
            assert before_s <= got.sent_s <= got.received_s <= time.monotonic()
            (connection,) = client._idle
            sock = connection._transport.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            await client.close()

    run(main())


ANSWERS = {
    "length": (OK, b"ok", True),
    "empty": (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"", True),
    "chunked": (CHUNKED + b"2\r\nab\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n", b"ab0123456789", True),
    "trailers": (CHUNKED + b"1\r\na\r\n0\r\nX-Late: 1\r\n\r\n", b"a", True),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
    "304": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", b"", True),
    "interim": (b"HTTP/1.1 100 Continue\r\nA: 1\r\n\r\nHTTP/1.1 103 Hints\r\n\r\n" + OK, b"ok", True),
    "close": (OK.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n"), b"ok", False),
    "1.0": (OK.replace(b"HTTP/1.1", b"HTTP/1.0"), b"ok", False),
    "surplus": (OK + OK, b"ok", False),
    "garbage": (OK + b"\0\0", b"ok", False),
}
TO_THE_END = {
    "eof": b"HTTP/1.1 200 OK\r\n\r\nok",
    "eof 1.0": b"HTTP/1.0 200 OK\r\n\r\nok",
    "eof coded": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok",
}


@pytest.mark.parametrize(("answer", "body", "reused"), ANSWERS.values(), ids=ANSWERS)
def test_every_framing_is_read(run, answer, body, reused):
    """Each form of answer is read, twice, and its connection reused only where that is safe."""

    async def main():
        async with serving(lambda peer: peer.send(answer)) as (server, client):
            first = await get(client)
            second = await get(client)
            assert first.body == second.body == body
            assert first.headers == second.headers
            assert not {b"x-late", b"a"} & set(first.headers)
            assert len(server.peers) == (1 if reused else 2)
            await until(lambda: server.open == client.idle == reused)

    run(main())


@pytest.mark.parametrize("answer", TO_THE_END.values(), ids=TO_THE_END)
def test_a_body_without_length_ends_with_the_connection(run, answer):
    """Where nothing else frames the body, the end of the connection does."""

    async def main():
        async with serving(lambda peer: peer.send_and_close(answer)) as (_, client):
            assert [(await get(client)).body for _ in range(2)] == [b"ok", b"ok"]
            assert client.idle == 0

    run(main())


def test_single_bytes_make_the_same_answer(run):
    """An answer that comes one byte at a time over a real socket is read like any other."""

    async def dribble(peer):
        for byte in ANSWERS["interim"][0]:
            peer.send(bytes([byte]))
            await turn()

    async def main():
        tasks = []

        def script(peer):
            tasks.append(asyncio.create_task(dribble(peer)))

        async with serving(script) as (_, client):
            assert (await get(client)).body == b"ok"
            await tasks[0]

    run(main())


class Wire(asyncio.Transport):
    """Stands for the socket: what is written is kept, what arrives is up to the test."""

    closing = False

    def write(self, data):
        self.written = data

    def is_closing(self):
        return self.closing

    def abort(self):
        self.closing = True

    def get_write_buffer_size(self):
        return 0


def answer_to_segments(segments, *, eof):
    """What the client makes of an answer that comes in these segments, and whether it reuses."""

    async def main():
        client = HttpClient("http://127.0.0.1:1")
        future = get(client, timeout_s=None)
        (task,) = client._connecting
        task.cancel()
        with pytest.raises(NotDelivered):
            await future
        return client

    raise NotImplementedError(main, segments, eof)


FAILURES = {
    "closed without an answer": (lambda peer: peer.transport.close(), "closed the connection"),
    "closed in the head": (lambda peer: peer.send_and_close(OK[:20]), "closed the connection"),
    "closed in the body": (lambda peer: peer.send_and_close(OK[:-1]), "closed the connection"),
    "closed in a chunk": (lambda peer: peer.send_and_close(CHUNKED + b"9\r\na"), "closed the conn"),
    "reset": (Peer.reset, "broke before"),
    "no HTTP": (lambda peer: peer.send(b"SSH-2.0-x\r\n"), "not valid HTTP"),
    "bad status": (lambda peer: peer.send(b"HTTP/1.1 2x0 OK\r\n\r\n"), "not valid HTTP"),
    "bad chunk": (lambda peer: peer.send(CHUNKED + b"zz\r\n"), "not valid HTTP"),
    "two framings": (
        lambda peer: peer.send(CHUNKED[:-2] + b"Content-Length: 2\r\n\r\n0\r\n\r\n"),
        "not valid HTTP",
    ),
    "upgrade": (
        lambda peer: peer.send(b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"),
        "another protocol",
    ),
    "huge body": (
        lambda peer: peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + b"x" * 2000),
        "exceeds 1000 bytes",
    ),
    "huge chunked body": (lambda peer: peer.send(CHUNKED, *[b"1\r\na\r\n"] * 2000), "exceeds 1000"),
    "endless head": (
        lambda peer: peer.send(b"HTTP/1.1 200 OK\r\n", b"X: 0123456789\r\n" * 100_000),
        "head or framing",
    ),
    "endless interim answers": (
        lambda peer: peer.send(b"HTTP/1.1 100 Continue\r\n\r\n" * 100_000),
        "head or framing",
    ),
}


@pytest.mark.parametrize(("script", "what"), FAILURES.values(), ids=FAILURES)
def test_a_broken_answer_leaves_the_outcome_unknown(run, script, what):
    """Whatever goes wrong after the request was written: OutcomeUnknown, the URL, no retry."""

    async def main():
        async with serving(script, body_limit_bytes=1000) as (server, client):
            with pytest.raises(OutcomeUnknown, match=what) as caught:
                await client.request("POST", "/x", body=b"{}", timeout_s=LIMIT_S)
            assert str(caught.value).startswith(f"POST {server.url}/x: ")
            assert (client.idle, client.busy) == (0, 0)
            await until(lambda: not server.open)
            assert [len(peer.requests) for peer in server.peers] == [1]

    run(main())
