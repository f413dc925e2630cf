"""The driver against a real HTTP server on loopback: what is sent, when, and what becomes of it."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
from collections import Counter

import pytest

from spillover.live.http.client import HttpClient
from spillover.model.errors import InputError
from spillover.model.schedule import Arrival
from spillover_loadgen import driver
from spillover_loadgen.record import Outcome


@pytest.fixture
def closed_url():
    """A port on which nobody listens, held so that nobody else takes it."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{holder.getsockname()[1]}"


def send(schedule, node_or_url, **options):
    url = getattr(node_or_url, "url", node_or_url)
    return asyncio.run(driver.run(schedule, {"a": url}, **{"seed": 1, **options}))


def test_connections_are_not_used_that_the_other_end_may_be_closing(node, monkeypatch):
    """Servers close what has been idle for a while: a request sent into that would be lost."""
    monkeypatch.setattr(driver, "IDLE_S_MAX", 0.01)
    send([Arrival(at_s, "a") for at_s in (0.0, 0.2)], node)
    assert node.connections >= driver.CONNECTIONS_WARM + 1


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


def test_a_target_may_have_a_path(node):
    send([Arrival(0.0, "a")], f"{node.url}/behind/")
    assert node.received[0].path == "/behind/requests"


def test_keys_are_new_in_every_run_and_absent_when_not_wanted(node):
    """A repeated key would get the answer to an earlier run; an id is a name already."""
    schedule = [Arrival(0.0, "a"), Arrival(0.0, "a"), Arrival(0.0, "a", id="x")]
    for options in ({}, {}, {"keyed": False}):
        send(schedule, node, **options)
    keys = [received.headers.get("idempotency-key") for received in node.received]
    named = [
        key for received, key in zip(node.received, keys, strict=True) if "id" in received.body
    ]
    assert named == [None, None, None]
    assert len({key for key in keys if key}) == 4
    assert keys.count(None) == 5


def test_a_given_run_id_makes_the_keys_repeat(node):
    send([Arrival(0.0, "a")], node, seed=7, run_id="night")
    assert node.received[0].headers["idempotency-key"] == "7-night-0"


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


def test_one_dead_target_does_not_harm_the_others(node, closed_url):
    schedule = [Arrival(0.01 * n, cluster) for n in range(10) for cluster in "ab"]
    targets = {"a": node.url, "b": closed_url}
    records = asyncio.run(driver.run(schedule, targets, seed=1))
    outcomes = Counter((record.cluster, record.outcome) for record in records)
    assert outcomes == {("a", Outcome.OK): 10, ("b", Outcome.UNREACHABLE): 10}


def test_the_loop_is_open(node):
    """Requests that get no answer do not hold up the ones after them."""
    schedule = [Arrival(0.002 * n, "a", type="stall") for n in range(200)]

    def release_after_the_last(sent, done, total):
        if sent == total:
            node.release()

    records = send(schedule, node, progress=release_after_the_last)
    assert {record.outcome for record in records} == {Outcome.OK}
    arrived_s = [received.at_s for received in node.received]
    assert arrived_s[-1] - arrived_s[0] < 0.398 + 1.0
    # None was answered before the last had been sent.
    assert records[0].response_time_ms > 398


def test_nothing_is_sent_early(node):
    schedule = [Arrival(0.0137 * n, "a") for n in range(30)]
    records = send(schedule, node)
    assert [record.index for record in records] == list(range(30))
    assert min(record.sent_lag_s for record in records) >= 0
    first_s, last_s = node.received[0].at_s, node.received[-1].at_s
    assert last_s - first_s == pytest.approx(0.0137 * 29, abs=0.2)


def test_what_is_due_together_is_sent_together(node):
    records = send([Arrival(0.0, "a") for _ in range(500)], node)
    assert Counter(record.outcome for record in records) == {Outcome.OK: 500}
    assert max(record.sent_lag_s for record in records) < 5.0, "without a pause in between"


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


def test_no_answer_in_time_is_unknown(node, monkeypatch):
    monkeypatch.setattr(driver, "CLIENT_TIMEOUT_EXTRA_S", 0.1)
    [record] = send([Arrival(0.0, "a", type="stall")], node, deadline_ms=50)
    assert record.outcome is Outcome.UNKNOWN


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
    assert max(record.sent_lag_s for record in records) < 1
    gc.collect()  # else a failure that nobody looks at is told later
    assert not caplog.records


