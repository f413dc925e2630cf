"""A generator that is held up says so: every time counts from the intended instant."""

from __future__ import annotations

import asyncio
import threading

import pytest

from spillover.model.schedule import Arrival
from spillover_loadgen import driver
from spillover_loadgen.record import Outcome
from spillover_loadgen.results import summary

HELD_UP_S = 1.0
DUE_S = 0.5


def test_what_was_sent_late_has_been_waited_for(node):
    """The request was due while the generator did something else: whoever would have sent it has
    waited all that time, though the node answered at once."""
    schedule = [Arrival(0.0, "a"), Arrival(DUE_S, "a")]
    told = []

    def hold_up(record):
        told.append(record)
        if len(told) == 1:
            threading.Event().wait(HELD_UP_S)

    records = asyncio.run(
        driver.run(schedule, {"a": node.url}, seed=1, on_record=hold_up, in_flight_max=9)
    )
    assert [record.outcome for record in records] == [Outcome.OK] * 2
    late = records[1]
    late_ms = (HELD_UP_S - DUE_S) * 1e3
    assert late.sent_lag_s * 1e3 >= late_ms
    assert late.response_time_ms >= late.sent_lag_s * 1e3 >= late_ms
    assert late.system_time_ms == pytest.approx(late.sent_lag_s * 1e3 + 12.5)
    result = summary(records, cluster_ids=["a"], seed=1, duration_s=1.0)
    assert result["kept_up"] is False
    assert result["response_time_ms"]["max"] >= late_ms
    assert result["schedule_lag_ms"]["max"] >= late_ms


def test_who_cannot_keep_up_reads_answers_all_the_same(node):
    """All is due at once, and a stop asked for at the first answer: most is not sent any more."""
    schedule = [Arrival(0.0, "a") for _ in range(4_000)]
    told = []

    async def main():
        stop = asyncio.Event()
        return await driver.run(
            schedule,
            {"a": node.url},
            seed=1,
            stop=stop,
            on_record=lambda _: stop.set(),
            progress=lambda *counts: told.append(counts),
        )

    records = asyncio.run(main())
    sent, done, total = told[-1]
    assert (done, total) == (len(records), 4_000)
    assert 0 < sent < total / 2


def test_what_was_not_sent_for_want_of_room_is_late_too(node):
    """It says when it would have left."""
    schedule = [Arrival(0.0, "a", type="stall"), Arrival(0.01, "a"), Arrival(0.02, "a")]

    def release_after_the_last(sent, done, total):
        if sent == total:
            node.release()

    records = asyncio.run(
        driver.run(
            schedule, {"a": node.url}, seed=1, in_flight_max=1, progress=release_after_the_last
        )
    )
    assert [record.reason for record in records] == [None, "in_flight_limit", "in_flight_limit"]
    assert [record.intended_s for record in records] == [0.0, 0.01, 0.02]
    assert all(record.sent_lag_s >= 0.0 for record in records)
    assert len(node.received) == 1
