"""The HTTP/1.1 client against servers on loopback, most of which misbehave on purpose."""

import asyncio
import contextlib
import socket
import time

import pytest

from spillover.live.http1.client import HttpClient
from spillover.model.errors import NotDelivered, OutcomeUnknown
from support.loop import until

LIMIT_S = 20.0
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


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

    def connection_lost(self, _exc):
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
        sock = self.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
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


async def test_a_request_arrives_as_written():
    """Method, prefix, path, headers and body arrive; the answer carries status, headers, times."""
    answer = b"HTTP/1.1 429 No\r\nX-One: 1\r\nx-one: 2\r\nEmpty:\r\nContent-Length: 3\r\n\r\nfue"
    async with serving(lambda peer: peer.send(answer)) as (server, _):
        client = HttpClient(server.url + "/base/")
        before_s = time.monotonic()
        headers = [(b"Idempotency-Key", b"k: 1")]
        got = await client.request("POST", "/a?b=c", headers=headers, body=b"{}", timeout_s=9)
        host = server.url.removeprefix("http://").encode()
        assert server.peers[0].requests == [
            b"POST /base/a?b=c HTTP/1.1\r\nHost: %b\r\nContent-Length: 2\r\n"
            b"Idempotency-Key: k: 1\r\n\r\n{}" % host
        ]
        fields = {b"x-one": b"2", b"empty": b"", b"content-length": b"3"}
        assert (got.status, got.headers, got.body) == (429, fields, b"fue")
        assert before_s <= got.sent_s <= got.received_s <= time.monotonic()
        (connection,) = client._kept.idle
        sock = connection._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        await client.close()


