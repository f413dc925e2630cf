"""What `spillover bench tokens` makes of what was played: each share beside theory and each rule,
with its interval, in the units that are shown."""

from __future__ import annotations

import asyncio
import importlib.util
from collections import Counter
from random import Random
from types import SimpleNamespace

import pytest

from spillover.model.errors import RunError
from spillover.model.ids import ClusterId
from spillover.model.pool import Pool, PoolClass, PoolServer, PoolType
from spillover.model.request import Outcome as Simulated
from spillover.model.schedule import Arrival
from spillover.tools.bench.model import BenchPlan
from spillover.tools.bench.session import Session
from spillover.tools.bench.tokens.workloads import WORKLOADS, Phase
from spillover_loadgen.record import Outcome
from support.loop import until

if importlib.util.find_spec("numba") is None:
    pytest.skip("numba, from the extra `sim`", allow_module_level=True)

from spillover.sim.overflow.outcome import REFUSED
from spillover.sim.tokens import STUDENT_T, Estimate
from spillover.tools.bench.load_process import Fates
from spillover.tools.bench.tokens import measuring
from spillover.tools.bench.tokens.outcome import (
    ALL,
    Blocking,
    Job,
    blocking,
    jobs_of,
    mean_time_ms,
    within,
)
from spillover.tools.bench.tokens.rivals import RIVALS
from spillover.tools.bench.tokens.sharing_servers import Served
from spillover.tools.bench.tokens.sides import LEAST, TOKENS, Played, Run, check_ended, simulate

R1, R2 = ClusterId("r1"), ClusterId("r2")
UNIT = "per 10 000 jobs"


def one_server(*kinds):
    """A pool of one server with one token, at which so many jobs of each type come as it does."""
    return Pool(
        name="one",
        servers=(PoolServer(id="s", rate=1.0),),
        classes=(PoolClass(id="s", servers=("s",), tokens=1),),
        types=tuple(PoolType(id=kind, rate=1.0, classes=("s",)) for kind in kinds),
    )


def phase_of(*kinds):
    return Phase("", one_server(*kinds), 0.0, 0.0, 10.0, {})


def found(number, *kinds):
    """Shares are number, number + 1 and so on percent, intervals a tenth of that."""
    names = (ALL, *kinds)
    shares = {
        name: Estimate((number + place) / 100, (number + place) / 1000)
        for place, name in enumerate(names)
    }
    blocked = {name: number + place for place, name in enumerate(names)}
    arrived = dict.fromkeys(names, 100)
    return measuring.Found(Blocking(shares, blocked, arrived), 1000.0 * number)


def rows_of(session):
    return [
        (
            row.case,
            row.unit,
            pytest.approx(row.value),
            row.half_width and pytest.approx(row.half_width),
            row.peer,
            pytest.approx(row.peer_value),
            row.peer_half_width and pytest.approx(row.peer_half_width),
        )
        for row in session.rows
    ]


def test_blocked_jobs_of_each_type_are_beside_theory_and_each_rule():
    """Erlang's formula says that of two types at a server for one job two in three are blocked.
    Tokens in our order are beside the same rules, but neither theory nor the other order."""
    session = Session(BenchPlan(), say=print)
    names = (TOKENS, LEAST, measuring.UNIFORM_STATIC, measuring.SIMULATED)
    all_found = {name: found(10 * k, "t1", "t2") for k, name in enumerate(names, start=1)}
    measuring._add_rows(session, "c", phase_of("t1", "t2"), all_found)
    exact = 20_000 / 3
    expected = []
    for place, of in enumerate(("", " of t1", " of t2")):
        ours, what = 1000.0 + 100 * place, f"c: blocked{of}"
        expected.append((what, UNIT, ours, ours / 10, "exact", exact, 0.0))
        for k, peer in enumerate(names[1:], start=2):
            theirs = 1000.0 * k + 100 * place
            expected.append((what, UNIT, ours, ours / 10, peer, theirs, theirs / 10))
    for place, of in enumerate(("", " of t1", " of t2")):
        least, static = 2000.0 + 100 * place, 3000.0 + 100 * place
        what = f"c: blocked{of}, least loaded"
        expected.append((what, UNIT, least, least / 10, names[2], static, static / 10))
    for k, peer in enumerate(names[1:], start=2):
        expected.append(("c: mean time", "ms", 10_000.0, None, peer, 10_000.0 * k, None))
    assert rows_of(session) == expected


