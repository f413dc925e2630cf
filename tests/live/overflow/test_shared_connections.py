"""Requests between nodes on loopback that share a connection: how many do, what a cancel, a large
body, a frame that may not come and a connection's end make of them."""

import asyncio
import json
import logging
import socket

import pytest

from spillover.apps.node import shared_callers
from spillover.live.http1.outgoing import Response, SwitchingRequest
from spillover.live.overflow import shared_connection
from spillover.live.overflow.frames.frame import (
    FORWARD,
    FRAME,
    MESSAGE,
    MORE_MAX_BYTES,
    REFUSED,
)
from spillover.live.overflow.identity import HELLO, hello_of
from spillover.live.overflow.protocol import SHARED, UPGRADE
from spillover.live.overflow.shared_calls import NOT_LEFT, SharedCalls
from spillover.live.overflow.shared_connection import CALLEE
from spillover.live.overflow.wire import Caller
from support.secure_federation import SecureFederation

MANY = 50
LONG_MS = 60_000.0
SMALL_BYTES = 4096


def pair(nodes, **fields):
    """Clusters a and b; what finds a busy goes to b, however much that is."""
    clusters = {"a": {"service_ms": 1000.0}, "b": {"servers": 2 * MANY}}
    return nodes.topology_of("a", "b", clusters=clusters, policy="adaptive", **fields)


async def occupied(nodes, federation):
    """Its node a, whose server is busy, and what occupies it."""
    a = federation["a"]
    await nodes.until(lambda: all(a.machine.neighbors.accepting))
    held = asyncio.ensure_future(a.post({"service_ms": LONG_MS}))
    await nodes.until(lambda: a.machine.servers.busy == 1)
    return a, held


def shared_of(node):
    return node.shell.neighborhood.clients.shared


def ends_of(node):
    return {end: len(connections) for end, connections in shared_of(node).open.items()}


async def shared_socket(node, caller="a", to="b", protocol=UPGRADE, buffer_bytes=None):
    """A socket on which a neighbor may send frames from now on."""
    opened = socket.socket()
    if buffer_bytes is not None:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    opened.setblocking(False)
    place = "127.0.0.1", int(node.url.rpartition(":")[2])
    await asyncio.get_running_loop().sock_connect(opened, place)
    reader, writer = await asyncio.open_connection(sock=opened)
    hello = hello_of(Caller(caller, to, "test"))
    lines = b"Host: b\r\nConnection: upgrade\r\nUpgrade: %b\r\n%b: %b\r\n"
    lines %= protocol, HELLO, hello
    writer.write(b"GET %b HTTP/1.1\r\n%b\r\n" % (SHARED.encode(), lines))
    return reader, writer, await reader.readuntil(b"\r\n\r\n")


@pytest.mark.parametrize("make", ["plain", "tls"])
async def test_many_forwards_share_a_connection(nodes, make, tmp_path, monkeypatch):
    """And leave together: with a hundred under way there are fewer writes than frames. What is
    written waits for no acknowledgement of what was before."""
    writes = []
    write = shared_connection.SharedConnection._write
    monkeypatch.setattr(
        shared_connection.SharedConnection, "_write", lambda one: (writes.append(1), write(one))
    )

    federation = (
        nodes.Federation(pair(nodes))
        if make == "plain"
        else SecureFederation(pair(nodes), directory=tmp_path)
    )
    async with federation:
        a, held = await occupied(nodes, federation)
        b = federation["b"]
        await nodes.until(lambda: ends_of(a) == {"caller": 1, "callee": 1})
        for (line,) in shared_of(a).open.values():
            opened = line.transport.get_extra_info("socket")
            assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        before, b_before = len(writes), b.server.connection_count
        answers = await asyncio.gather(*(a.post({"service_ms": 20.0}) for _ in range(MANY)))
        assert {answer.status for answer in answers} == {200}
        assert all(json.loads(answer.body)["path"] == ["a", "b"] for answer in answers)
        assert len(writes) - before < 2 * MANY  # the least number of frames
        assert ends_of(a) == ends_of(b) == {"caller": 1, "callee": 1}
        assert b.server.connection_count == b_before
        assert shared_of(a).frames["sent"] >= MANY
        assert shared_of(b).frames["received"] >= MANY
        assert shared_of(a).unsent_bytes == 0
        state = (await a.get("/state"))[1]
        assert state["shared"] == {"caller": 1, "callee": 1, "unsent_bytes": 0}
        held.cancel()


