"""Requests that a thread sends by itself, over a socket that blocks: what is sent again, and who
ends what is under way. How connections are kept is tested in live/http1/test_blocking.py."""

from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from spillover.client import Cancelled, OutcomeUnknown, Refused, Retries, Spillover
from spillover.live.http1 import blocking
from support.scripted_server import RESET, done, problem, scripted_aside
from support.waiting import until

FULL = problem(429, "queue_full", retry_after="0")


@pytest.mark.parametrize("first", [RESET, FULL])
def test_what_is_not_done_is_sent_again_under_the_same_name(first):
    with scripted_aside(first, done(1)) as server, Spillover(server.url) as spillover:
        assert spillover.run(None).result == 1
        assert (spillover.stats.retries, len(server.seen)) == (1, 2)
        assert len({headers["idempotency-key"] for _, headers in server.seen}) == 1


@pytest.mark.parametrize(
    ("said", "once", "error"),
    [(RESET, {"at_most_once": True}, OutcomeUnknown), (FULL, {}, Refused)],
)
def test_what_is_sent_once_is_told_why_it_has_no_answer(said, once, error):
    with (
        scripted_aside(said) as server,
        Spillover(server.url, retries=Retries(rounds=1)) as spillover,
    ):
        with pytest.raises(error):
            spillover.run(None, **once)
        assert (spillover.stats.failed, len(server.seen)) == (1, 1)


def test_no_more_than_allowed_are_under_way(bed):
    with Spillover(bed.url, connections_max=2) as spillover, ThreadPoolExecutor(6) as pool:
        runs = [pool.submit(spillover.run, {"service_ms": 30}) for _ in range(12)]
        seen = []
        while not all(run.done() for run in runs):
            seen.append(bed.home["running"])
            wait(runs, timeout=0.001)
        assert max(seen) <= 2
        assert all(run.result().result == {"service_ms": 30.0} for run in runs)


@pytest.mark.parametrize("at_most_once", [False, True])
def test_a_client_that_is_closed_ends_what_threads_wait_for(bed, at_most_once, monkeypatch):
    """At once, and not when they look at the clock the next time."""
    monkeypatch.setattr(blocking, "LOOK_S", 15.0)
    spillover = Spillover(bed.url)
    with ThreadPoolExecutor(3) as pool:
        long = {"service_ms": 60_000}
        runs = [pool.submit(spillover.run, long, at_most_once=at_most_once) for _ in range(3)]
        until(lambda: bed.home["running"] == 3)
        spillover.close()
        assert {type(run.exception(5.0)) for run in runs} == {Cancelled}
    until(lambda: bed.home["running"] == 0)
