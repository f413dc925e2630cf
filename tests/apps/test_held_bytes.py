"""A node whose clusters may hold little: refusals that say so, what counts while it comes and goes,
and neighbors that decide again."""

import asyncio
import contextlib
import json

import pytest

MIB = 2**20
LIMIT = 8 * MIB
"""Seven MiB for clients' requests."""


def body(size, service_ms=10_000.0):
    return json.dumps({"payload": {"service_ms": service_ms, "x": "x" * size}}).encode()


def small(nodes, *ids, **fields):
    """Clusters of one server that hold little."""
    given = dict.fromkeys(ids, {"held_limit_bytes": LIMIT} | fields)
    return nodes.topology_of(*ids, clusters=given, payload_limit_bytes=10 * MIB)


async def shown(node):
    _, state = await node.get("/state")
    return state


async def test_payloads_queue_up_to_the_limit_and_are_all_answered(nodes):
    """Of twelve of a MiB six fit; the others are refused with the reason, and when to come again.
    All that was accepted is answered, and then nothing is held. One runs until it is cancelled."""
    async with nodes.Federation(small(nodes, "a")) as federation:
        node = federation["a"]
        name = [(b"idempotency-key", b"first")]
        first = node.send("POST", "/requests", body(MIB, service_ms=600_000.0), name)
        first = asyncio.ensure_future(first)
        others = [
            asyncio.ensure_future(node.send("POST", "/requests", body(MIB, 0.0))) for _ in range(11)
        ]
        # Until then nothing ends, however long it takes to send all of it.
        await nodes.until(lambda: sum(one.done() for one in others) == 6)
        await nodes.until(lambda: node.machine.queue_length == 5)
        assert (await node.send("DELETE", "/requests/first"))[0] == 200
        answers = await asyncio.gather(*others)
        assert (await first)[0] == 409
        refused = [(headers, told) for status, headers, told in answers if status == 429]
        assert len(refused) == 6
        assert sorted({status for status, _, _ in answers}) == [200, 429]
        for headers, told in refused:
            assert told["reason"] == "queue_full"
            assert "held_limit_bytes" in told["detail"]
            assert int(headers[b"retry-after"]) >= 1
        state = await shown(node)
        assert state["held_limit_bytes"] == LIMIT
        assert state["held_bytes"] == state["kept_bytes"] < MIB
        assert state["ledger"]["home"]["done"] == 5
        metrics = await node.client.request("GET", "/metrics", timeout_s=5.0)
        told = dict(line.rsplit(" ", 1) for line in metrics.body.decode().splitlines())
        assert float(told['spillover_held_limit_bytes{cluster="a"}']) == LIMIT
        assert float(told['spillover_held_bytes{cluster="a"}']) == state["held_bytes"]
        assert float(told['spillover_kept_bytes{cluster="a"}']) == state["kept_bytes"]
        assert told['spillover_requests_total{cluster="a",outcome="refused"}'] == "6.0"


async def test_bodies_that_come_slowly_count_and_those_without_room_are_refused(nodes):
    """Of one with five MiB the last byte is missing: two more find no room. They are read all the
    same, told why, and not counted; the first one is served when it is whole."""
    async with nodes.Federation(small(nodes, "a")) as federation:
        node = federation["a"]
        host, _, port = node.url.removeprefix("http://").rpartition(":")
        content = body(5 * MIB, 0.0)
        head = b"POST /requests HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(head % len(content) + content[:-1])
        await nodes.until(lambda: node.shell.room.moving.bytes == len(content) - 1)
        await nodes.until(lambda: node.machine.held.moving_bytes > 4 * MIB)
        for _ in range(2):
            status, headers, told = await node.send("POST", "/requests", content)
            assert (status, told["reason"]) == (429, "queue_full")
            assert "held_limit_bytes" in told["detail"]
            assert headers[b"retry-after"] == b"1"
            assert node.shell.room.moving.bytes == len(content) - 1
        writer.write(content[-1:])
        assert (await reader.readline()).split()[1] == b"200"
        writer.transport.abort()
        await nodes.until(lambda: node.machine.held.total_bytes == 0)


@contextlib.asynccontextmanager
async def upstream(size):
    """A service whose every answer is a text of so many bytes; the handler for it."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    text = b'"' + b"x" * (size - 2) + b'"'

    async def serve(reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                asked = await reader.readuntil(b"\r\n\r\n")
                length = asked.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length))
                writer.write(head % size + text)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=16 * MIB)
    async with server:
        yield f"http:http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


@pytest.mark.parametrize("reads", [True, False])
async def test_an_answer_that_is_not_read_counts_and_is_dropped_in_the_end(nodes, reads):
    """Its client asks for 12 MiB and reads nothing: no request is taken meanwhile. When it goes on
    it gets all; when it does not for a minute (here less), its connection is closed."""
    async with (
        upstream(12 * MIB) as handler,
        nodes.Federation(small(nodes, "a", handler=handler)) as federation,
    ):
        node = federation["a"]
        node.server.bounds.unread_s = 60.0 if reads else 0.2
        host, _, port = node.url.removeprefix("http://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
        content = b'{"payload":1}'
        writer.write(b"POST /requests HTTP/1.1\r\nHost: a\r\nContent-Length: 13\r\n\r\n" + content)
        await nodes.until(lambda: node.ledger.home["done"] == 1)
        await nodes.until(lambda: node.machine.held.moving_bytes > 7 * MIB)
        assert not node.machine.accepting
        status, _, told = await node.send("POST", "/requests", content)
        assert (status, told["reason"]) == (429, "queue_full")
        if reads:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            assert length > 12 * MIB
            await reader.readexactly(length)
        await nodes.until(lambda: node.machine.held.total_bytes == 0)
        assert node.machine.accepting
        if not reads:
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await reader.readexactly(12 * MIB)
        writer.transport.abort()


async def test_a_neighbor_that_is_full_refuses_and_the_sender_keeps(nodes):
    """The neighbor b holds nearly as much as it may. What a hands over is not even read there: it
    stays with a and runs there, and b reports that it takes nothing until it has room again."""
    clusters = {"b": {"held_limit_bytes": 2 * MIB}, "a": {"held_limit_bytes": 8 * LIMIT}}
    topology = nodes.topology_of("a", "b", clusters=clusters, payload_limit_bytes=4 * MIB)
    async with nodes.Federation(topology) as federation:
        a, b = federation["a"], federation["b"]
        full = b.post({"service_ms": 1500.0, "x": "x" * (3 * MIB // 2)})
        await nodes.until(lambda: b.machine.held.request_bytes > MIB)
        assert a.may_send_to("b")
        long, *others = (a.post({"service_ms": 200.0, "x": "x" * MIB}) for _ in range(4))
        await nodes.until(lambda: a.shell.metrics._forwards["b", "refused"] == 1)
        await nodes.until(lambda: not a.may_send_to("b"))
        for future in (long, *others):
            answer = json.loads((await future).body)
            assert answer["cluster"] == "a"
        assert (await full).status == 200
        await nodes.until(lambda: a.may_send_to("b"))
