"""A request that is handed on between nodes on loopback, and what it all took."""

import json
import time

import pytest

DELAY_MS = 15.0


async def test_overflow_is_handed_on_and_answered(nodes):
    """What finds the server busy runs at the idle neighbor, and all durations add up: no part is
    shorter than the delays on it, and together they are no longer than what passed, by clocks of
    milliseconds. What was counted twice is too much, however busy the machine is."""
    clusters = {"a": {"queue_limit": 0}}
    topology = nodes.topology_of("a", "b", delay_ms=DELAY_MS, clusters=clusters)
    async with nodes.Federation(topology) as federation:
        a, b = federation["a"], federation["b"]
        # Its neighbor has told that it hears a, which it may not in its first report.
        await nodes.until(lambda: all(a.machine.neighbors.accepting))
        held = a.post({"service_ms": 2000.0})
        await nodes.until(lambda: a.machine.servers.busy == 1)
        began_s = time.monotonic()
        response = await a.post({"service_ms": 30}, id="one")
        took_ms = (time.monotonic() - began_s) * 1e3
        assert response.status == 200, response.body
        answer = json.loads(response.body)
        assert answer["id"] == "one"
        assert (answer["cluster"], answer["path"], answer["hops"]) == ("b", ["a", "b"], 1)
        assert answer["result"] == {"service_ms": 30.0}
        timing = answer["timing_ms"]
        assert timing["service"] == 30.0
        parts = timing["queued"] + timing["network"] + timing["service"]
        assert timing["total"] == pytest.approx(parts, abs=0.01)
        assert min(timing["network"], timing["return"]) >= DELAY_MS
        assert timing["total"] + timing["return"] <= took_ms + 5.0
        assert b.ledger.foreign["answered"] == 1
        held.cancel()
