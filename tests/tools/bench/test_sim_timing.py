"""What is timed of our engines: never that something is compiled, and always all that was asked
for."""

from __future__ import annotations

import asyncio
import importlib.util
import multiprocessing
import time

import pytest

from spillover.model.errors import RunError
from spillover.model.ids import ClusterId
from spillover.model.schedule import Arrival
from spillover.tools.bench.model import BenchPlan
from spillover.tools.bench.session import Session
from spillover.tools.bench.sim import STAGES, scale, speed
from support.benches import Brief, played
from support.knots import left_over

pytestmark = pytest.mark.slow

FAST = "spillover.sim.fast.overflow.run"
FIRST_S = 0.3
"""What the first call of the compiled engine takes longer, as where it is compiled."""


@pytest.fixture
def calls(require, monkeypatch):
    """Of the compiled engine: how many clusters and links, requests, and the seed."""
    require(importlib.util.find_spec("numba"), "numba, from the extra `sim`")
    from spillover.sim.fast.overflow import run as fast

    found, run_fast = [], fast.run_fast
    run_fast(scale.circulant(5, 1), [], 1)

    def run(topology, arrivals, seed):
        if not found:
            compiled_s = time.perf_counter() + FIRST_S
            while time.perf_counter() < compiled_s:
                pass
        found.append((len(topology.clusters), len(topology.links), len(arrivals), seed))
        return run_fast(topology, arrivals, seed)

    monkeypatch.setattr(fast, "run_fast", run)
    return found


def limited(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 20.0))


def test_a_large_run_is_timed_once_all_is_compiled(calls, monkeypatch):
    monkeypatch.setattr(scale, "CLUSTERS", 20)
    ours, there = multiprocessing.Pipe()
    scale.run_large(3000, 7, there)
    wall_s, _ = ours.recv()
    ours.close()
    there.close()
    assert calls == [(5, 5, 0, 7), (20, 40, 3000, 7)]
    assert wall_s < FIRST_S


@pytest.mark.parametrize("quick", [True, False])
def test_large_runs_are_processes_of_their_own_beside_their_limits(quick):
    """With as many requests as the plan says; a quick run is small, and has no limits."""
    told = []

    async def run_large(requests, seed, there):
        told.append((requests, seed))
        there.send((2.0 + len(told), 100.0 * len(told)))

    works = {scale.run_large: run_large}
    here, session = played(STAGES, works, case="10^7", seed=7, runs=2, quick=quick)
    told_of = f"{'200 000' if quick else '10^7'} requests, 1 000 clusters"
    assert told == [(10_000 if quick else 500_000, 7)] * 2  # parts of 200 000 and 10^7
    found = [(row.case, row.unit, row.values, row.peer, row.peer_values) for row in session.rows]
    limits = [(None, ()), (None, ())] if quick else [("limit", (120.0,)), ("limit", (2000.0,))]
    assert found == [
        (f"{told_of}: time", "s", (3.0, 4.0), *limits[0]),
        (f"{told_of}: memory", "MB", (100.0, 200.0), *limits[1]),
    ]
    assert [name for name, *_ in here.started] == ["the large run"] * 2
    assert here.said == [f"{told_of}: time: run {number} of 2" for number in (1, 2)]
    _, session = played(STAGES, works, case="10^7 requests, 1 000 clusters: memory", quick=quick)
    assert [row.unit for row in session.rows] == ["MB"]


def test_a_large_run_that_loses_requests_says_so(calls, monkeypatch):
    """Rather than how fast it was."""
    monkeypatch.setattr(scale, "CLUSTERS", 5)
    monkeypatch.setattr(f"{FAST}.FastRun.as_dict", lambda run: {"requests": run.ended - 2})
    ours, there = multiprocessing.Pipe()
    scale.run_large(100, 7, there)
    assert str(ours.recv()) == "2 requests came to no outcome"
    ours.close()
    there.close()
    assert len(calls) == 2


def test_neighbors_are_timed_in_turn_once_all_is_compiled(calls):
    """The same requests for each number of them."""
    here, session = played(STAGES, case="neighbors", seed=7, runs=2)
    circles = [(60, 60 * reach, 5000, 7) for reach in (1, 2, 4, 8)]
    assert calls == [(60, 60, 0, 7), *circles * 2]
    assert [(row.case, row.unit, row.peer) for row in session.rows] == [
        (f"cost of a request, {count} neighbors", "us", "2 neighbors") for count in (4, 8, 16)
    ]
    assert all(0.0 < value < FIRST_S / 5000 * 1e6 for row in session.rows for value in row.values)
    assert here.said == [f"cost of a request by neighbors: run {number} of 2" for number in (1, 2)]


