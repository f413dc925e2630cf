"""`spillover bench node`: what links, requests that wait and encrypted connections cost, each stage
once on real nodes, all of them at the same time."""

from __future__ import annotations

import asyncio

import pytest

from spillover.tools.bench.model import BenchPlan
from spillover.tools.bench.node import encrypted, gossip, memory
from spillover.tools.bench.session import Session

pytestmark = [pytest.mark.threes, pytest.mark.timeout(240)]

STAGES = {
    "CPU per link": gossip.measure_gossip,
    memory.ASYNC_CASE: memory.measure_asynchronous,
    encrypted.IDLE: encrypted.measure_idle,
}


@pytest.fixture(scope="module")
def measured():
    """The sessions, by the case that each was asked for."""
    pytest.importorskip("cryptography")
    sessions = {
        case: Session(BenchPlan(runs=1, quick=True, case=case), say=lambda _: None)
        for case in STAGES
    }

    async def main():
        await asyncio.gather(*(stage(sessions[case]) for case, stage in STAGES.items()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gossip, "LINKS", 1)
        patch.setattr(encrypted, "AT_ONCE", 25)
        asyncio.run(main())
    assert [session.notes for session in sessions.values()] == [[], [], []]
    return sessions


@pytest.mark.e2e
def test_a_link_costs_processor_time_at_rest_and_more_where_reports_differ(measured):
    """No node takes more than a core."""
    rows = {row.case: row for row in measured["CPU per link"].rows}
    assert {case: row.peer for case, row in rows.items()} == gossip.PEERS
    idle, busy = (rows[case] for case in gossip.PEERS)
    assert 0 < idle.peer_value < busy.peer_value < 1000
    assert abs(idle.value) < 1000
    assert abs(busy.value) < 1000


@pytest.mark.e2e
def test_memory_is_that_of_one_request_or_connection(measured):
    """Of a body of 256 bytes at least, and not of thousands of them."""
    (queued,) = measured[memory.ASYNC_CASE].rows
    (connection,) = measured[encrypted.IDLE].rows
    assert 256 < queued.value < 256_000
    assert 256 < connection.value < 1_000_000
    assert queued.unit == connection.unit == "bytes"