async def test_a_cancel_is_a_frame_and_so_is_it_that_a_client_has_left(nodes):
    """Nothing is opened for either, what came of a cancel is in the answer, and the connection goes
    on."""
    async with nodes.Federation(pair(nodes)) as federation:
        a, held = await occupied(nodes, federation)
        b = federation["b"]
        asked = asyncio.ensure_future(a.post({"service_ms": LONG_MS}, id="long"))
        await nodes.until(lambda: b.machine.servers.busy == 1)
        before = b.server.connection_count
        assert (await a.send("DELETE", "/requests/long"))[0] == 200
        assert (await asked).status == 409
        assert b.ledger.foreign["cancelled"] == 1
        left = asyncio.ensure_future(a.post({"service_ms": LONG_MS}))
        await nodes.until(lambda: b.machine.servers.busy == 1)
        left.cancel()
        await nodes.until(lambda: b.ledger.foreign["cancelled"] == 2)
        assert (await a.post({"service_ms": 1.0})).status == 200
        assert b.server.connection_count == before
        assert ends_of(a) == {"caller": 1, "callee": 1}
        held.cancel()


async def test_large_bodies_come_whole_beside_small_ones(nodes):
    topology = pair(nodes, payload_limit_bytes=4_000_000)
    async with nodes.Federation(topology) as federation:
        a, held = await occupied(nodes, federation)
        large = {"service_ms": 1.0, "filling": "x" * 1_000_000}
        asked = [a.post(large if number % 5 == 0 else {"service_ms": 1.0}) for number in range(20)]
        for answer in await asyncio.gather(*asked):
            assert answer.status == 200
            assert json.loads(answer.body)["path"] == ["a", "b"]
        assert shared_of(a).frames["sent"] > 4 * 1_000_000 // 32_768
        await nodes.until(lambda: federation["b"].shell.room.moving.bytes == 0)
        held.cancel()


BAD_BODIES = (
    b"no JSON",
    b'{"id":"x","path":["z"],"remaining_ms":1,"payload":1}',
    b'{"id":"x","path":["a","b"],"remaining_ms":1,"payload":1}',
    b'{"id":"x","path":["a"],"remaining_ms":1,"payload":{"service_ms":"no"}}',
)


async def test_a_request_that_is_none_is_refused_alone_and_a_frame_that_is_none_ends_its_connection(
    nodes, caplog, monkeypatch
):
    """As is one that does not come whole in time. Of the frame there is one line in the log, and
    one more that is counted; other connections go on."""
    caplog.set_level(logging.WARNING, shared_callers.__name__)
    monkeypatch.setattr(shared_callers._log, "filters", [])
    monkeypatch.setattr(shared_callers, "READ_S", 0.05)

    async with nodes.Federation(pair(nodes)) as federation:
        a, held = await occupied(nodes, federation)
        b = federation["b"]
        reader, writer, head = await shared_socket(b)
        assert head.startswith(b"HTTP/1.1 101 ")
        sent = [MESSAGE.pack(len(body) + 4, number, FORWARD, len(body)) + body
                for number, body in enumerate(BAD_BODIES, 1)]  # fmt: skip
        for number, message in enumerate([*sent, MESSAGE.pack(5, 5, FORWARD, 100) + b"x"], 1):
            writer.write(message)
            length, answered, _ = FRAME.unpack(await reader.readexactly(FRAME.size))
            assert answered == number
            reason = b"invalid" if number <= len(sent) else b"body_too_slow"
            assert reason in await reader.readexactly(length)
        assert sum(b.ledger.foreign.values()) == b.shell.room.moving.bytes == 0
        writer.write(FRAME.pack(70_000, 6, FORWARD))
        assert await reader.read() == b""
        assert b.shell.metrics._peer_refused["a", "frame"] == 1
        (line,) = [one for one in caplog.records if one.msg.fields["message"] == "frame"]
        assert line.name == shared_callers.__name__
        assert (await a.post({"service_ms": 1.0})).status == 200
        writer.close()
        held.cancel()


async def test_who_is_no_neighbor_or_asks_for_nothing_that_is_known_shares_nothing(nodes):
    """A node of a version before has another name for its frames, and would not read these; behind
    a balancer no upgrade may be asked for. Requests go by POST then."""
    strangers = [("z", "b", UPGRADE, b"403"), ("a", "z", UPGRADE, b"403")]
    older = [("a", "b", name, b"422") for name in (b"spillover/3", b"spillover/3.1")]

    async with nodes.Federation(pair(nodes)) as federation:
        b = federation["b"]
        for caller, to, protocol, status in strangers + older:
            _, writer, head = await shared_socket(b, caller, to, protocol)
            assert head.startswith(b"HTTP/1.1 %b " % status)
            writer.close()
        hello = [(HELLO, hello_of(Caller("a", "b", "test")))]
        status, _, problem = await b.send("GET", SHARED, headers=hello)
        assert (status, problem["reason"]) == (422, "invalid")
        a, held = await occupied(nodes, federation)
        (link,) = a.shell.neighborhood.links.values()
        link.shared.is_shared = False
        assert json.loads((await a.post({"service_ms": 1.0})).body)["path"] == ["a", "b"]
        held.cancel()