def test_engines_play_the_same_schedule(calls, monkeypatch):
    """Beside the same rules not compiled, and beside libraries; the compiled one as often as it
    takes."""
    monkeypatch.setattr(speed, "FAST_FOR_S", 0.02)
    _, session = played(STAGES, case="engine, ", seed=7)
    rows = [(row.case, row.unit, row.peer) for row in session.rows]
    assert rows == [
        ("fast engine, chord20", "requests/s", "full engine"),
        ("fast engine, ring5", "requests/s", "SimPy"),
        ("fast engine, ring5", "requests/s", "Ciw"),
        ("full engine, ring5", "requests/s", "SimPy"),
    ]
    assert {seed for *_, seed in calls} == {7}
    clusters = [count for count, _, requests, _ in calls if requests == 0]
    assert clusters == [20, 5]
    assert len({requests for count, _, requests, _ in calls if count == 20}) == 2
    assert all(value > 0.0 for row in session.rows for value in (*row.values, *row.peer_values))
    assert all(row.value > 100 / FIRST_S for row in session.rows[:3])


def test_libraries_that_are_missing_are_told(monkeypatch):
    monkeypatch.setattr(speed, "find_spec", lambda _: None)
    session = Session(Brief(quick=True, runs=1), print)
    topology, schedule = speed._paper(session, "ring5")
    assert speed._libraries(session, topology, schedule) == []
    assert session.notes == [
        "SimPy is not installed: no row beside it",
        "Ciw is not installed: no row beside it",
    ]


def test_schedules_are_those_of_the_paper_cut_short_where_it_has_to_be_quick():
    def length_s(plan):
        _, schedule = speed._paper(Session(plan, print), "ring5")
        return schedule[-1].time_s

    quick_s, other_s = (length_s(BenchPlan(quick=True, seed=seed)) for seed in (1, 2))
    assert 7.0 < quick_s <= 8.0
    assert quick_s != other_s
    assert length_s(BenchPlan()) > 20.0


def test_speed_is_that_of_all_runs_and_of_no_more_than_there_were(calls, monkeypatch):
    """At least one of them, however long it takes: here as long as the first call."""
    monkeypatch.setattr(speed, "FAST_FOR_S", 1e-9)
    topology = scale.circulant(5, 1)
    schedule = [Arrival(n * 0.01, ClusterId(f"c{n % 5}")) for n in range(200)]
    calls.append("compiled")
    side = speed._fast(topology, schedule, 1)
    calls.clear()
    began_s = time.perf_counter()
    (per_s,) = limited(side.measure())
    took_s = time.perf_counter() - began_s
    assert [count for _, _, count, _ in calls] == [200]
    assert 200 / took_s <= per_s <= 200 / FIRST_S


def test_what_was_left_over_before_is_collected_before_an_engine_is_timed(calls, monkeypatch):
    """Else the one that comes next would pay for it."""
    monkeypatch.setattr(speed, "FAST_FOR_S", 1e-9)
    topology = scale.circulant(5, 1)
    calls.append("compiled")
    found = []
    with left_over() as garbage:
        limited(speed._timed("x", 1, lambda: found.append(garbage())).measure())
    assert found == [None]
    side = speed._fast(topology, [Arrival(0.0, ClusterId("c0"))], 1)
    with left_over() as garbage:
        limited(side.measure())
        assert garbage() is None
    with left_over() as garbage:
        played(STAGES, case="neighbors", seed=7, quick=False)
        assert garbage() is None
    assert [requests for *_, requests, _ in calls[-4:]] == [50_000] * 4, "ten times a quick run"


def test_a_large_run_that_cannot_be_says_why(calls, monkeypatch):
    """Two circles of three clusters would be the same links twice."""
    monkeypatch.setattr(scale, "CLUSTERS", 3)
    calls.append("compiled")
    ours, there = multiprocessing.Pipe()
    scale.run_large(100, 7, there)
    assert isinstance(ours.recv(), RunError)
    ours.close()
    there.close()
    assert calls == ["compiled", (5, 5, 0, 7)]
