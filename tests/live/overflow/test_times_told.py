"""The times in an answer that came from a neighbor: no moment counts twice, none is left out."""

from __future__ import annotations

import json
import time

import pytest

CLOCKS_MS = 5.0
"""What rounding and uvloop's clock of milliseconds may make of it."""


@pytest.mark.parametrize("delay_ms", [0.0, 40.0])
def test_time_at_the_neighbor_is_no_time_on_the_way(nodes, delay_ms):
    """All that is told fits into what the client has waited, and the way is none the longer for
    the work: half of it would show on each way."""

    async def main():
        topology = nodes.topology_of(
            "a", "b", delay_ms=delay_ms, clusters={"a": {"queue_limit": 0}}
        )
        async with nodes.Federation(topology) as federation:
            a = federation["a"]
            await nodes.until(lambda: all(a.machine.neighbors.accepting))
            held = a.post({"service_ms": 9000})
            await nodes.until(lambda: a.machine.servers.busy == 1)
            sent_s = time.monotonic()
            response = await a.post({"service_ms": 600})
            waited_ms = (time.monotonic() - sent_s) * 1e3
            assert response.status == 200
            timing = json.loads(response.body)["timing_ms"]
            told_ms = timing["queued"] + timing["network"] + timing["service"]
            assert timing["total"] == pytest.approx(told_ms, abs=0.01)
            assert told_ms + timing["return"] <= waited_ms + CLOCKS_MS
            assert delay_ms <= timing["network"] < delay_ms + 250.0
            assert delay_ms <= timing["return"] < delay_ms + 250.0
            assert timing["service"] == 600.0
            held.cancel()

    nodes.run(main)
