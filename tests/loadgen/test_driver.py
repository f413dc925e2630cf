"""The driver against a real HTTP server on loopback: what is sent, when, and what becomes of it."""

import asyncio
import gc
import socket
import time
from collections import Counter

import pytest

from spillover.model.schedule import Arrival
from spillover_loadgen import driver
from spillover_loadgen.record import Outcome
from support.waiting import slack


@pytest.fixture
def closed_url():
    """A port on which nobody listens, held so that nobody else takes it."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{holder.getsockname()[1]}"


def send(schedule, node_or_url, **options):
    url = getattr(node_or_url, "url", node_or_url)
    return asyncio.run(driver.run(schedule, {"a": url}, **{"seed": 1, **options}))


def test_an_answer_becomes_a_record(node):
    """System time is the lag of the sending plus the node's total; response time is our own, from
    the intended instant (see `test_lateness`)."""
    [record] = send([Arrival(0.05, "a", service_ms=10.0)], node)
    assert (record.outcome, record.status, record.reason) == (Outcome.OK, 200, None)
    assert (record.hops, record.path, record.executed_cluster) == (1, ("a", "b"), "b")
    assert record.sent_lag_s >= 0
    assert record.system_time_ms == pytest.approx(record.sent_lag_s * 1000 + 12.5)
    assert record.response_time_ms > 0
    assert record.id == node.received[0].headers["idempotency-key"]


def test_requests_carry_service_time_type_and_deadline(node):
    schedule = [Arrival(0.0, "a"), Arrival(0.01, "a", service_ms=12.5, type="200", id="x")]
    send(schedule, node, deadline_ms=1_000_000)
    first, second = node.received
    assert first.path == "/requests"
    assert first.body == {"payload": {}}
    assert second.body == {"payload": {"service_ms": 12.5}, "type": "200", "id": "x"}
    assert second.headers["spillover-deadline-ms"] == "1000000"


@pytest.mark.parametrize(
    ("wish", "outcome", "reason"),
    [
        ("429:queue_full", Outcome.REFUSED, "queue_full"),
        ("503:draining", Outcome.REFUSED, "draining"),
        ("504:deadline_exceeded", Outcome.EXPIRED, "deadline_exceeded"),
        ("409:cancelled", Outcome.CANCELLED, "cancelled"),
        ("409:conflict", Outcome.FAILED, "conflict"),
        ("502:outcome_unknown", Outcome.UNKNOWN, "outcome_unknown"),
        ("502:handler_failed", Outcome.FAILED, "handler_failed"),
        ("422:invalid", Outcome.FAILED, "invalid"),
        ("500:", Outcome.FAILED, None),
        ("garbage", Outcome.FAILED, "invalid_answer"),
    ],
)
def test_every_answer_has_its_outcome(node, wish, outcome, reason):
    [record] = send([Arrival(0.0, "a", type=wish)], node)
    assert (record.outcome, record.reason) == (outcome, reason)
    assert record.system_time_ms is None
    assert record.response_time_ms > 0


def test_a_dead_target_is_unreachable(closed_url):
    records = send([Arrival(0.0, "a"), Arrival(0.01, "a")], closed_url)
    assert [record.outcome for record in records] == [Outcome.UNREACHABLE] * 2
    assert closed_url in records[0].reason


def test_a_connection_that_breaks_after_the_request_left_is_unknown(node):
    [record] = send([Arrival(0.0, "a", type="reset")], node)
    assert record.outcome is Outcome.UNKNOWN
    assert record.status is None


def test_the_loop_is_open(node):
    """Requests that get no answer do not hold up the ones after them."""
    schedule = [Arrival(0.002 * n, "a", type="stall") for n in range(200)]

    def release_after_the_last(sent, done, total):
        if sent == total:
            node.release()

    records = send(schedule, node, progress=release_after_the_last)
    assert {record.outcome for record in records} == {Outcome.OK}
    arrived_s = [received.at_s for received in node.received]
    assert arrived_s[-1] - arrived_s[0] < 0.398 + slack()
    # None was answered before the last had been sent.
    assert records[0].response_time_ms > 398


def test_more_in_flight_than_allowed_is_not_sent_and_said(node):
    schedule = [Arrival(0.0, "a", type="stall") for _ in range(5)]

    def release_when_all_are_settled(sent, done, total):
        if sent == total:
            node.release()

    records = send(schedule, node, in_flight_max=3, progress=release_when_all_are_settled)
    assert [record.reason for record in records] == [None] * 3 + ["in_flight_limit"] * 2
    assert Counter(record.outcome for record in records) == {
        Outcome.OK: 3,
        Outcome.UNREACHABLE: 2,
    }
    assert len(node.received) == 3


def test_a_stop_ends_the_sending_and_counts_what_is_not_answered(node, monkeypatch, caplog):
    """Every request sent has one outcome; those that were not sent are not counted. What is given
    up ends quietly."""
    monkeypatch.setattr(driver, "STOP_GRACE_S", 0.1)
    schedule = [
        Arrival(0.0, "a"),
        Arrival(0.0, "a", type="stall"),
        Arrival(3600.0, "a"),
    ]

    async def stop_after_two():
        stop = asyncio.Event()

        def watch(sent, done, total):
            if (sent, done) == (2, 1):
                stop.set()

        return await driver.run(schedule, {"a": node.url}, seed=1, stop=stop, progress=watch)

    began_s = time.monotonic()
    records = asyncio.run(stop_after_two())
    assert time.monotonic() - began_s < 30
    assert [record.outcome for record in records] == [Outcome.OK, Outcome.UNKNOWN]
    assert records[1].reason == "interrupted"
    assert max(record.sent_lag_s for record in records) < 30
    gc.collect()  # else a failure that nobody looks at is told later
    assert not caplog.records
