"""Whose time is over and whose is not: clients that join, bodies that come slowly, connections in
use, answers that somebody has come for.
"""

import json
import time

import pytest

from spillover.apps.http import connection
from support.federation import answer_of

KEY = b"Idempotency-Key: k\r\n"
GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


def body(service_ms):
    return json.dumps({"payload": {"service_ms": service_ms}}).encode()


def head(length, *lines):
    told = b"".join(lines)
    return b"POST /requests HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%b\r\n" % (length, told)


@pytest.mark.parametrize("how", ["joins", "asks"])
async def test_who_was_answered_hears_nothing_at_the_deadline(nodes, how):
    """What came unasked would be taken for the answer to the next request on the connection."""
    async with nodes.alone() as node:
        first = node.post({"service_ms": 250}, id="k")
        await nodes.until(lambda: node.machine.servers.busy)
        work = body(250)
        reader, writer = await node.connect()
        if how == "joins":
            writer.write(head(len(work), KEY, b"Spillover-Deadline-Ms: 400\r\n") + work)
        else:
            writer.write(b"GET /requests/k?wait_ms=400 HTTP/1.1\r\nHost: x\r\n\r\n")
        ref = node.shell.requests.home.find("k").ref
        await nodes.until(lambda: len(node.shell.requests.waiters.of(ref)) == 2)
        over_s = time.monotonic() + 0.4
        assert (await answer_of(reader))[0] == 200
        assert (await first).status == 200
        await nodes.until(lambda: time.monotonic() > over_s + 0.05)
        writer.write(GET)
        status, told = await answer_of(reader)
        assert status == 200
        assert "reason" not in told
        assert "result" not in told
        writer.close()


@pytest.mark.parametrize(("body_after_s", "deadline_ms"), [(0.2, 400), (0.4, 500)])
async def test_the_deadline_counts_from_the_head(nodes, monkeypatch, body_after_s, deadline_ms):
    """Whether the body was collected ahead or read by a task: who sends it slowly gets no more
    time than others."""
    monkeypatch.setattr(connection, "DIRECT_WITHIN_S", 0.3)
    work = body(300)
    async with nodes.alone() as node:
        reader, writer = await node.connect()
        writer.write(head(len(work), b"Spillover-Deadline-Ms: %d\r\n" % deadline_ms) + work[:5])
        begun_s = time.monotonic()
        await nodes.until(lambda: time.monotonic() > begun_s + body_after_s)
        writer.write(work[5:])
        status, problem = await answer_of(reader)
        assert (status, problem["reason"]) == (504, "deadline_exceeded")
        writer.close()


async def test_a_failure_that_was_told_is_fetched(nodes):
    """Or a node that drains would wait for somebody to come for it again."""
    async with nodes.alone() as node:
        lines = [(b"Prefer", b"respond-async, wait=9"), (b"Spillover-Deadline-Ms", b"30")]
        response = await node.post({"service_ms": 5000}, id="k", headers=lines)
        assert response.status == 504
        assert node.shell.requests.home.unfetched == 0


async def test_a_connection_that_was_just_used_stays_open(nodes):
    """What counts is the last answer."""
    async with nodes.alone() as node:
        await node.client.close()
        connections = node.server.server_state.connections
        await nodes.until(lambda: not connections)
        reader, writer = await node.connect()
        for _ in range(2):
            asked_s = time.monotonic()
            writer.write(GET)
            assert (await answer_of(reader))[0] == 200
            (connection,) = connections
            assert connection.due_s >= asked_s + node.server.bounds.idle_s
        connection.due_s = 0.0
        assert await reader.read() == b""
        writer.close()
