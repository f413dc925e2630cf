"""`spillover bench tokens`: servers share as processor sharing does, rules choose as they are
called, dispatchers answer as nodes do, and intervals are as wide as what they are of varies."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import random
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import psutil
import pytest

from spillover.cli import main
from spillover.inputs.builtin_pools import BUILTIN_POOLS
from spillover.live.http.client import HttpClient
from spillover.model.errors import InputError, RunError
from spillover.model.ids import ClusterId
from spillover.model.pool import Pool, PoolClass, PoolServer, PoolType
from spillover.model.schedule import Arrival
from spillover.policy.tokens import BLOCKED
from spillover.tools.bench.display import _table
from spillover.tools.bench.model import BenchPlan, BenchResult, Row
from spillover.tools.bench.tokens import STAGES, dispatchers, sharing_servers
from spillover.tools.bench.tokens.rules import Shortest, Static, TwoChoices
from spillover.tools.bench.tokens.workloads import DISPATCHES_OF, SETTLED_S, WORKLOADS, Workload
from spillover.tools.processes.child import Child
from spillover_loadgen import driver
from spillover_loadgen.record import Outcome, Record

BENCH = [sys.executable, "-m", "spillover", "bench", "tokens", "--quick"]
COMTE8, COMTE11 = (BUILTIN_POOLS[name]() for name in ("comte8", "comte11"))
LATE_MS = 150.0
"""What a machine that is busy with other things may add to half a second."""


@pytest.fixture(scope="module")
def with_numba(require):
    require(importlib.util.find_spec("numba") is not None, "numba, from the extra `sim`")


def pool_of(rates, tokens, kinds=None):
    """A pool of servers a, b, ... of these rates, a class each, and types for all or some."""
    names = "abcdefgh"[: len(rates)]
    kinds = kinds or {"any": names}
    return Pool(
        name="made",
        servers=tuple(PoolServer(id=n, rate=r) for n, r in zip(names, rates, strict=True)),
        classes=tuple(PoolClass(id=n, servers=(n,), tokens=tokens) for n in names),
        types=tuple(PoolType(id=k, rate=1.0, classes=tuple(of)) for k, of in kinds.items()),
    )


async def times_ms(port, sizes_ms):
    """How long jobs of these sizes take on the server there, all sent at once; statuses too."""
    client = HttpClient(f"http://127.0.0.1:{port}")
    await client.warm(len(sizes_ms))
    asked = [
        client.request("POST", "/", body=json.dumps({"service_ms": size}).encode(), timeout_s=10.0)
        for size in sizes_ms
    ]
    answers = await asyncio.gather(*asked)
    await client.close()
    return [(a.status, (a.received_s - a.sent_s) * 1e3) for a in answers]


@pytest.mark.e2e
@pytest.mark.threes
def test_servers_share_evenly_and_refuse_what_no_token_was_for():
    """At rate 2, jobs of 200, 400 and 600 ms: all three share until the first has had its 200, at
    300 ms, the other two until 500 ms; the last one is alone with its last 200 ms until 600."""

    async def play():
        with Child("servers", sharing_servers.serve, pool_of((2.0, 1.0), 3), 2) as child:
            ports = await child.receive(30.0)
            assert [len(of_replica) for of_replica in ports] == [2, 2]
            shared = await times_ms(ports[1][0], (200.0, 400.0, 600.0))
            crowded = await times_ms(ports[0][1], (50.0,) * 4)
            child.send("?")
            return shared, crowded, await child.receive(5.0)

    shared, crowded, served = asyncio.run(play())
    for (status, took_ms), expected_ms in zip(shared, (300.0, 500.0, 600.0), strict=True):
        assert status == 200
        assert expected_ms - 20.0 <= took_ms <= expected_ms + LATE_MS
    assert sorted(status for status, _ in crowded) == [200, 200, 200, 500]
    # What the servers tell is without what the way and a busy machine have added.
    assert served.jobs == len(served.late_s) == 6
    assert served.stay_s == pytest.approx((300 + 500 + 600 + 3 * 150) / 1e3, abs=0.1)
    assert min(served.late_s) >= 0.0


@pytest.mark.e2e
@pytest.mark.threes
def test_a_dispatcher_answers_as_a_node_does():
    """Two servers with room for one job each: of three at once, one is blocked, and only one; of
    those of a type that may join but one server, all but the first."""
    pool = pool_of((1.0, 1.0), 1, {"any": "ab", "first": "a"})
    rules = [Shortest(pool, random.Random(1), by_rate=False) for _ in range(2)]
    home, other = ClusterId("r1"), ClusterId("r2")
    schedule = [Arrival(0.0, home, 400.0, "any")] * 3 + [Arrival(0.0, other, 400.0, "first")] * 2

    async def play():
        with Child("servers", sharing_servers.serve, pool, 2) as servers:
            ports = await servers.receive(30.0)
            with Child("dispatchers", dispatchers.dispatch, pool, rules, ports) as child:
                one, two = (f"http://127.0.0.1:{port}" for port in await child.receive(30.0))
                return await driver.run(schedule, {home: one, other: two}, seed=1, keyed=False)

    records = asyncio.run(play())
    blocked = [record for record in records if record.outcome is Outcome.REFUSED]
    assert Counter(record.cluster for record in blocked) == {home: 1, other: 1}
    assert {record.reason for record in blocked} == {"blocked"}
    for record in records:
        if record not in blocked:
            assert record.outcome is Outcome.OK
            assert 400.0 <= record.system_time_ms <= record.response_time_ms + 1.0


def test_the_shortest_queue_is_that_of_the_fewest_jobs():
    """With room, of those that fit, by rate if so wished; ties are drawn."""
    pool = pool_of((1.0, 4.0, 1.0), 6, {"any": "abc", "slow": "ac"})
    plain, by_rate = (Shortest(pool, random.Random(1), by_rate=rated) for rated in (False, True))
    assert plain.choose(0, [2, 3, 4]) == 0
    assert by_rate.choose(0, [1, 3, 4]) == 1
    assert by_rate.choose(1, [3, 0, 2]) == 2
    assert by_rate.choose(0, [2, 6, 4]) == 0
    assert plain.choose(0, [6, 6, 6]) == plain.choose(1, [6, 0, 6]) == BLOCKED
    drawn = Counter(plain.choose(0, [2, 2, 5]) for _ in range(1000))
    assert drawn.keys() == {0, 1}
    assert 400 < drawn[0] < 600


def test_two_choices_look_at_no_third_server():
    rule = TwoChoices(pool_of((1.0,) * 4, 2, {"any": "abcd", "some": "ab"}), random.Random(1))
    drawn = Counter(rule.choose(0, [0, 1, 2, 2]) for _ in range(6000))
    # Of 6 pairs, 3 have the empty one, 2 more the one with one job, and one is full.
    assert {server: round(count / 1000) for server, count in drawn.items()} == {0: 3, 1: 2, -1: 1}
    assert {rule.choose(1, [1, 1, 0, 0]) for _ in range(100)} == {0, 1}


def test_static_looks_at_nothing_but_its_own_server():
    pool = pool_of((1.0, 4.0), 2)
    rule = Static(pool, random.Random(1), {"any": {"a": 0.2, "b": 0.8}})
    drawn = Counter(rule.choose(0, [0, 2]) for _ in range(5000))
    assert drawn.keys() == {0, BLOCKED}
    assert drawn[0] / 5000 == pytest.approx(0.2, abs=0.03)


def test_rules_are_for_pools_whose_classes_are_servers():
    pooled = replace(COMTE11, classes=COMTE11.classes[::-1])
    with pytest.raises(ValueError, match="one class for each server"):
        TwoChoices(pooled, random.Random(1))


def blocked_by(rule, pool, jobs, seed):
    """The share that the rule blocks of so many exponential jobs, after some that warm up: servers
    that share, one event after the other."""
    rng = random.Random(seed)
    arrivals = [kind.rate for kind in pool.types]
    rates = [server.rate for server in pool.servers]
    held, come, blocked = [0] * len(rates), 0, 0
    warm_up = jobs // 10
    while come < jobs + warm_up:
        weights = [*arrivals, *(rate * (n > 0) for rate, n in zip(rates, held, strict=True))]
        event = rng.choices(range(len(weights)), weights)[0]
        if event >= len(arrivals):
            held[event - len(arrivals)] -= 1
            continue
        server = rule.choose(event, held)
        if server != BLOCKED:
            held[server] += 1
        come += 1
        blocked += server == BLOCKED and come > warm_up
    return blocked / jobs


@pytest.mark.slow
@pytest.mark.usefixtures("with_numba")
@pytest.mark.parametrize("pool", [COMTE8, COMTE11], ids=lambda pool: pool.name)
@pytest.mark.parametrize("name", ["best", "uniform"])
def test_static_rules_block_what_theory_says(pool, name):
    from spillover.sim.theory.tokens.exact import exact_tokens
    from spillover.tools.bench.tokens.rivals import RIVALS

    loaded = pool.at_load(1.2)
    rule = RIVALS[f"{name} static"](loaded, random.Random(2))
    exact = exact_tokens(loaded, f"static-{name}").blocking
    assert blocked_by(rule, loaded, 40_000, 3) == pytest.approx(exact, abs=0.02)


def jobs_in(replicas, fates):
    """Jobs of one type, one a second in each replica; `fates[replica]` says which are blocked."""
    from spillover.tools.bench.tokens.outcome import Job

    return [
        Job(
            at_s=float(second),
            replica=ClusterId(f"r{replica}"),
            kind="t",
            time_ms=None if b else 9.0,
        )
        for replica in range(replicas)
        for second, b in enumerate(fates[replica])
    ]


@pytest.mark.usefixtures("with_numba")
def test_batches_are_pieces_of_replicas():
    """16 replicas, two pieces each of 10 jobs: half of the batches block two of them, the others
    none. Deviations from the mean of 1 are then all 1, and their mean's is 1 by root 31."""
    from spillover.sim.tokens import STUDENT_T
    from spillover.tools.bench.tokens.outcome import ALL, blocking

    fates = [[True, True] + [False] * 18] * 16
    found = blocking(jobs_in(16, fates), 16, 0.0, 20.0)
    assert (found.blocked[ALL], found.arrived["t"]) == (32, 320)
    share = found.shares[ALL]
    assert share.value == pytest.approx(0.1)
    assert share.ci95 == pytest.approx(STUDENT_T / 31**0.5 / 10)
    assert found.errors_from(ALL, 0.05) == pytest.approx(0.05 * 10 * 31**0.5)
    half = blocking(jobs_in(16, fates), 16, 10.0, 20.0)
    assert (half.blocked[ALL], half.arrived[ALL]) == (0, 160)
    assert half.errors_from(ALL, 0.05) is None


