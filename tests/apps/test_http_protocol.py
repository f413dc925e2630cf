"""What a connection may do before there is a request: heads that are too large or never end."""

import json

import pytest

from spillover.live.http1 import bounds
from spillover.live.http1.rules import HEAD_LIMIT_BYTES

GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
CLOSE = b"Connection: close\r\n\r\n"


@pytest.fixture(autouse=True)
def _looked_at_often(monkeypatch):
    monkeypatch.setattr(bounds, "SWEEP_S", 0.02)


def padded(size, end=CLOSE):
    """A head of exactly so many bytes."""
    room = size - len(GET) - len(b"X-Pad: \r\n") - len(end)
    return GET + b"X-Pad: " + b"p" * room + b"\r\n" + end


def problem_in(answer, status, reason):
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert b"content-type: application/problem+json" in head
    assert b"connection: close" in head
    assert b"content-length: %d" % len(body) in head
    problem = json.loads(body)
    assert (problem["status"], problem["reason"]) == (status, reason)


async def test_heads_are_held_to_their_limit(nodes):
    """To the byte, in one piece or in many, in one header or in many; then 431 and the end."""
    async with nodes.alone() as node:
        fits = padded(HEAD_LIMIT_BYTES)
        assert (await node.talk(fits)).startswith(b"HTTP/1.1 200")
        assert (await node.talk(fits[:40_000], fits[40_000:])).startswith(b"HTTP/1.1 200")
        longer = padded(HEAD_LIMIT_BYTES + 1)
        many = (GET + b"x: y\r\n" * HEAD_LIMIT_BYTES)[: HEAD_LIMIT_BYTES + 1]
        for head in (longer, many):
            problem_in(await node.talk(head), 431, "head_too_large")
            problem_in(await node.talk(head[:1000], head[1000:]), 431, "head_too_large")


async def test_each_head_has_the_whole_limit_to_itself(nodes):
    """Neither the heads before it on its connection nor large bodies count."""
    async with nodes.alone() as node:
        keep = padded(HEAD_LIMIT_BYTES, b"\r\n")
        answer = await node.talk(keep + keep + padded(HEAD_LIMIT_BYTES))
        assert answer.count(b"HTTP/1.1 200") == 3
        content = json.dumps({"payload": "x" * 500_000}).encode()
        post = b"POST /requests HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(content)
        answer = await node.talk(post + content + padded(HEAD_LIMIT_BYTES))
        assert answer.count(b"HTTP/1.1 200") == 2


async def test_a_large_head_behind_another_request(nodes):
    """The first is answered as ever; while it is not, the second is not answered in its place."""
    async with nodes.alone() as node:
        flood = GET + b"X-Pad: " + b"p" * (2 * HEAD_LIMIT_BYTES)
        reader, writer = await node.connect()
        writer.write(GET + b"\r\n")
        first = await reader.readuntil(b"}")
        assert first.startswith(b"HTTP/1.1 200")
        writer.write(padded(HEAD_LIMIT_BYTES + 1))
        problem_in(await reader.read(), 431, "head_too_large")
        writer.close()
        content = json.dumps({"payload": {"service_ms": 100}}).encode()
        post = b"POST /requests HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(content)
        first, separator, rest = (await node.talk(post + content + flood)).partition(b"}}")
        assert first.startswith(b"HTTP/1.1 200")
        problem_in(separator and rest, 431, "head_too_large")


async def test_trailers_and_extensions_of_chunks_are_held_to_the_limit_too(nodes):
    """What comes with a chunked body without being body."""
    ends = {
        b"0\r\nX-Trailer: ": (431, "head_too_large"),
        b"1;extension=": (400, "malformed"),
    }
    async with nodes.alone() as node:
        head = b"POST /requests HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        for end, told in ends.items():
            flood = (end + b"t" * HEAD_LIMIT_BYTES)[:HEAD_LIMIT_BYTES]
            reader, writer = await node.connect()
            writer.write(head + b"1\r\n \r\n")
            await nodes.until(
                lambda one=writer: any(c.exchange is not None for c in protocols(node, one))
            )
            writer.write(flood + b"t" * len(end))
            problem_in(await reader.read(), *told)
            writer.close()


