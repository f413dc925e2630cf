"""`spillover bench leases`: its arithmetic, and small runs of its cases on a real Redis."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import psutil
import pytest

from spillover.live.leases.renewal.lease import Fenced
from spillover.live.leases.sinks.redis_sink import RedisSink
from spillover.testbed.redis import open_sync_client
from spillover.tools.bench.leases import (
    STAGES,
    fenced,
    holding,
    lateness,
    renewing,
    settings,
    takeover,
)
from spillover.tools.bench.leases.ownership import Ownership, Report, replayed
from spillover.tools.bench.leases.readings import Reading
from spillover.tools.bench.leases.server import own_redis
from spillover.tools.bench.model import BenchPlan
from spillover.tools.bench.session import Session

COMMAND = [sys.executable, "-m", "spillover", "bench", "leases", "--quick", "--json", "--case"]


@pytest.fixture
def session(redis_servers):
    """A quick one; the fixture it asks for is what skips where there is no Redis."""
    return Session(BenchPlan(runs=1, quick=True), say=lambda _: None)


def told(*reports):
    return [Report(float(at_s), node, partition, runs) for at_s, node, partition, runs in reports]


def test_cases_have_names_of_their_own():
    """--case picks by them."""
    names = [case for stage in STAGES for case in stage.cases]
    assert len(names) == len(set(names)) >= 20


def test_ownership_is_even_from_when_it_stayed_so():
    """A partition that two run is not even, nor one that moved away and has to come back."""
    reports = told(
        (1, "a", 0, True),
        (2, "a", 1, True),
        (3, "b", 1, True),
        (4, "a", 1, False),
        (5, "b", 1, False),
        (6, "b", 1, True),
    )
    until_4 = replayed(reports[:4], 2, "ab")
    assert (until_4.even_since_s, until_4.moves, until_4.served_once) == (4.0, 1, 2)
    assert until_4.counts == {"a": 1, "b": 1}
    assert replayed(reports[:3], 2, "ab").even_since_s is None
    assert replayed(reports[:3], 2, "ab").served_once == 1
    assert replayed(reports[:2], 2, "ab").even_since_s is None
    whole = replayed(reversed(reports), 2, "ab")
    assert (whole.even_since_s, whole.moves, whole.held_by("b")) == (6.0, 1, [1])


def test_what_is_said_twice_counts_once():
    """And what nobody of the group says does not count."""
    ownership = Ownership(1, "a")
    for report in told((1, "a", 0, True), (2, "a", 0, True), (3, "x", 0, True)):
        ownership.note(report)
    assert (ownership.counts, ownership.even_since_s) == ({"a": 1}, 1.0)


def test_what_was_between_two_readings_leaves_the_reading_itself_out():
    """It is a round trip, too, and none of a member's."""
    before = Reading(10.0, 100, 1.0, 5, 6, {"get": 3})
    after = Reading(12.5, 141, 1.5, 15, 26, {"get": 4, "set": 2})
    assert after.since(before) == Reading(2.5, 40, 0.5, 10, 20, {"get": 1, "set": 2})


def test_a_limit_is_told_with_its_verdict(session):
    """By the median, as the table shows it."""
    settings.hold_against(session, "c", "ms", [10.0, 90.0, 20.0], 50.0)
    settings.hold_against(session, "d", "ms", [60.0], 50.0)
    assert [(row.peer, row.peer_value, row.value) for row in session.rows] == [
        ("limit", 50.0, 20.0),
        ("limit", 50.0, 60.0),
    ]
    assert [note.rpartition(" here: ")[2] for note in session.notes] == ["met", "NOT met"]


def started():
    """Processes of this one's, but for the one that multiprocessing keeps."""
    found = psutil.Process().children(recursive=True)
    return {one for one in found if "resource_tracker" not in " ".join(one.cmdline())}