@pytest.mark.usefixtures("with_numba")
@pytest.mark.parametrize(("replicas", "batches"), [(1, 32), (12, 36), (31, 62), (40, 40)])
def test_any_number_of_replicas_gives_an_interval(replicas, batches):
    """Each replica has as many pieces of 20 jobs, of which the first in each replica blocks two."""
    from spillover.sim.tokens import STUDENT_T
    from spillover.tools.bench.tokens.outcome import ALL, blocking

    pieces = batches // replicas
    fates = [[True, True] + [False] * (20 * pieces - 2)] * replicas
    share = blocking(jobs_in(replicas, fates), replicas, 0.0, 20.0 * pieces).shares[ALL]
    assert share.value == pytest.approx(0.1 / pieces)
    counts = [2] * replicas + [0] * (batches - replicas)
    mean = sum(counts) / batches
    error = (sum((count - mean) ** 2 for count in counts) / (batches - 1) / batches) ** 0.5
    assert share.ci95 == pytest.approx(STUDENT_T * error / 20)


def test_replicas_are_as_many_as_the_cores_can_feed(monkeypatch):
    """By what jobs cost: the more come to each, and the more sides there are, the fewer."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    found = {each.name: len(each.replicas(BenchPlan())) for each in WORKLOADS}
    assert found == {
        "comte8 at 0.8": 9, "comte8 at 1.0": 7, "comte8 at 1.2": 6,
        "comte11 at 0.8": 10, "comte11 at 1.0": 8, "comte11 at 1.2": 6,
        "changing comte8": 32,
    }  # fmt: skip
    one = workload("comte8 at 1.0")
    assert len(one.replicas(BenchPlan(quick=True))) == 2
    assert len(one.replicas(BenchPlan(quick=True, replicas=5))) == 5
    assert one.duration_s(BenchPlan(replicas=20)) == SETTLED_S + 500_000 / (25 * 20)
    monkeypatch.setattr("os.cpu_count", lambda: None)
    assert len(one.replicas(BenchPlan())) == 3


@pytest.mark.slow
@pytest.mark.usefixtures("with_numba")
def test_intervals_hold_the_truth_as_often_as_they_say():
    """Of a series with a known mean, a quarter, in which what blocks one job most likely blocks the
    next one too: intervals that took jobs for independent would hold it half as often."""
    from spillover.tools.bench.tokens.outcome import ALL, blocking

    rng, held, wide = random.Random(5), 0, []
    into, out_of = 1 / 30, 1 / 10
    for _ in range(120):
        fates = []
        for _ in range(16):
            fate = rng.random() < 0.25
            series = []
            for _ in range(400):
                fate = rng.random() >= out_of if fate else rng.random() < into
                series.append(fate)
            fates.append(series)
        share = blocking(jobs_in(16, fates), 16, 0.0, 400.0).shares[ALL]
        held += abs(share.value - 0.25) <= share.ci95
        wide.append(share.ci95)
    assert 0.88 * 120 <= held < 120
    # Of n jobs the variance is p (1 - p) / n, times (1 + r) / (1 - r) with the correlation r.
    correlation = 1 - into - out_of
    deviation = (0.25 * 0.75 / 6400 * (1 + correlation) / (1 - correlation)) ** 0.5
    assert sum(wide) / len(wide) == pytest.approx(2.04 * deviation, rel=0.1)


@pytest.mark.parametrize(
    ("outcome", "reason", "is_told"),
    [
        (Outcome.REFUSED, "blocked", False),
        (Outcome.REFUSED, "queue_full", True),
        (Outcome.FAILED, "server_failed", True),
        (Outcome.UNREACHABLE, None, True),
    ],
)
@pytest.mark.usefixtures("with_numba")
def test_only_a_blocked_job_may_go_without_an_answer(outcome, reason, is_told):
    from spillover.tools.bench.load_process import fates_of
    from spillover.tools.bench.tokens.outcome import jobs_of

    home, sent = ClusterId("r1"), {"index": 0, "intended_s": 0.0, "sent_lag_s": 0.0}
    record = Record(cluster=home, outcome=outcome, reason=reason, **sent)
    played = "tokens", [Arrival(0.0, home)], fates_of([record])
    if is_told:
        with pytest.raises(RunError, match=f"tokens: job 0 has failed: {outcome}, {reason}"):
            jobs_of(*played)
    else:
        assert [job.time_ms for job in jobs_of(*played)] == [None]


def workload(name):
    return next(each for each in WORKLOADS if each.name == name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["comte8 at 1.0", "comte11 at 1.2"])
def test_each_replica_is_offered_the_load(name):
    """By types as the pool says; and a longer schedule begins with the shorter one."""
    of, plan = workload(name), BenchPlan(quick=True, duration_s=400.0)
    schedule = of.schedule(plan, 3)
    capacity = sum(server.rate for server in of.pool.servers)
    for replica in of.replicas(plan):
        own = [arrival for arrival in schedule if arrival.cluster == replica]
        offered = sum(arrival.service_ms for arrival in own) / 400e3 / capacity
        assert offered == pytest.approx(of.pool.load, rel=0.08)
        for kind in of.pool.types:
            share = sum(arrival.type == kind.id for arrival in own) / len(own)
            assert share == pytest.approx(kind.rate / capacity / of.pool.load, abs=0.03)
    assert len({arrival.time_s for arrival in schedule}) == len(schedule)
    assert of.schedule(plan, 3) == schedule != of.schedule(plan, 4)


def test_jobs_are_as_long_as_the_claim_asks_for():
    """At least 250 ms alone on the fastest server, and 60 000 of them in each full schedule."""
    for each in WORKLOADS:
        fastest = max(server.rate for server in each.pool.servers)
        assert each.job_ms / fastest >= 250.0
        rate_per_s = sum(kind.rate for kind in each.pool.types) / (each.job_ms / 1e3)
        for phase in each.phases(BenchPlan()):
            counted = rate_per_s * (phase.until_s - phase.from_s) * len(each.replicas(BenchPlan()))
            assert counted >= 60_000


def test_a_pool_that_changes_is_compared_with_what_it_is_meanwhile():
    of: Workload = workload("changing comte8")
    before, without, after = of.phases(BenchPlan(duration_s=900.0))
    assert [(p.begin_s, p.from_s, p.until_s) for p in (before, without, after)] == [
        (0.0, SETTLED_S, 300.0),
        (300.0, 300.0 + SETTLED_S, 600.0),
        (600.0, 600.0 + SETTLED_S, 900.0),
    ]
    assert [p.order for p in (before, without, after)] == [{}, {"s10": "out"}, {"s10": "in"}]
    assert before.pool == after.pool == of.pool
    assert without.pool.load == pytest.approx(25 / 21)
    assert sum(each.tokens for each in without.pool.classes) == 54
    for phase in of.phases(BenchPlan(quick=True)):
        assert phase.begin_s < phase.from_s == (phase.begin_s + phase.until_s) / 2


def test_a_schedule_too_short_for_any_job_is_told():
    slow = replace(workload("comte8 at 1.0"), job_ms=1e9)
    with pytest.raises(InputError, match="--duration-s: expected longer: no job of comte8"):
        slow.schedule(BenchPlan(quick=True), 1)


def test_a_row_shows_its_intervals():
    row = Row(
        case="c", unit="u", values=(3.0,), half_width=0.25, peer="p", peer_values=(4.0,),
        peer_half_width=0.5,
    )  # fmt: skip
    shown = row.as_dict()
    assert (shown["half_width"], shown["peer_half_width"], shown["ratio"]) == (0.25, 0.5, 0.75)
    table = _table(BenchResult("tokens", BenchPlan(runs=1), {}, (row,), ()))
    assert [list(column.cells) for column in table.columns][1] == ["3.00 \N{PLUS-MINUS SIGN} 0.25"]


def bench(tmp_path, *options):
    run = subprocess.run(
        [*BENCH, "--json", *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("\n") == 1
    return json.loads(run.stdout)


@pytest.mark.e2e
@pytest.mark.threes
@pytest.mark.usefixtures("with_numba")
def test_the_command_puts_tokens_beside_rules_and_theory(tmp_path):
    """Of both types at an overload, where even seconds block some jobs of those with no choice."""
    result = bench(tmp_path, "--case", "comte11 at 1.2", "--duration-s", "6")
    rows = {(row["case"], row["peer"]): row for row in result["rows"]}
    rivals = ["best static", "uniform static", "shortest queue", "shortest queue by rate"]
    rivals += ["two choices", "tokens, least loaded", "tokens, least loaded, simulated"]
    name = "comte11 at 1.2"
    blocked = [f"{name}: blocked{of}" for of in ("", " of t1", " of t2")]
    least = {(f"{case}, least loaded", peer) for case in blocked for peer in rivals}
    least -= {(case, "tokens, least loaded") for case, _ in least}
    rivals.append("itself, simulated")
    assert set(rows) == least | {
        (case, peer) for case in blocked for peer in ("exact", *rivals)
    } | {(f"{name}: mean time", peer) for peer in rivals}
    exact = [rows[case, "exact"]["peer_value"] for case in blocked]
    assert exact == pytest.approx([2474.5, 43.95, 3082.1], rel=1e-3)
    row = rows[blocked[2], "uniform static"]
    assert row["value"] > 0  # which is less, six seconds do not tell
    assert row["peer_value"] > 0
    assert 0 < row["peer_half_width"] < row["peer_value"]
    assert rows[f"{name}: mean time", "two choices"]["value"] > 250.0
    notes = "\n".join(result["notes"])
    for told in ("of one core nodes", "of one core dispatchers", "standard errors from the exact"):
        assert told in notes


@pytest.mark.e2e
@pytest.mark.threes
@pytest.mark.usefixtures("with_numba")
def test_a_server_is_taken_out_and_put_back_while_jobs_come(tmp_path):
    """No job is lost by that, and no token: else there is no result."""
    result = bench(tmp_path, "--case", "changing comte8", "--duration-s", "6")
    exact = {row["case"]: row["peer_value"] for row in result["rows"]}
    names = [f"changing comte8, {phase}: blocked" for phase in ("all", "s10 out", "s10 back")]
    assert list(exact) == names
    assert exact[names[0]] == exact[names[2]] == pytest.approx(377.7, rel=1e-3)
    assert exact[names[1]] > 1500


@pytest.mark.e2e
@pytest.mark.threes
@pytest.mark.usefixtures("with_numba")
def test_ended_early_it_leaves_no_process(tmp_path):
    """Nodes, dispatchers, servers and generators all go with it."""
    command = [*BENCH, "--case", "comte8 at 1.0", "--duration-s", "600"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as run:
        parent = psutil.Process(run.pid)
        children = []
        try:
            for line in run.stderr:
                if "jobs for each side" in line:
                    break
            children = parent.children(recursive=True)
            assert len(children) >= 3 * 6
            run.send_signal(signal.SIGINT)
            said = run.stderr.read()
            assert run.wait(20) == 130, said
            assert "Traceback" not in said
            gone, alive = psutil.wait_procs(children, timeout=5)
            assert not alive, gone
        finally:
            for process in (*children, parent):
                if process.is_running():
                    process.kill()


@pytest.mark.parametrize(
    ("held", "available", "out", "unaccounted", "is_told"),
    [
        (0, 6, 0, 0, None),
        (0, 2, 4, 0, None),
        (1, 5, 0, 0, "all tokens of class c1 back"),
        (0, 5, 0, 0, "all tokens of class c1 back"),
        (0, 6, 0, 1, "1 tokens are nowhere, or in two places"),
    ],
)
@pytest.mark.usefixtures("with_numba")
def test_lost_tokens_are_told(held, available, out, unaccounted, is_told):
    from spillover.tools.bench.tokens.sides import check_tokens

    class_ = {"id": "c1", "limit": 6, "held": held, "available": available, "out": out}
    pool = {"classes": [class_], "unaccounted": unaccounted}
    if is_told:
        with pytest.raises(RunError, match=is_told):
            check_tokens("http://a", pool)
    else:
        check_tokens("http://a", pool)


def test_cases_have_names_of_their_own():
    names = [case for stage in STAGES for case in stage.cases]
    assert len(names) == len(set(names)) == len(WORKLOADS) + len(DISPATCHES_OF)


def test_bad_usage_is_told_in_one_line(capsys):
    assert main(["bench", "tokens", "--policy", "paper"]) == 2
    assert capsys.readouterr() == ("", "spillover: --policy: expected with bench peers alone\n")
    assert main(["bench", "node", "--replicas", "3"]) == 2
    said = "spillover: --replicas: expected with bench tokens alone\n"
    assert capsys.readouterr() == ("", said)
