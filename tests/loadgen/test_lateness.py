"""A generator that is held up says so: every time counts from the intended instant."""

import asyncio
import threading

import pytest

from spillover.model.schedule import Arrival
from spillover_loadgen import driver
from spillover_loadgen.record import Outcome
from spillover_loadgen.results import summary

HELD_UP_S = 0.4
DUE_S = 0.1


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