async def test_a_connection_that_dies_loses_what_was_on_it(nodes):
    """With a key it is decided again, else nobody knows what became of it; what comes next goes
    over another connection."""
    async with nodes.Federation(pair(nodes)) as federation:
        a, held = await occupied(nodes, federation)
        b = federation["b"]
        keyed, unkeyed = (
            asyncio.ensure_future(a.post({"service_ms": 300.0}, **name))
            for name in ({"id": "one"}, {})
        )
        await nodes.until(lambda: b.machine.servers.busy == 2)
        for connection in list(shared_of(b).open["callee"]):
            connection.transport.abort()
        answer = await unkeyed
        assert (answer.status, json.loads(answer.body)["reason"]) == (502, "outcome_unknown")
        assert json.loads((await a.post({"service_ms": 1.0})).body)["path"] == ["a", "b"]
        assert ends_of(a)["caller"] == 1
        held.cancel()
        assert (await keyed).status == 200


async def test_a_node_that_ends_answers_what_it_has_and_is_sent_no_more(nodes):
    """What is on its way when it leaves surely does not run there: no client sees an error."""
    async with nodes.Federation(pair(nodes)) as federation:
        a, held = await occupied(nodes, federation)
        b = federation["b"]
        asked = [asyncio.ensure_future(a.post({"service_ms": 200.0})) for _ in range(10)]
        await nodes.until(lambda: b.machine.servers.busy == 10)
        for connection in list(b.server.connections):
            connection.shutdown()
        held.cancel()
        for answer in await asyncio.gather(*asked):
            assert answer.status == 200
        await nodes.until(lambda: ends_of(b)["callee"] == 0)
        assert (await a.post({"service_ms": 1.0})).status == 200


async def test_from_who_does_not_read_little_is_read(nodes, monkeypatch):
    """Refusals that nobody reads do not pile up: after some, no more requests are taken in."""
    monkeypatch.setattr(shared_callers, "UNREAD_MAX_BYTES", SMALL_BYTES)
    monkeypatch.setattr(shared_callers, "STREAMS_MAX", 100)

    async with nodes.Federation(pair(nodes)) as federation:
        b = federation["b"]
        before = set(shared_of(b).open["callee"])
        reader, writer, _ = await shared_socket(b, buffer_bytes=SMALL_BYTES)
        (callee,) = set(shared_of(b).open["callee"]) - before
        told = callee.transport.get_extra_info("socket")
        told.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BYTES)
        reader._transport.pause_reading()
        for number in range(1, 20_001):
            writer.write(MESSAGE.pack(1004, number, FORWARD, 1000) + b"x" * 1000)
            if number % 100 == 0:
                try:
                    async with asyncio.timeout(0.5):
                        await writer.drain()
                except TimeoutError:
                    break
                unsent_bytes = shared_of(b).unsent_bytes
                assert unsent_bytes <= 100 * SMALL_BYTES
        else:
            raise AssertionError("all of it was read")
        await nodes.until(lambda: b.shell.room.moving.bytes > 0)
        writer.transport.abort()
        await nodes.until(lambda: b.shell.room.moving.bytes == 0)


async def test_a_connection_is_retired_with_what_is_under_way_on_it(nodes):
    """As when certificates have changed: what comes next goes over another one."""
    async with nodes.Federation(pair(nodes)) as federation:
        a, held = await occupied(nodes, federation)
        b = federation["b"]
        asked = asyncio.ensure_future(a.post({"service_ms": 300.0}))
        await nodes.until(lambda: b.machine.servers.busy == 1)
        (link,) = a.shell.neighborhood.links.values()
        (before,) = link.shared.lines
        before.retire()
        assert json.loads((await a.post({"service_ms": 1.0})).body)["path"] == ["a", "b"]
        assert len(link.shared.lines) == 2 or asked.done()
        assert (await asked).status == 200
        await nodes.until(lambda: before not in link.shared.lines)
        await nodes.until(lambda: ends_of(b)["callee"] == 1)
        held.cancel()


class Asked:
    """A client whose every upgrade is answered at once, by this."""

    def __init__(self, answer):
        self.answer = answer

    def switch(self, path, protocol, on_switch, on_end, *, timeout_s):  # noqa: ARG002 - a client's
        exchange = SwitchingRequest("GET", path, on_end, 1000)
        exchange.end(self.answer)
        return exchange


def refusal(body, content_type=b"application/problem+json", status=503):
    return Response(status, {b"content-type": content_type}, body, 0.0, 0.0)