def test_how_far_a_share_is_from_theory_is_told_by_its_own_errors():
    """Of one type its row is that of all jobs. With 1 % for its half-width, 10 % are 40 % too few,
    which is 40 half-widths."""
    session = Session(BenchPlan(), say=print)
    measuring._add_rows(session, "c", phase_of("t"), {TOKENS: found(10, "t")})
    assert [(row.case, row.peer) for row in session.rows] == [("c: blocked", "exact")]
    (note,) = session.notes
    errors = f"{-40 * STUDENT_T:+.1f}"
    width = f"+-100, {errors} standard errors from the exact 5000"
    assert note == f"c: blocked, tokens: 10 of 100, 1000 {UNIT} ({width})"
    unknown = Blocking({ALL: Estimate(0.1, None)}, {ALL: 10}, {ALL: 100})
    measuring._note_exact(session, "c", "us", unknown, ALL, 0.5)
    told = f"c, us: 10 of 100, 1000 {UNIT} (no interval from the exact 5000)"
    assert session.notes[1] == told


def test_where_no_job_came_no_share_is_blocked():
    """Neither in a row nor in what is told of it; theory knows none of such a type either."""
    session = Session(BenchPlan(), say=print)
    nothing = Blocking({ALL: Estimate(None, None)}, {ALL: 0}, {ALL: 0})
    all_found = {name: measuring.Found(nothing, 5.0) for name in (TOKENS, measuring.SIMULATED)}
    measuring._add_rows(session, "c", phase_of("t"), all_found)
    shares = [row for row in session.rows if row.unit == UNIT]
    assert [(row.peer, row.value, row.half_width) for row in shares] == [
        ("exact", 0.0, 0.0),
        (measuring.SIMULATED, 0.0, 0.0),
    ]
    assert [(row.peer_value, row.peer_half_width) for row in shares[1:]] == [(0.0, 0.0)]
    width = "no interval from the exact 5000"
    assert session.notes == [f"c: blocked, tokens: 0 of 0, 0 {UNIT} ({width})"]
    figures = SimpleNamespace(blocking=None, blocking_per_type={"t": None})
    assert [measuring._of(figures, name) for name in (ALL, "t")] == [0.0, 0.0]


def jobs(*of):
    return [Job(at_s, replica, "t", time_ms) for at_s, replica, time_ms in of]


def test_only_jobs_of_a_phase_count():
    """From its instant on, and before the end."""
    some = jobs((0.9, R1, 100.0), (1.0, R1, 30.0), (2.0, R1, None), (2.9, R1, 50.0), (3.0, R1, 9.0))
    assert [job.at_s for job in within(some, 1.0, 3.0)] == [1.0, 2.0, 2.9]
    assert mean_time_ms(some, 1.0, 3.0) == 40.0
    with pytest.raises(RunError, match="not one job was done"):
        mean_time_ms(some, 1.5, 2.5)


def test_fates_are_of_the_job_at_their_place():
    schedule = [Arrival(0.5, R1, 1.0, "t1"), Arrival(0.7, R2, 1.0, "t2")]
    told = Fates([12.0, 3.0], [0.0, 0.0], {1: (Outcome.REFUSED, "blocked")})
    assert jobs_of("us", schedule, told) == [Job(0.5, R1, "t1", 12.0), Job(0.7, R2, "t2", None)]
    with pytest.raises(ValueError, match="zip"):
        jobs_of("us", schedule, Fates([12.0], [0.0], {}))  # what of the other?


def played(*, cpu, lag_ms, times_ms, stay_s, late_s):
    return Played(
        jobs=[Job(0.0, R1, "t", time_ms) for time_ms in times_ms],
        served=Served(jobs=len(late_s), stay_s=stay_s, late_s=late_s),
        cpu_share={"nodes": cpu},
        lag_ms=lag_ms,
    )


def test_effort_is_that_of_all_runs():
    """Shares in the mean, lateness of the worst; times less those on the servers. Just as late as
    a generator may be is not too late."""
    session = Session(BenchPlan(), say=print)
    runs = [
        played(
            cpu=0.2, lag_ms=20.0, times_ms=[100.0, None, 120.0], stay_s=0.2, late_s=[0.003, 0.0]
        ),
        played(cpu=0.4, lag_ms=1.0, times_ms=[80.0, 90.0], stay_s=0.16, late_s=[0.001, 0.004]),
    ]
    measuring._note_effort(session, WORKLOADS[0], "us", runs)
    late = "servers late by 2.00 ms (p99 4.00), requests left late by 20.0 ms (p99)"
    share = "a job took 7.50 ms more than its share of its server"
    assert session.notes == [f"{WORKLOADS[0].name}, us: of one core nodes 30%; {share}; {late}"]


