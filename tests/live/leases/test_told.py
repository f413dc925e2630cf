"""What a lease member tells of itself, and of how its handlers ended: without Redis."""

from __future__ import annotations

import asyncio

import pytest

from spillover.core.leases import events as ev
from spillover.core.leases.records import (
    Allocation,
    Grab,
    Registration,
    Snapshot,
)
from spillover.live.leases.group import LeaseGroup
from spillover.live.leases.handlers import HandlerRunner
from spillover.live.leases.metrics import LeaseMetrics
from spillover.live.leases.renewal.clock import lease_now_s
from spillover.live.leases.renewal.held import HeldLeases
from spillover.live.leases.renewal.lease import Fenced
from spillover.live.leases.report import (
    GrabRow,
    GroupReport,
    MemberRow,
    Stored,
    stored_of,
)

NOWHERE = "redis://127.0.0.1:1/0"


def test_handlers_that_failed_and_each_event_are_counted():
    """Events by their kinds, those that have not happened as 0: alerts ask for a rise."""
    member = LeaseGroup(NOWHERE, "g", node="n1", partitions=2, handler=lambda *_: None)
    metrics = LeaseMetrics(member)
    value = metrics.registry.get_sample_value
    for count in range(3):
        assert value("spillover_lease_handler_failures_total", {"node": "n1"}) == count
        member.events.handler_failed()
    for _ in range(2):
        member.events.happened(ev.Tell(ev.GRABBED, 0, 1), None)
    told = {"node": "n1", "event": ev.GRABBED}
    assert value("spillover_lease_events_total", told) == 2.0
    assert value("spillover_lease_events_total", told | {"event": ev.ACQUIRED}) == 0.0
    assert value("spillover_lease_moves_total", {"node": "n1"}) == 0.0
    assert value("spillover_lease_held", {"node": "n1"}) == 0.0


def test_what_is_over_is_no_member_and_holds_nothing():
    """Instants of Redis's clock become times that are left; a row of what was ever served stays."""
    held = {
        2: Allocation("n2", 5, 100.0, 900.0),
        0: Allocation("n1", 7, 200.0, 9_000.0),
        1: Allocation("n1", 8, 300.0, 9_500.0, 9_200.0),
    }
    grabs = {3: Grab("n1", 400.0, 1_250.0), 4: Grab("n2", 10.0, 1_000.0)}
    members = {
        "n3": Registration(1_000.0, "x"),
        "n2": Registration(1_001.0, "y"),
        "n1": Registration(5_000.0, "z"),
    }
    shown = stored_of(Snapshot(1_000.0, "era", held, grabs, members))
    assert shown.now_ms == 1_000.0
    assert shown.members == [MemberRow("n1", 4_000.0, 2), MemberRow("n2", 1.0, 0)]
    assert shown.grabs == [GrabRow(3, "n1", 400.0, 250.0)]
    told = [(row.partition, row.node, row.epoch, row.since_ms) for row in shown.allocation]
    assert told == [(0, "n1", 7, 200.0), (1, "n1", 8, 300.0), (2, "n2", 5, 100.0)]
    assert [row.lease_ms_left == 0.0 for row in shown.allocation] == [False, False, True]
    assert [row.stopping for row in shown.allocation] == [False, True, False]


@pytest.mark.parametrize("drains", [False, True])
def test_why_a_member_can_serve_nothing_yet(drains):
    """Whoever looks on learns what it waits for."""

    async def main():
        member = LeaseGroup(NOWHERE, "g", node="n1", partitions=2, handler=lambda *_: None)
        report = GroupReport(member)
        if drains:
            member.drain_soon()
            expected = ("draining", "member n1 is handing over")
        else:
            expected = ("joining", "member n1 is joining: it has not been let in yet")
        assert report.not_ready() == expected
        assert (member.state, member.held, member.renewal) == ("new", {}, "")
        seen = await report.look()
        assert (seen.stored, seen.as_of_s) == (Stored(), None)
        assert "127.0.0.1:1" in seen.problem
        assert (await report.look()).problem == seen.problem
        await report.close()

    asyncio.run(main())


async def cancels_itself(*_):
    raise asyncio.CancelledError


async def is_fenced(partition, epoch, _):
    raise Fenced(partition, epoch, "the sink has seen epoch 9")


async def fails(*_):
    raise ValueError("no such record")


@pytest.mark.parametrize(
    ("handler", "problem"),
    [
        (cancels_itself, "it cancelled itself"),
        (is_fenced, None),
        (fails, "ValueError: no such record"),
    ],
)
def test_what_a_handler_ended_by(handler, problem):
    """That it was fenced is no fault of its own."""

    async def main():
        ended = asyncio.get_running_loop().create_future()
        runner = HandlerRunner(handler, lambda lease, why: ended.set_result((lease, why)))
        lease = HeldLeases(1).grant(0, 7, lease_now_s() + 60.0)
        runner.start(lease)
        assert await asyncio.wait_for(ended, 20.0) == (lease, problem)

    asyncio.run(main())
