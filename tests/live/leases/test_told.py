"""What a lease member tells of itself, and of how its handlers ended: without Redis."""

from __future__ import annotations

import asyncio
import time

import pytest

from spillover.core.leases import events as ev
from spillover.core.leases.records import Allocation, Snapshot, StoredLoad
from spillover.live.leases.event_log import EventLog
from spillover.live.leases.group import LeaseGroup
from spillover.live.leases.handlers import HandlerRunner
from spillover.live.leases.metrics import LeaseMetrics
from spillover.live.leases.renewal.clock import lease_now_s
from spillover.live.leases.renewal.held import HeldLeases
from spillover.live.leases.renewal.lease import Fenced
from spillover.live.leases.renewal.settings import make_plan
from spillover.live.leases.report import stored_of
from spillover.model.lease_times import LeaseTimes

NOWHERE = "redis://127.0.0.1:1/0"


def test_a_line_has_the_time_of_day_and_what_the_contract_names():
    lines = []
    EventLog("n1", lines.append).tell("serving", url="http://a", problem=None)
    (line,) = lines
    assert abs(line.pop("at_s") - time.time()) < 60.0
    told = {"node": "n1", "event": "serving", "url": "http://a"}
    assert line == told | {"partition": None, "epoch": None}


def test_of_late_renewals_the_latest_of_the_last_hundred_is_told():
    log = EventLog("n1", None)
    assert log.renew_lag_s_max == 0.0
    for late_s in (9.0, *[0.1] * 99, 0.3):
        log.renewed(late_s)
    assert log.renew_lag_s_max == 0.3


def test_a_move_is_a_partition_that_was_acquired():
    """Not one that was won only."""
    member = LeaseGroup(NOWHERE, "g", node="n1", partitions=2, handler=lambda *_: None)
    metrics = LeaseMetrics(member)
    for event in (ev.GRABBED, ev.GRABBED, ev.ACQUIRED):
        metrics.told(event)
    value = metrics.registry.get_sample_value
    assert value("spillover_lease_moves_total", {"node": "n1"}) == 1.0
    assert value("spillover_lease_redis_up", {"node": "n1"}) == 1.0


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


def test_loads_are_told_in_the_units_of_those_who_reported_them():
    held = {0: Allocation("n1", 7, 0, 9_000, 0), 1: Allocation("n2", 8, 0, 9_000, 0)}
    shown = stored_of(Snapshot(1_000, "era", held, {}, {}, {0: StoredLoad(2_500, 500)}))
    assert [row.load for row in shown.allocation] == [2.5, None]


def test_a_store_that_lost_its_data_is_given_a_whole_lease_to_hear_of_holders():
    """By renewals as by all else that is asked of it."""
    times = LeaseTimes()
    plan = make_plan(NOWHERE, "g", 8, times, node="n1", incarnation="i1")
    longest = str(round(times.max_lease_ms))
    assert plan.arguments[1:] == ["8", "guarded", "count", longest, "n1", "i1", longest]


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