@pytest.mark.e2e
@pytest.mark.threes
def test_a_group_is_followed_from_nothing_to_rest(session):
    """Even without a move, and each member renews and looks once a period, whatever it holds: far
    fewer round trips than one for each partition and period, as locks take. Nothing is left."""
    before = started()
    partitions = 60
    asked = partitions * 1000.0 / settings.TIMES.renewal_period_ms

    async def main():
        with own_redis(session) as server:
            ours = await holding.live(session, server.url, "guarded", 3, partitions, seed=1)
            locks = await holding.live(session, server.url, "locks", 3, partitions, seed=1)
        return ours, locks

    ours, locks = asyncio.run(main())
    assert ours.was_even
    assert locks.was_even
    assert (ours.served_once, ours.figures[holding.MOVES]) == (partitions, 0)
    assert locks.served_once == partitions
    assert 0 < ours.figures[holding.EVEN] < holding.EVEN_WITHIN_S["guarded"]
    assert 3 <= ours.figures[holding.TRIPS] < asked / 2
    assert locks.figures[holding.TRIPS] > ours.figures[holding.TRIPS]
    # Each was won by one of three and started; that is not asked for again and again.
    assert 2 * partitions <= ours.figures[holding.SPENT] < 10 * partitions
    for figures in (ours.figures, locks.figures):
        assert all(figures[case] > 0 for case in (holding.REDIS_CPU, holding.NETWORK))
    assert started() <= before


@pytest.mark.e2e
@pytest.mark.threes
@pytest.mark.parametrize("mode", [renewing.PROCESS, renewing.TASK])
def test_renewals_under_load_are_timed(session, mode):
    """However they are sent: what was due within the load, once a period each, and in time for
    their leases, so that none is lost."""
    spare_ms = settings.TIMES.max_lease_ms - settings.TIMES.renewal_period_ms

    async def main():
        with own_redis(session) as server:
            plan = renewing.LoadedPlan(url=server.url, mode=mode, members=2, load_s=1.1)
            return await lateness.under_load(plan, 1)

    (loaded,) = asyncio.run(main())
    assert 2 <= len(loaded.late_ms) <= 4
    assert all(0 <= late < spare_ms for late in loaded.late_ms)
    assert loaded.lost == 0
    # Four threads read batches all the while, not each of them just one.
    assert 0 < loaded.batch_ms < 1100 / renewing.HANDLERS


@pytest.mark.e2e
@pytest.mark.threes
def test_a_takeover_is_timed(session):
    """After what is left of a lease, at least, and within the bound, with a second for a machine
    that is busy: not after one lease more."""

    async def main():
        with own_redis(session) as server:
            return await takeover.take_over(server.url, "guarded", 0.0, seed=1)

    least_s = (settings.TIMES.max_lease_ms - settings.TIMES.normal_lease_ms) / 1000.0
    assert 0.9 * least_s < asyncio.run(main()) < takeover.BOUND_S + 1.0


@pytest.mark.e2e
@pytest.mark.threes
def test_what_is_timed_as_fenced_is_fenced(session):
    """In one round trip, where the peer that reads before it writes takes several; and refused as
    soon as a later epoch is known."""
    lease = fenced._lease()
    with own_redis(session) as server, open_sync_client(server.url) as client:
        sink = RedisSink(client, fenced.NAME)
        fence, write = fenced.fence_key(fenced.NAME), ("SET", fenced.KEYS[0], fenced.VALUE)

        def round_trips(call):
            call()
            before = client.info("stats")["total_reads_processed"]
            call()
            return client.info("stats")["total_reads_processed"] - before - 1

        assert round_trips(lambda: sink.apply(lease, write)) == 1
        assert round_trips(lambda: sink.claim(lease)) == 1
        assert round_trips(lambda: fenced._watched(client)) >= 3
        assert client.get(fenced.KEYS[0]).decode() == fenced.VALUE
        client.set(fenced.KEYS[0], "later")
        client.hset(fence, "0", f"{fenced.EPOCH + 1}|")
        with pytest.raises(Fenced):
            sink.apply(lease, write)
        with pytest.raises(Fenced):
            sink.claim(lease)
        assert client.get(fenced.KEYS[0]) == b"later"


@pytest.mark.e2e
@pytest.mark.threes
def test_one_case_gives_one_object(session):
    """With its peers, and which Redis it was."""
    run = subprocess.run(
        [*COMMAND, "write: "], capture_output=True, text=True, check=False, timeout=60
    )
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout)
    assert result["name"] == "leases"
    rows = [(row["case"], row["peer"]) for row in result["rows"]]
    peers = ["plain SET", "plain HSET", "WATCH, HGET, MULTI, SET"]
    assert rows == [(case, peer) for case in (fenced.WRITE, fenced.WRITE_CPU) for peer in peers]
    assert all(row["value"] > 0 for row in result["rows"])
    assert all(row["ratio"] == row["value"] / row["peer_value"] for row in result["rows"])
    assert any(note.startswith("redis-server ") for note in result["notes"])