def test_what_is_simulated_is_the_same_jobs():
    """Two at once at a replica with one server's token left for one of them: of servers that
    share, the second is blocked; the other replica knows nothing of it."""
    pool = one_server("t")
    workload = SimpleNamespace(pool=pool, job_ms=1000.0, name="one")
    schedule = [
        Arrival(0.0, R1, 400.0, "t"),
        Arrival(0.1, R1, 400.0, "t"),
        Arrival(0.2, R2, 300.0, "t"),
    ]
    run = Run(workload, [R1, R2], [], schedule, 1)
    assert simulate(run) == [
        Job(0.0, R1, "t", pytest.approx(400.0)),
        Job(0.1, R1, "t", None),
        Job(0.2, R2, "t", pytest.approx(300.0)),
    ]


def test_a_simulated_job_that_is_neither_done_nor_blocked_spoils_the_figures():
    for ended in ({}, {Simulated.DONE: 7}, {Simulated.DONE: 7, REFUSED: 2}, {REFUSED: 2}):
        check_ended("w", Counter(ended))
    with pytest.raises(RunError, match=r"w: .*'expired': 1"):
        check_ended("w", Counter({Simulated.DONE: 7, REFUSED: 2, "expired": 1}))


def test_it_does_not_matter_when_a_phase_begins():
    """Which of its pieces a job is in goes by the time since then."""

    def shares(begin_s):
        some = [
            Job(begin_s + second + 0.5, replica, "t", None if second % 5 == 0 else 5.0)
            for replica in (R1, R2)
            for second in range(32)
        ]
        return blocking(some, 2, begin_s, begin_s + 32.0).shares

    assert shares(64.0) == shares(0.0)
    assert shares(0.0)[ALL].value == pytest.approx(7 / 32)
    assert shares(0.0)[ALL].ci95 > 0.0


def test_rivals_choose_as_they_are_called():
    """Of a slow server with one job and a fast one with two: the fewest jobs, or the fewest by
    rate."""
    pool = Pool(
        name="two",
        servers=tuple(PoolServer(id=name, rate=rate) for name, rate in (("s", 1.0), ("f", 4.0))),
        classes=tuple(PoolClass(id=name, servers=(name,), tokens=6) for name in "sf"),
        types=(PoolType(id="t", rate=1.0, classes=("s", "f")),),
    )
    chosen = {
        name: RIVALS[name](pool, Random(1)).choose(0, [1, 2])
        for name in ("shortest queue", "shortest queue by rate", "two choices")
    }
    assert chosen == {"shortest queue": 0, "shortest queue by rate": 1, "two choices": 0}
    rules = [RIVALS[name](pool, Random(1)) for name in ("best static", "uniform static")]
    best, uniform = (Counter(rule.choose(0, [1, 2]) for _ in range(500)) for rule in rules)
    assert best[1] > 350 > uniform[1] > 150


class Hurried(asyncio.SelectorEventLoop):
    """Whose time passes at once where all wait for it."""

    now_s = 0.0

    def time(self):
        return self.now_s

    def _run_once(self):
        if not self._ready and self._scheduled:
            self.now_s = max(self.now_s, self._scheduled[0].when())
        super()._run_once()


@pytest.mark.parametrize(("until_s", "told"), [(90.0, [30, 60, 90]), (70.0, [30, 60, 70])])
def test_how_far_a_schedule_is_is_told_each_half_minute(until_s, told):
    """And at its end."""
    run = Run(SimpleNamespace(name="w"), [R1], [SimpleNamespace(until_s=until_s)], [], 1)
    said = []

    async def main():
        await measuring._tell(run, asyncio.Barrier(1), said.append)

    with asyncio.Runner(loop_factory=Hurried) as runner:
        runner.run(main())
    assert said == [
        f"w: 0 jobs for each side in {until_s:.0f} s, on 1 replicas",
        *(f"w: {gone_s} of {until_s:.0f} s" for gone_s in told),
    ]


def test_how_far_a_schedule_is_is_told_as_soon_as_all_are_ready():
    workload = SimpleNamespace(name="w")
    phases = [SimpleNamespace(until_s=0.02)]
    run = Run(workload, [R1, R2], phases, [Arrival(0.0, R1)] * 3, 1)

    async def main():
        said, ready = [], asyncio.Barrier(2)
        telling = asyncio.create_task(measuring._tell(run, ready, said.append))
        await until(lambda: ready.n_waiting == 1)
        before = list(said)
        await ready.wait()
        await telling
        return before, said

    before, said = asyncio.run(main())
    assert before == []
    assert said[0] == "w: 3 jobs for each side in 0 s, on 2 replicas"
    assert said[1:] == ["w: 0 of 0 s"] * len(said[1:])
    assert len(said) >= 2
