"""Bodies of `POST /requests` that come in several segments: soon enough, too slowly, or not to
their end. How they are served must not show."""

from __future__ import annotations

import asyncio
import json

import pytest

from spillover.apps.http import connection
from spillover.apps.http.connection import DIRECT_BODY_BYTES, HttpConnection


def with_node(nodes, check):
    async def main():
        async with nodes.Federation(nodes.topology_of("a")) as federation:
            await check(federation["a"])

    nodes.run(main)


@pytest.fixture
def tasks(monkeypatch):
    """How many requests were given a task."""
    given = []
    give = HttpConnection._give_task

    def noting(self, put_off):
        given.append(put_off)
        give(self, put_off)

    monkeypatch.setattr(HttpConnection, "_give_task", noting)
    return given


def post(content, *lines):
    head = [b"POST /requests HTTP/1.1", b"Host: x", b"Content-Length: %d" % len(content), *lines]
    return b"\r\n".join(head) + b"\r\n\r\n"


def work(size, service_ms=0):
    return json.dumps({"payload": {"service_ms": service_ms, "pad": "x" * size}}).encode()


async def connect(node):
    return await asyncio.open_connection("127.0.0.1", int(node.url.rpartition(":")[2]))


async def answer_of(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line.partition(b":")[2])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length")
    )
    return int(head.split()[1]), json.loads(await reader.readexactly(length))


@pytest.mark.parametrize("size", [0, 10, 60_000, 65_536, 130_000, DIRECT_BODY_BYTES - 100])
def test_a_body_behind_its_head_is_served_without_a_task(nodes, tasks, monkeypatch, size):
    """Whatever its size up to the limit, and the next request of the connection after it. The time
    that it has is made long here: a busy machine may take longer to deliver it."""
    monkeypatch.setattr(connection, "DIRECT_WITHIN_S", 30.0)
    content = work(size)

    async def check(node):
        reader, writer = await connect(node)
        for _ in range(2):
            writer.write(post(content))
            await writer.drain()
            writer.write(content[: size // 2])
            await writer.drain()
            writer.write(content[size // 2 :])
            status, body = await answer_of(reader)
            assert (status, body["result"]) == (200, {"service_ms": 0.0})
        writer.close()
        assert not tasks

    with_node(nodes, check)


def test_a_client_that_leaves_within_its_body_leaves_nothing(nodes, monkeypatch):
    """Neither a request nor a timer."""
    monkeypatch.setattr(connection, "DIRECT_WITHIN_S", 30.0)
    gone = []
    lose = HttpConnection.connection_lost

    def noting(self, error):
        lose(self, error)
        gone.append(self)

    monkeypatch.setattr(HttpConnection, "connection_lost", noting)
    content = work(1000)

    async def check(node):
        _, writer = await connect(node)
        writer.write(post(content) + content[:500])
        await writer.drain()
        await asyncio.wait_for(_begun(node, nodes), 30)
        writer.transport.abort()
        await nodes.until(lambda: len(gone) == 1)
        assert gone[0]._put_off is None
        assert gone[0]._put_off_timer.cancelled()
        assert node.machine.ledger.home["accepted"] == 0

    with_node(nodes, check)


async def _begun(node, nodes):
    """Until the server waits for the rest of a body."""
    await nodes.until(
        lambda: any(
            isinstance(each, HttpConnection) and each._put_off is not None
            for each in node.server.server_state.connections
        )
    )