def protocols(node, writer):
    """The node's end of this connection."""
    own = writer.get_extra_info("sockname")
    connections = node.server.server_state.connections
    return [p for p in connections if getattr(p, "client", None) == own]


async def test_a_connection_without_any_request_is_closed_as_an_idle_one(nodes):
    """And no stray line end before the first head makes it live longer."""
    async with nodes.alone() as node:
        node.server.bounds.idle_s = 0.2
        assert await node.talk() == b""
        assert await node.talk(b"\r\n") == b""


async def test_a_connection_opened_ahead_of_need_takes_its_first_request_late(nodes):
    """Those between neighbors are opened when a node starts, and wanted when there is a crowd. The
    server once closed them when the time for a head was up, also when the first request had come
    and was not read yet: without a key it ended 502 `outcome_unknown`, with nothing broken."""
    async with nodes.alone() as node:
        node.server.bounds.head_s = 0.25
        reader, writer = await node.connect()
        await nodes.until(lambda: protocols(node, writer))
        # It was made before, so its time for a head would be up before that of this one is.
        problem_in(await node.talk(b"G"), 408, "head_too_slow")
        writer.write(GET + CLOSE)
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()


TE, CHUNKS = b"Transfer-Encoding: ", b"1\r\n1\r\n0\r\n\r\n"


IN_TWO_WAYS = [
    (b"1.1", b"", b"Host"),
    (b"1.1", b"Host: x\r\nhOST: y\r\n", b"Host"),
    (b"1.0", b"Host: x\r\nHost: y\r\n", b"Host"),
    (b"1.1", b"Host: x\r\n" + TE + b"gzip, chunked\r\n", b"chunked"),
    (b"1.1", b"Host: x\r\n" + TE + b"gzip\r\n" + TE + b"chunked\r\n", b"chunked"),
    (b"1.1", b"Host: x\r\n" + TE + b"chunked, chunked\r\n", b""),
    (b"1.1", b"Host: x\r\n" + TE + b"chunked\r\nContent-Length: 11\r\n", b""),
    (b"1.1", b"Host: x\r\nContent-Length: 11\r\n" + TE + b"chunked\r\n", b""),
    (b"1.0", b"Host: x\r\n" + TE + b"chunked\r\n", b"HTTP/1.0"),
]
"""The version, the lines of the head, and what the answer speaks of."""


async def test_what_may_be_read_in_two_ways_is_refused(nodes):
    """Whom a request is for, and where it ends: a proxy may have read it in the other way. Nothing
    of it runs, nor what comes behind it."""
    behind = b'POST /requests HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\n\r\n{"payload":1}'
    async with nodes.alone() as node:
        for start in (b"POST /requests", b"PUT /admin/policy", b"POST /nowhere"):
            for version, lines, expected in IN_TWO_WAYS:
                message = b"%b HTTP/%b\r\n%b\r\n" % (start, version, lines)
                answer = await node.talk(message + CHUNKS + behind)
                problem_in(answer, 400, "malformed")
                assert expected in answer
        assert node.ledger.home["accepted"] == 0


async def test_what_cannot_be_read_in_two_ways_is_served(nodes):
    """HTTP/1.0 knows no Host; trailers say nothing of a request's end; names in any case."""
    body = b'd\r\n{"payload":1}\r\n0\r\n'
    async with nodes.alone() as node:
        assert (await node.talk(b"GET /healthz HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 200")
        post = b"POST /requests HTTP/1.1\r\nhost:\r\n"
        for lines in (b"transfer-encoding: Chunked\r\n", TE + b" chunked \r\n"):
            trailers = b"Host: y\r\n\r\n"
            answer = await node.talk(post + lines + b"\r\n" + body + trailers + GET + CLOSE)
            assert answer.count(b"HTTP/1.1 200") == 2, answer
