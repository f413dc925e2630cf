"""Requests between nodes on loopback: handed on, refused, lost, recalled; and what it all took."""

import json
import time

import pytest


def busy(node, service_ms=2000.0):
    """Occupy the one server of a node for a while."""
    return node.post({"service_ms": service_ms})


def pair(nodes, delay_ms=0.0, **fields):
    """Clusters a and b; a has no queue, so that what finds its server busy goes to b."""
    return nodes.topology_of(
        "a", "b", delay_ms=delay_ms, clusters={"a": {"queue_limit": 0}}, **fields
    )


async def heard_by_all(nodes, node):
    """Until its neighbors have told that they hear it, which they may not in their first report."""
    await nodes.until(lambda: all(node.machine.neighbors.accepting))


async def occupy(nodes, node, service_ms=2000.0):
    await heard_by_all(nodes, node)
    future = busy(node, service_ms)
    await nodes.until(lambda: node.machine.servers.busy == 1)
    return future


def answer_of(response):
    assert response.status == 200, response.body
    return json.loads(response.body)


async def timed(asked):
    """The answer, and how long it took as its client saw it, in ms."""
    began_s = time.monotonic()
    answer = answer_of(await asked)
    return answer, (time.monotonic() - began_s) * 1e3


def check_timing(timing, took_ms, *, network_ms, return_ms):
    """No part is shorter than the delays on it, and together they are no longer than what passed,
    by clocks of milliseconds: what was counted twice is too much, however busy the machine is."""
    parts = timing["queued"] + timing["network"] + timing["service"]
    assert timing["total"] == pytest.approx(parts, abs=0.01)
    assert timing["network"] >= network_ms
    assert timing["return"] >= return_ms
    assert timing["total"] + timing["return"] <= took_ms + 5.0


async def test_overflow_is_handed_on_and_answered(nodes):
    """What finds the server busy runs at the idle neighbor, and all durations add up."""
    async with nodes.Federation(pair(nodes, delay_ms=15.0)) as federation:
        a, b = federation["a"], federation["b"]
        held = await occupy(nodes, a)
        answer, took_ms = await timed(a.post({"service_ms": 30}, id="one"))
        assert answer["id"] == "one"
        assert (answer["cluster"], answer["path"], answer["hops"]) == ("b", ["a", "b"], 1)
        assert answer["result"] == {"service_ms": 30.0}
        assert answer["timing_ms"]["service"] == 30.0
        check_timing(answer["timing_ms"], took_ms, network_ms=15.0, return_ms=15.0)
        assert b.ledger.foreign["answered"] == 1
        held.cancel()
