"""In which order sides play in `spillover bench peers`, what each is given, and what counts."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field, replace

import pytest

from spillover.model.ids import ClusterId
from spillover.model.schedule import Arrival
from spillover.tools.bench.load_process import LoadProcess
from spillover.tools.bench.model import BenchPlan
from spillover.tools.bench.peers import measuring, sides, workloads
from spillover.tools.bench.peers.outcome import Done, values_of
from spillover.tools.bench.peers.sides import Played, Turn
from spillover.tools.bench.session import Session
from support.benches import do
from support.loop import turn
from support.scripted_server import done, scripted

A = ClusterId("a")
BURSTS, JOBS, _, OVERLOAD = workloads.WORKLOADS


def schedules_of(*times_s):
    return [[Arrival(time_s, A, service_ms=100.0)] for time_s in times_s]


@dataclass
class Playing:
    """A side that does at once what it is asked to, and notes when, with whom and what it was."""

    name: str
    turns: list = field(default_factory=list)

    async def play(self, asked):
        assert asked.load.pid == os.getpid()
        self.turns.append((self.name, asked.seed, asked.schedule[0].time_s, asked.ready.parties))
        await asked.ready.wait()
        return Played([Done(asked.seed * 10.0, 0)], {}, asked.schedule[0].time_s)


@pytest.mark.parametrize("together", [False, True])
def test_all_sides_play_the_same_schedule_in_an_order_that_is_turned_round(together):
    """Each with a process of its own that asks; at the same time only where they may."""
    turns = []
    playing = [Playing(name, turns) for name in ("ours", "p", "q")]
    schedules = schedules_of(2.5, 3.5, 4.5)

    async def work(told):
        session = Session(BenchPlan(runs=3, seed=7), told.said.append)
        workload = replace(JOBS, together=together)
        plays = await measuring.play_runs(session, workload, playing, schedules)
        return plays, told.said, len(told.started)

    plays, said, started = do(work)
    orders = ("ours", "p", "q"), ("q", "p", "ours"), ("ours", "p", "q")
    of_runs = list(zip((7, 8, 9), (2.5, 3.5, 4.5), orders, strict=True))
    asked = [(name, seed, at_s) for seed, at_s, order in of_runs for name in order]
    assert turns == [(*one, 3 if together else 1) for one in asked]
    for name in ("ours", "p", "q"):
        assert [(play.fates, play.lag_ms) for play in plays[name]] == [
            ([Done(seed * 10.0, 0)], at_s) for seed, at_s, _ in of_runs
        ]
    assert started == 9
    assert said == [
        line
        for run, order in enumerate(orders)
        for line in (f"jobs: run {run + 1} of 3", *(f"jobs: {name}" for name in order))
    ]


def test_the_default_policy_is_beside_every_threshold_unless_it_is_said_otherwise():
    """A quick run tries one of them."""

    def names(**fields):
        return [
            side.name for side in measuring.sides_of(*measuring.contest_of(BenchPlan(**fields)))
        ]

    thresholds = [f"HAProxy, queue {threshold}" for threshold in (0, 1, 2, 4)]
    assert names() == ["adaptive", *thresholds]
    assert names(quick=True) == ["adaptive", "HAProxy, queue 1"]
    assert names(policies=("isolated", "paper")) == ["isolated", "paper", *thresholds]


def told_of(runs, ours_ms, theirs_ms):
    """The session of so many runs of one request each, which waited as long as is said at each
    of two sides."""
    said = []
    session = Session(BenchPlan(runs=runs, seed=3), said.append)
    schedules = schedules_of(*[2.5] * runs)
    plays = {
        name: [Played([Done(100.0 + ms, 0)], {"nodes": 0.5}, 1.0) for ms in waits_ms]
        for name, waits_ms in (("paper", ours_ms), ("HAProxy, queue 1", theirs_ms))
    }
    measuring._tell(session, JOBS, ("paper",), (1,), schedules, plays)
    return session, said


def test_ratios_are_those_of_runs_that_had_the_same_requests():
    """Seeds differ far more than sides do: 10 to 20, 900 to 300, and 40 to 50."""
    session, said = told_of(3, (10.0, 900.0, 40.0), (20.0, 300.0, 50.0))
    mean = next(row for row in session.rows if row.peer == "HAProxy, queue 1")
    assert (mean.case, mean.value, mean.peer_value) == ("jobs, paper: mean wait", 40.0, 50.0)
    assert mean.ratio == pytest.approx(0.8)
    assert said == ["jobs: paper, simulated"]
    other, _ = told_of(3, (10.0, 900.0, 40.0), (20.0, 300.0, 10.0))
    assert other.rows[0].ratio == pytest.approx(3.0), "not 40 to 20"


@pytest.mark.parametrize(("runs", "few"), [(5, True), (6, False), (7, False)])
def test_six_seeds_are_enough_to_claim_something(runs, few):
    session, _ = told_of(runs, [1.0] * runs, [2.0] * runs)
    assert any("Too few seeds" in note for note in session.notes) is few


def test_who_has_waited_for_half_the_deadline_is_given_up_by_haproxy():
    """Without a deadline nobody is."""
    assert sides.queue_within_s(OVERLOAD.deadline_ms) == 5.0
    assert sides.queue_within_s(JOBS.deadline_ms) > 2 * JOBS.full_s


def test_nothing_is_asked_before_all_sides_are_there():
    """What is used until then does not count; what counts has the generator beside it."""

    async def work(_):
        async with scripted(done()) as server:
            schedule = [Arrival(0.0, A, service_ms=1.0)] * 3
            ready = asyncio.Barrier(2)
            with LoadProcess() as load:
                asked = Turn(JOBS, schedule, 1, load, ready)
                playing = asyncio.create_task(
                    sides._play("us", asked, {A: server.url}, {"nodes": [os.getpid()]})
                )
                while not ready.n_waiting and not server.seen:
                    await turn()
                early = len(server.seen)
                await ready.wait()
                return early, await playing

    early, played = do(work)
    assert early == 0
    assert [fate.hops for fate in played.fates] == [0] * 3
    assert played.cpu_share.keys() == {"nodes", "generator"}


def test_goodput_includes_what_is_done_at_the_deadline_itself():
    schedule = schedules_of(2.5)[0]
    (goodput, *_) = values_of(OVERLOAD, schedule, [Done(OVERLOAD.deadline_ms, 0)]).values()
    assert goodput == 100.0


def test_times_of_bursts_are_those_from_the_client_s_asking_to_the_service_s_end():
    """Not what is left of them without the service."""
    schedule = schedules_of(0.5)[0] * 2
    values = values_of(BURSTS, schedule, [Done(100.0, 0), Done(300.0, 1)])
    assert list(values.values()) == [200.0, 300.0, 300.0, 50.0, 50.0]
