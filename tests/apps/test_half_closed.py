"""A client that closes its half of a connection behind its request, and one that is gone: the same
at first, over real sockets on both event loops. The first gets its answer, the second cancels."""

import asyncio
import json
import socket
import struct

import pytest
import uvloop

from spillover.apps.http.connection import HttpConnection
from spillover.live.http1 import half_closed
from spillover.live.http1.half_closed import BEGINNING, HalfClosed
from support.federation import alone

LINGER_NOT = struct.pack("ii", 1, 0)
"""Of SO_LINGER: close with a reset."""


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loop(request):
    return request.param


def post(service_ms, *lines, version=b"1.1", path=b"/requests"):
    content = json.dumps({"payload": {"service_ms": service_ms}}).encode()
    head = b"POST %b HTTP/%b\r\nHost: x\r\n%b" % (path, version, b"".join(lines))
    return b"%bContent-Length: %d\r\n\r\n%b" % (head, len(content), content)


async def half_close(node, *segments):
    """Send, close that half, and read all that comes."""
    reader, writer = await node.connect()
    writer.write(b"".join(segments))
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer


def statuses(answers):
    """Of each answer, whole ones in a row and nothing else."""
    found = []
    while answers:
        head, separator, rest = answers.partition(b"\r\n\r\n")
        assert separator
        assert head.startswith(BEGINNING)
        found.append(int(head.split()[1]))
        lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        size = int(lines[b"content-length"])
        assert len(rest) >= size
        answers = rest[size:]
    return found


async def test_who_only_closes_its_half_gets_the_answer(loop):
    """Just as it would be otherwise, however long it takes, on the direct way and by a task."""
    ways = {(): 200, (b"Idempotency-Key: k\r\n",): 200, (b"Origin: http://localhost:1\r\n",): 403}
    async with alone() as node:
        for version, service_ms in ((b"1.1", 100), (b"1.0", 0)):
            for lines, status in ways.items():
                answer = await half_close(node, post(service_ms, *lines, version=version))
                assert statuses(answer) in ([status], [409])  # the key has another body then
        assert node.ledger.home["cancelled"] == 0


@pytest.mark.parametrize(("size", "begun"), [(0, 1), (100, 9), (1_000_000, 1)])
async def test_an_answer_that_has_begun_arrives_once(size, begun, monkeypatch):
    """Written in one part or in several, in one piece or through a full buffer."""
    monkeypatch.setattr(half_closed, "BEGUN_AT_S", (0.0,) * begun)
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=theirs)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
    half = HalfClosed(transport, loop)
    assert await reader.readexactly(begun) == BEGINNING[:begun]
    body = b"x" * size
    half.writelines((b"HTTP/1.1 200 OK\r\n\r\n", body))
    half.write(b"and more")
    half.close()
    async with asyncio.timeout(10.0):
        assert await reader.read() == b"HTTP/1.1 200 OK\r\n\r\n"[begun:] + body + b"and more"
    writer.close()


async def test_all_that_were_sent_are_answered(loop):
    """In a pipeline, in order; what was not sent whole is not, and holds up nothing."""
    async with alone() as node:
        get = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
        whole = post(50) + get + post(20) + post(10)
        assert statuses(await half_close(node, whole)) == [200] * 4
        assert statuses(await half_close(node, whole + post(10)[:-1])) == [200] * 4
        assert statuses(await half_close(node, whole + post(10)[:20])) == [200] * 4
        assert statuses(await half_close(node, post(50) + post(10)[:20])) == [200]
        assert node.ledger.home["accepted"] == node.ledger.home["done"]


async def test_who_sends_less_than_a_request_is_gone(loop):
    """There is nothing to answer."""
    async with alone() as node:
        chunked = b"POST /requests HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n"
        for part in (b"", b"G", post(1)[:-1], post(1)[:30], chunked):
            assert await half_close(node, part) == b""
        assert node.ledger.home["accepted"] == 0


@pytest.mark.parametrize("reset", [False, True])
async def test_who_is_gone_cancels_what_has_no_key(loop, nodes, reset):
    """With a reset, or with a mere end, which is all that the kernel sends when a client is killed.
    A keyed one goes on. The second one is read by a task, and not by the protocol alone."""
    async with alone() as node:
        connections = node.server.server_state.connections
        before = len(connections)
        for cancelled, key in enumerate((b"", b"", b"Idempotency-Key: k\r\n")):
            _, writer = await node.connect()
            message = post(60_000, key)
            cut = len(message) - 5 if cancelled == 1 else len(message)
            writer.write(message[:cut])
            if cancelled == 1:
                await nodes.until(lambda: any(one.news is not None for one in begun(node)))
            writer.write(message[cut:])
            await nodes.until(lambda: node.machine.servers.busy == 1)
            if reset:
                opened = writer.get_extra_info("socket")
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
            writer.close()
            await nodes.until(lambda: len(connections) <= before)
            if not key:
                await nodes.until(lambda n=cancelled + 1: node.ledger.home["cancelled"] == n)
        assert node.machine.servers.busy == 1
        assert (await node.send("DELETE", "/requests/k"))[0] == 200


def begun(node):
    """Requests that are under way, whoever reads them."""
    ends = [one for one in node.server.server_state.connections if isinstance(one, HttpConnection)]
    return [one.exchange for one in ends if one.exchange is not None]


async def test_who_goes_later_cancels_too(loop, nodes):
    """It has closed its half, waited, read that an answer begins, and then given up."""
    async with alone() as node:
        reader, writer = await node.connect()
        writer.write(post(60_000))
        writer.write_eof()
        assert await reader.readexactly(3) == BEGINNING[:3]
        assert node.machine.servers.busy == 1
        writer.close()
        await nodes.until(lambda: node.ledger.home["cancelled"] == 1)
        assert node.machine.servers.busy == 0


async def test_a_request_that_was_handed_on_is_recalled_at_once(loop, nodes):
    """Neighbors close a connection only to say that they do not wait any more: nothing is sent on
    it to find that out."""
    async with alone("a", "b") as node:
        forward = {"id": "x", "path": ["b"], "remaining_ms": 60_000}
        content = json.dumps(forward | {"payload": {"service_ms": 60_000}}).encode()
        reader, writer = await node.connect()
        head = (
            b"POST /peer/v2/forward HTTP/1.1\r\nHost: x\r\nSpillover-Peer: from=b\r\n"
            b"Content-Length: %d\r\n\r\n"
        )
        writer.write(head % len(content) + content)
        await nodes.until(lambda: node.machine.servers.busy == 1)
        writer.write_eof()
        assert await reader.read() == b""
        await nodes.until(lambda: node.ledger.foreign["cancelled"] == 1)
        writer.close()


async def test_who_listens_to_a_stream_and_closes_its_half_is_gone(loop, nodes):
    """Its answer has begun, so that nothing could be found out by beginning it."""
    async with alone() as node:
        reader, writer = await node.connect()
        writer.write(b"GET /console/events HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"hello")
        tasks = node.server.server_state.tasks
        before = len(tasks)
        writer.write_eof()
        await nodes.until(lambda: len(tasks) < before)
        writer.close()
