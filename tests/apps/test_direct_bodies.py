"""Bodies of `POST /requests` that come in several segments: soon enough, or not to their end. How
they are served must not show."""

import json

import pytest

from spillover.apps.http import connection
from spillover.apps.http.connection import DIRECT_BODY_BYTES, HttpConnection
from support.federation import answer_of


def post(content):
    head = b"POST /requests HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
    return head % len(content)


def work(size):
    return json.dumps({"payload": {"service_ms": 0, "pad": "x" * size}}).encode()


@pytest.mark.parametrize("size", [10, 65_536, DIRECT_BODY_BYTES - 100])
async def test_a_body_behind_its_head_is_served_without_a_task(nodes, monkeypatch, size):
    """Whatever its size up to the limit, and the next request of the connection after it. The time
    that it has is made long here: a busy machine may take longer to deliver it."""
    monkeypatch.setattr(connection, "DIRECT_WITHIN_S", 30.0)
    monkeypatch.setattr(HttpConnection, "_give_task", None)
    content = work(size)
    async with nodes.alone() as node:
        reader, writer = await node.connect()
        for _ in range(2):
            for segment in (post(content), content[: size // 2], content[size // 2 :]):
                writer.write(segment)
                await writer.drain()
            status, body = await answer_of(reader)
            assert (status, body["result"]) == (200, {"service_ms": 0.0})
        writer.close()
        await nodes.until(lambda: len(node.server.server_state.connections) == 0)


async def test_a_client_that_leaves_within_its_body_leaves_nothing(nodes, monkeypatch):
    """Neither a request nor a timer."""
    monkeypatch.setattr(connection, "DIRECT_WITHIN_S", 30.0)
    content = work(1000)
    async with nodes.alone() as node:
        connections = node.server.server_state.connections
        _, writer = await node.connect()
        writer.write(post(content) + content[:500])
        (waits,) = await nodes.until(lambda: [one for one in connections if one._put_off])
        writer.transport.abort()
        await nodes.until(lambda: waits not in connections)
        assert (waits._put_off, waits._put_off_timer.cancelled()) == (None, True)
        assert node.machine.ledger.home["accepted"] == 0
