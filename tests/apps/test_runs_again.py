"""A name after a failure: the same request under it runs again, once at a time."""

import json
import sys
from contextlib import asynccontextmanager

import pytest


def keyed(*more):
    return [(b"Idempotency-Key", b"k"), *more]


def body(payload=None, **fields):
    return json.dumps({"payload": payload, **fields}).encode()


@pytest.fixture
def flaky(monkeypatch):
    """A handler that fails until it is told to work, and counts its runs."""

    class Flaky:
        def __init__(self):
            self.runs = 0
            self.works = False
            self.held = None

        async def run(self, _):
            self.runs += 1
            if self.held is not None:
                await self.held.wait()
            if not self.works:
                raise RuntimeError("not yet")
            return self.runs

    handler = Flaky()
    monkeypatch.setitem(sys.modules, "flaky_of_tests", handler)
    return handler


@asynccontextmanager
async def a_node(nodes, *, limit=None, **fields):
    """The node of one cluster whose handler is the flaky one."""
    cluster = {"handler": "python:flaky_of_tests:run", "service_ms": 1.0}
    if limit is not None:
        cluster["queue_limit"] = limit
    topology = nodes.topology_of("a", clusters={"a": cluster}, **fields)
    async with nodes.Federation(topology) as federation:
        node = federation["a"]
        yield node
        node.shell.room.kept.check()


async def test_what_failed_runs_again_and_what_is_done_does_not(nodes, flaky):
    """By key or id. Each run is one accepted request of the ledger."""
    async with a_node(nodes) as node:
        for number in range(3):
            status, headers, problem = await node.send("POST", "/requests", body(1), keyed())
            assert (status, problem["reason"]) == (502, "handler_failed")
            assert b"spillover-replayed" not in headers
            assert flaky.runs == number + 1
        flaky.works = True
        status, headers, answer = await node.send("POST", "/requests", body(1, id="k"))
        assert (status, answer["result"], b"spillover-replayed" in headers) == (200, 4, False)
        status, headers, answer = await node.send("POST", "/requests", body(1), keyed())
        assert (status, answer["result"]) == (200, 4)
        assert headers[b"spillover-replayed"] == b"true"
        home = node.ledger.home
        assert (home["accepted"], home["failed"], home["done"]) == (4, 3, 1)
        assert len(node.shell.room.kept) == 1