@pytest.mark.parametrize("status", [403, 503])
def test_only_a_node_refuses_what_was_to_share_a_connection(status):
    """A proxy on the way that lets no upgrade through says so with the same statuses: then each
    request is a call of its own."""
    ours = refusal(b'{"reason":"not_ready","status":503}', status=status)
    theirs = [
        Response(status, {}, b"", 0.0, 0.0),
        refusal(b"<html>no</html>", b"text/html", status),
        refusal(b'{"title":"Service Unavailable"}', status=status),
        refusal(b'{"reason":"not_ready"}', b"application/json", status),
        refusal(b'["reason"]', status=status),
        refusal(b"\xff" * 9, status=status),
    ]
    for answer, told in [(ours, REFUSED), *[(one, NOT_LEFT) for one in theirs]]:
        heard, calls = [], SharedCalls(Asked(answer), None, print)
        calls.call(FORWARD, (b"x",), lambda *told, heard=heard: heard.append(told))
        assert (heard, calls.is_shared) == ([(told, b"")], told == REFUSED), answer


class Opened:
    """A connection to whoever has answered, which may be closed."""

    is_closed = False

    def close(self):
        self.is_closed = True


@pytest.mark.parametrize(
    ("named", "is_agreed"),
    [
        ([(b"Upgrade", UPGRADE)], True),
        ([(b"upgrade", UPGRADE.upper())], True),
        ([(b"Upgrade", b"spillover/3")], False),
        ([(b"Upgrade", b"spillover/3.1")], False),
        ([], False),
    ],
)
def test_frames_follow_only_where_both_mean_the_same(named, is_agreed):
    """Nodes that say spillover/3 agree to whatever is asked for, and say what they go by."""
    switched, ends, opened = [], [], Opened()
    exchange = SwitchingRequest("GET", SHARED, ends.append, 1000)
    exchange.protocol, exchange.connection = UPGRADE, opened
    exchange.on_switch = lambda *told: switched.append(told)
    exchange.switch(opened, ((b"Connection", b"upgrade"), *named), b"behind")
    assert (bool(switched), opened.is_closed) == (is_agreed, not is_agreed)
    if not is_agreed:
        heard, calls = [], SharedCalls(Asked(ends[0]), None, print)
        calls.call(FORWARD, (b"x",), lambda *told: heard.append(told))
        assert (heard, calls.is_shared) == ([(NOT_LEFT, b"")], False)


async def test_of_who_leaves_short_answers_unread_nothing_more_is_read(nodes, monkeypatch):
    """What is too large is refused without a request, which counts nowhere. Once the answers are
    read, so is the rest."""
    monkeypatch.setattr(shared_callers, "SOON_MAX_BYTES", MORE_MAX_BYTES)

    async with nodes.Federation(pair(nodes)) as federation:
        b = federation["b"]
        before = set(shared_of(b).open["callee"])
        reader, writer, _ = await shared_socket(b, buffer_bytes=SMALL_BYTES)
        (caller,) = set(shared_of(b).open["callee"]) - before
        told = caller.transport.get_extra_info("socket")
        told.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BYTES)
        reader._transport.pause_reading()
        for sent in range(1, 1_000_001):
            writer.write(MESSAGE.pack(4, sent, FORWARD, 2**31))
            if sent % 1000 == 0:
                draining = asyncio.ensure_future(writer.drain())
                await nodes.until(
                    lambda one=draining: one.done() or not caller.transport.is_reading()
                )
                if not caller.transport.is_reading():
                    break
        else:
            raise AssertionError("all of it was read")
        read_at_once = 4 * MORE_MAX_BYTES  # some 200,000 bytes of frames, with longer answers
        assert MORE_MAX_BYTES < caller.out.soon_bytes < MORE_MAX_BYTES + read_at_once
        reader._transport.resume_reading()
        for number in range(1, sent + 1):
            length, refused, _ = FRAME.unpack(await reader.readexactly(FRAME.size))
            assert refused == number
            assert b"too_large" in await reader.readexactly(length)
        await draining
        writer.close()


async def test_what_a_neighbor_left_unread_that_is_gone_is_held_no_more(nodes):
    """Nor what is answered to it as its requests are cancelled."""
    async with nodes.Federation(pair(nodes)) as federation:
        a, held = await occupied(nodes, federation)
        b = federation["b"]
        away = [asyncio.ensure_future(a.post({"service_ms": LONG_MS})) for _ in range(4)]
        await nodes.until(lambda: b.machine.servers.busy == len(away))
        (line,) = shared_of(b).open[CALLEE]
        line.pause_writing()  # as the loop says where the other end does not read
        line.transport.abort()
        await nodes.until(lambda: not shared_of(b).open[CALLEE] and not b.machine.servers.busy)
        assert b.shell.room.moving.bytes == 0
        for one in (held, *away):
            one.cancel()
