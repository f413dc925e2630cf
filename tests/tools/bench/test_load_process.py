"""What the process that asks tells of its requests: how late they left, and what was answered."""

from __future__ import annotations

import asyncio
import threading

import pytest

from spillover.model.errors import RunError
from spillover.model.ids import ClusterId
from spillover.model.schedule import Arrival
from spillover.tools.bench import asking, load_process
from spillover.tools.bench.load_process import Closed, Scheduled, _Worker, fates_of
from spillover_loadgen.record import Outcome, Record

A = ClusterId("a")
STEP_S, HELD_UP_S = 0.05, 0.5


def test_lags_are_told_in_ms_and_part_of_what_was_waited(nodes):
    """The note beside the added latency says how much of it the generator is to blame for."""
    schedule = [Arrival(number * STEP_S, A, service_ms=1.0) for number in range(20)]
    told = []

    async def main():
        async with nodes.Federation(nodes.topology_of("a")) as federation:
            a = federation["a"]
            job = Scheduled(url=a.url, schedule=schedule, seed=1)
            measuring = asyncio.create_task(_Worker()._scheduled(job))
            await nodes.until(lambda: a.ledger.home["accepted"])
            threading.Event().wait(HELD_UP_S)
            told.append(await measuring)

    nodes.run(main)
    (times,) = told
    assert len(times.lag_ms) == len(schedule)
    assert (HELD_UP_S - 2 * STEP_S) * 1e3 <= max(times.lag_ms) <= 10_000.0
    pairs = zip(times.response_ms, times.lag_ms, strict=True)
    assert all(response_ms > lag_ms >= 0.0 for response_ms, lag_ms in pairs)


def test_what_was_refused_is_no_time_of_an_answer(nodes):
    """A refusal comes fast: counted, it would flatter."""

    async def main():
        topology = nodes.topology_of("a", clusters={"a": {"queue_limit": 0}})
        async with nodes.Federation(topology) as federation:
            schedule = [Arrival(0.0, A, service_ms=100.0)] * 3
            job = Scheduled(url=federation["a"].url, schedule=schedule, seed=1)
            with pytest.raises(RunError, match="not every request was answered by 200"):
                await _Worker()._scheduled(job)

    nodes.run(main)


def test_what_is_answered_otherwise_than_expected_is_no_throughput(nodes):
    """What a node cannot even read it answers faster than what it runs."""

    async def main():
        async with nodes.Federation(nodes.topology_of("a")) as federation:
            worker, url = _Worker(), federation["a"].url
            job = Closed(url=url, body=b"{", connections=2, duration_s=0.05)
            said = r'expected status \[200\], got 422: \{"type":"about:blank",.*"reason":"invalid"'
            with pytest.raises(RunError, match=said):
                await worker._closed(job)
            await worker._clients[url].close()

    nodes.run(main)


@pytest.mark.parametrize("asker", [asking, load_process])
def test_a_job_is_waited_for_longer_than_its_last_answer(asker):
    """Else one that does not come would be told as a process that says nothing."""
    assert asker.JOB_EXTRA_S >= 2 * asker.ANSWER_WITHIN_S


def test_fates_are_by_place_and_only_of_what_went_wrong_in_words():
    records = [
        Record(index=k, cluster="a", intended_s=0.0, sent_lag_s=0.002 * k, outcome=outcome, **more)
        for k, (outcome, more) in enumerate([
            (Outcome.OK, {"response_time_ms": 7.0}),
            (Outcome.REFUSED, {"response_time_ms": 1.0, "reason": "queue_full"}),
            (Outcome.UNKNOWN, {}),
        ])
    ]  # fmt: skip
    fates = fates_of(records)
    assert fates.response_ms == [7.0, 1.0, None]
    assert fates.lag_ms == [0.0, 2.0, 4.0]
    assert fates.others == {1: (Outcome.REFUSED, "queue_full"), 2: (Outcome.UNKNOWN, None)}