async def test_only_connections_that_stay_open_are_reused():
    """A connection is reused if the server keeps it, and the answer was all that came over it."""
    cases = [
        (lambda peer: peer.send(OK), 1),
        (lambda peer: peer.send(CHUNKED, b"1\r\no\r\n", b"1\r\nk\r\n0\r\n\r\n"), 1),
        (lambda peer: peer.send(OK.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n")), 0),
        (lambda peer: peer.send(OK.replace(b"HTTP/1.1", b"HTTP/1.0")), 0),
        (lambda peer: peer.send(OK + OK), 0),
        (lambda peer: peer.send_and_close(b"HTTP/1.1 200 OK\r\n\r\nok"), 0),
    ]

    for script, kept in cases:
        async with serving(script) as (server, client):
            assert [(await get(client)).body for _ in range(2)] == [b"ok", b"ok"]
            await until(lambda kept=kept: server.open == client.idle == kept)
            assert len(server.peers) == 2 - kept


FAILURES = {
    "closed without an answer": (lambda peer: peer.transport.close(), "closed the connection"),
    "closed in the head": (lambda peer: peer.send_and_close(OK[:20]), "closed the connection"),
    "closed in the body": (lambda peer: peer.send_and_close(OK[:-1]), "closed the connection"),
    "reset": (Peer.reset, "broke before"),
    "no HTTP": (lambda peer: peer.send(b"SSH-2.0-x\r\n"), "not valid HTTP"),
    "two framings": (
        lambda peer: peer.send(CHUNKED[:-2] + b"Content-Length: 2\r\n\r\n0\r\n\r\n"),
        "not valid HTTP",
    ),
    "upgrade": (
        lambda peer: peer.send(b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"),
        "another protocol",
    ),
    "endless interim answers": (
        lambda peer: peer.send(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
        "more than 32 interim",
    ),
}


@pytest.mark.parametrize(("script", "what"), FAILURES.values(), ids=FAILURES)
async def test_a_broken_answer_leaves_the_outcome_unknown(script, what):
    """Whatever goes wrong after the request was written: OutcomeUnknown, the URL, no retry."""
    async with serving(script, body_limit_bytes=1000) as (server, client):
        with pytest.raises(OutcomeUnknown, match=what) as caught:
            await client.request("POST", "/x", body=b"{}", timeout_s=LIMIT_S)
        assert str(caught.value).startswith(f"POST {server.url}/x: ")
        assert (client.idle, client.busy) == (0, 0)
        await until(lambda: not server.open)
        assert [len(peer.requests) for peer in server.peers] == [1]


async def test_a_refused_connection_is_not_delivered():
    """Where nobody listens, and for a name nobody can have, surely nothing was sent."""
    for url in (unused_url(), f"http://{'a' * 64}:80"):
        client = HttpClient(url)
        with pytest.raises(NotDelivered, match="cannot connect") as caught:
            await get(client)
        assert url in str(caught.value)
        with pytest.raises(NotDelivered, match="cannot connect"):
            await client.warm(2)
        await client.close()


async def test_time_limits_tell_whether_anything_was_sent():
    """Out of time before a connection: NotDelivered; after the request left: OutcomeUnknown."""
    with full_backlog() as url:
        client = HttpClient(url, connect_timeout_s=0.05)
        with pytest.raises(NotDelivered, match=r"no connection within 0\.05 s"):
            await get(client)
        patient = HttpClient(url, connect_timeout_s=LIMIT_S)
        with pytest.raises(NotDelivered, match=r"no connection within 0\.02 s"):
            await get(patient, timeout_s=0.02)
        await patient.close()
        await client.close()
    async with serving(lambda peer: peer.send(OK[:-1])) as (server, client):
        with pytest.raises(NotDelivered, match="no time was left"):
            await get(client, timeout_s=0)
        assert not server.peers
        with pytest.raises(OutcomeUnknown, match=r"no complete answer within 0\.02 s"):
            await get(client, timeout_s=0.02)
        await until(lambda: len(server.peers) == 1 and not server.open)
        assert client.busy == 0


async def test_cancelling_closes_the_connection():
    """A cancelled request takes its connection with it, or the attempt to open one."""
    async with serving(lambda _peer: None) as (server, client):
        waiting = asyncio.create_task(asyncio.wait_for(get(client), LIMIT_S))
        await until(lambda: client.busy == 1 and server.peers and server.peers[0].requests)
        waiting.cancel()
        await until(lambda: client.busy == 0 and not server.open)
        assert waiting.cancelled()
    with full_backlog() as url:
        client = HttpClient(url, connect_timeout_s=LIMIT_S)
        future = get(client)
        assert "connecting=1" in repr(client)
        future.cancel()
        await until(lambda: "connecting=0" in repr(client))


async def test_connections_are_reused_last_in_first_out():
    """The connection released last carries the next request, so the others can grow old."""
    async with serving(lambda _peer: None) as (server, client):
        futures = [get(client) for _ in range(3)]
        await until(lambda: sum(len(peer.requests) for peer in server.peers) == 3)
        order = [server.peers[index] for index in (1, 2, 0)]
        for idle, peer in enumerate(order, 1):
            peer.send(OK)
            await until(lambda idle=idle: client.idle == idle)
        await asyncio.gather(*futures)
        server.script = lambda peer: peer.send(OK)
        for _ in range(3):
            await get(client)
        assert [len(peer.requests) for peer in order] == [1, 1, 4]


async def test_the_connection_limit_refuses_at_once():
    """Beyond the limit nothing is sent and nothing waits; a released connection serves again."""
    async with serving(lambda _peer: None, connections_max=2) as (server, client):
        held = [get(client), get(client)]
        with pytest.raises(NotDelivered, match="all 2 connections are in use"):
            await get(client)
        await until(lambda: sum(len(peer.requests) for peer in server.peers) == 2)
        with pytest.raises(NotDelivered, match="all 2 connections are in use"):
            await get(client)
        server.script = lambda peer: peer.send(OK)
        for peer in server.peers:
            peer.send(OK)
        await asyncio.gather(*held)
        await get(client)
        await client.warm(9)
        assert (client.idle, len(server.peers)) == (2, 2)


async def test_closing_ends_everything():
    """Closing fails what is under way by what is known of it, and refuses what comes later."""
    async with serving(lambda _peer: None) as (server, client):
        await client.warm(2)
        written = get(client)
        await until(lambda: any(peer.requests for peer in server.peers))
        assert repr(client) == f"<HttpClient {server.url} idle=1 busy=1 connecting=0>"
        await client.close()
        with pytest.raises(OutcomeUnknown, match="client was closed"):
            await written
        with pytest.raises(NotDelivered, match="client was closed"):
            await get(client)
        assert repr(client).endswith("closed>")
    with full_backlog() as url:
        client = HttpClient(url, connect_timeout_s=LIMIT_S)
        unwritten = get(client)
        await client.close()
        with pytest.raises(NotDelivered, match="client was closed"):
            await unwritten


@pytest.mark.parametrize("host", ["::1", "localhost"])
async def test_hosts_may_be_names_or_ipv6(require, host):
    """An IPv6 literal goes in brackets; a name is resolved."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.create_server((host, 0), family=family).close()
    except OSError:
        require(condition=False, reason=f"an address for {host}")

    async with serving(lambda peer: peer.send(OK), host) as (server, client):
        assert (await get(client)).status == 200
        sent = server.peers[0].requests[0]
        assert b"Host: " + server.url.removeprefix("http://").encode() + b"\r\n" in sent