def test_answers_that_come_soon_after_a_stop_count(node):
    async def stop_and_release():
        stop = asyncio.Event()

        def watch(sent, done, total):
            if sent == 1 and not stop.is_set():
                stop.set()
                node.release()

        schedule = [Arrival(0.0, "a", type="stall"), Arrival(3600.0, "a")]
        return await driver.run(schedule, {"a": node.url}, seed=1, stop=stop, progress=watch)

    [record] = asyncio.run(stop_and_release())
    assert record.outcome is Outcome.OK


def test_each_record_and_the_progress_are_told(node):
    ended, told = [], []
    schedule = [Arrival(0.01 * n, "a") for n in range(5)]
    records = send(
        schedule, node, on_record=ended.append, progress=lambda *counts: told.append(counts)
    )
    assert sorted(record.index for record in ended) == [record.index for record in records]
    assert told[0][2] == 5
    assert told[-1] == (5, 5, 5)


def test_connections_are_opened_before_time_zero(node):
    send([Arrival(0.0, "a")], node)
    assert node.connections == driver.CONNECTIONS_WARM


def test_what_is_known_of_a_request_is_told_whatever_became_of_it(node, closed_url):
    """Its home, its type, the name that it came with, and when it was due."""
    schedule = [Arrival(0.01, "a", type="503:full", id="x"), Arrival(0.02, "b", type="t2")]
    targets = {"a": node.url, "b": closed_url + "/" + "path" * 100}
    first, second = asyncio.run(driver.run(schedule, targets, seed=1))
    assert (first.cluster, first.type, first.id) == ("a", "503:full", "x")
    assert (first.status, first.hops, first.path, first.executed_cluster) == (503, None, (), None)
    assert (second.cluster, second.type, second.id) == ("b", "t2", None)
    assert (first.intended_s, second.intended_s) == (0.01, 0.02)
    assert (second.status, second.response_time_ms) == (None, None)
    assert second.reason.startswith(closed_url)
    assert len(second.reason) == 200, "the beginning"


def test_times_count_from_the_instant_at_which_a_request_was_due(node):
    """In ms; what it waited before it left is part of both."""
    began_s = time.monotonic()
    [record] = send([Arrival(0.5, "a")], node)
    took_ms = (time.monotonic() - began_s) * 1e3
    assert record.intended_s == 0.5
    lag_ms = record.sent_lag_s * 1e3
    assert 0.0 <= lag_ms < record.response_time_ms < took_ms - 500.0
    assert record.response_time_ms > 0.05, "some of it on the way"


def test_whoever_gives_up_a_request_counts_it(node):
    """Else nobody would know what became of it."""

    async def main():
        client = HttpClient(node.url)
        sending = driver._Sending(
            [Arrival(0.0, "a", type="stall")], {"a": client}, key_prefix=None,
            deadline_ms=None, in_flight_max=9, on_record=None,
        )  # fmt: skip
        sending._send(0, sending._schedule[0])
        (_, future), *_ = sending._in_flight.values()
        future.cancel()
        await sending.wait_for_answers(30.0)
        await client.close()
        return sending.counts, sending.finish()

    counts, [record] = asyncio.run(main())
    assert counts == (1, 1, 1)
    assert (record.outcome, record.reason) == (Outcome.UNKNOWN, "cancelled")


def test_a_fault_of_the_sending_is_no_result(node):
    """Such as a schedule that no body can be made of."""
    with pytest.raises(TypeError):
        send([Arrival(0.0, "a", service_ms=object())], node)


def test_every_target_that_is_missing_is_named(node):
    schedule = [Arrival(0.0, cluster) for cluster in ("c", "a", "b", "c")]
    with pytest.raises(InputError) as error:
        send(schedule, node)
    assert str(error.value) == "--target: expected a URL for each of b, c"


def test_an_empty_schedule_is_no_records(node):
    assert send([], node) == []


def test_an_arrival_without_a_target_is_told(node):
    with pytest.raises(InputError, match="--target: expected a URL for each of b"):
        send([Arrival(0.0, "b")], node)
