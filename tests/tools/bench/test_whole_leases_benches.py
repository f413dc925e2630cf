"""Whole benchmarks of `spillover bench leases`, as in `test_whole_benches`: what hosts of members
are told, and what is made of what they say, which is settled here; no lease is held."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from types import SimpleNamespace

import psutil
import pytest

from spillover.model.errors import RunError
from spillover.tools.bench.leases import (
    holding,
    hosts,
    lateness,
    members,
    renewing,
    settings,
    takeover,
)
from spillover.tools.bench.leases.cluster import Cluster
from spillover.tools.bench.leases.ownership import Report
from spillover.tools.bench.leases.renewing import Loaded
from support.benches import do, played, session_of
from support.loop import turn, until

URL = "redis://x"


@contextmanager
def some_redis(session):
    session.note("a Redis")
    yield SimpleNamespace(url=URL)


class Hosts:
    """Of members that share partitions evenly once they are told to begin. Where one is killed, the
    others have what it had a little later; `takes_over` says whether they do."""

    def __init__(self, monkeypatch, partitions, *, begins=True, takes_over=True):
        self.partitions = partitions
        self.begins, self.takes_over = begins, takes_over
        self.plans = []
        self.begun_s = []
        self.killed, self.killed_s = [], []

        def kill(pid, number):
            self.killed.append((pid, int(number)))
            self.killed_s.append(time.monotonic())

        monkeypatch.setattr(os, "kill", kill)
        monkeypatch.setattr(psutil.Process, "children", lambda *_, **__: [])

    async def work(self, plan, there):
        place = len(self.plans)
        self.plans.append(plan)
        there.send(None)
        await asyncio.to_thread(there.recv)
        self.begun_s.append(time.monotonic())
        if not self.begins:
            await asyncio.Event().wait()
        members = sum(len(one.nodes) for one in self.plans if one.group == plan.group)
        owners = [(n, f"n{n % members}") for n in range(self.partitions)]
        there.send(
            [Report(time.monotonic(), node, n, True) for n, node in owners if node in plan.nodes]
        )
        already = len(self.killed)
        await until(lambda: len(self.killed) > already)
        if place % 4 == 1 and self.takes_over:
            await turn(0.03)
            orphans = [n for n, node in owners if node == "n0"]
            there.send([Report(time.monotonic(), "n1", n, True) for n in orphans])
        await asyncio.Event().wait()


def taken_over(monkeypatch, rule="guarded", **how):
    monkeypatch.setattr(takeover, "EVEN_WITHIN_S", 0.1)
    monkeypatch.setattr(takeover, "TAKEN_WITHIN_S", 0.1)
    own = Hosts(monkeypatch, takeover.PARTITIONS, **how)

    async def work(_):
        return await takeover.take_over(URL, rule, 0.05, 5)

    return own, do(work, {hosts.host: own.work})


def test_a_takeover_lasts_from_the_kill_of_the_first_member(monkeypatch):
    """Until its partitions run elsewhere; each member has a process of its own."""
    own, took_s = taken_over(monkeypatch)
    assert 0.03 <= took_s < 5.0
    assert own.killed == [(os.getpid(), 9)]
    assert own.killed_s[0] >= max(own.begun_s) + 0.05, "at some instant of a period"
    assert [plan.nodes for plan in own.plans] == [(f"n{n}",) for n in range(4)]
    assert {(plan.url, plan.rule, plan.partitions, plan.seed) for plan in own.plans} == {
        (URL, "guarded", (32,), 5)
    }
    (group,) = {plan.group for plan in own.plans}
    assert group.startswith("bench-")


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ({"begins": False}, "guarded: 0 of 32 partitions are served"),
        ({"takes_over": False}, "guarded: not all of a dead member's partitions run again"),
    ],
)
def test_a_group_that_never_comes_to_that_is_an_error(monkeypatch, how, what):
    with pytest.raises(RunError, match=what):
        taken_over(monkeypatch, **how)


def test_hosts_end_with_one_that_is_not_ready(monkeypatch):
    async def work(plan, there):
        there.send(RunError("no Redis") if "n1" in plan.nodes else None)
        await asyncio.Event().wait()

    async def enter(told):
        told_of = {"hosts": 3, "members": 3, "partitions": 4, "seed": 1}
        with pytest.raises(RunError, match="no Redis"):
            await Cluster(URL, "g", "guarded", **told_of).__aenter__()
        return len(told.started), len(told.ending)

    assert do(enter, {hosts.host: work}) == (3, 3)


def test_limits_are_for_fifty_members_and_a_thousand_partitions():
    """Ten in a process, so that a machine bears them."""
    assert (holding.MEMBERS, holding.PARTITIONS) == (50, 1000)
    assert holding.LIMITS == {holding.TRIPS: 200.0, holding.REDIS_CPU: 10.0}
    assert members.PARTITIONS == holding.PARTITIONS
    assert holding.MEMBERS in members.COUNTS
    assert lateness.P99_MS_MAX == 50.0


def seen(*held, members=2, partitions=2):
    """A group of which it was said that each of these nodes runs that partition."""
    told = {"hosts": 1, "members": members, "partitions": partitions, "seed": 1}
    cluster = Cluster(URL, "g", "guarded", **told)
    for node, partition in held:
        cluster._ownership.note(Report(1.0, node, partition, True))
    return cluster


def test_by_the_blogs_rule_all_that_runs_once_is_served(monkeypatch):
    """If only the member that is to be killed has something."""
    monkeypatch.setattr(takeover, "PARTITIONS", 3)
    uneven = seen(("n0", 0), ("n0", 1), ("n0", 2), partitions=3)
    assert takeover._is_served(uneven, "blog")
    assert not takeover._is_served(uneven, "guarded")
    assert takeover._is_served(seen(("n0", 0), ("n1", 1), ("n1", 2), partitions=3), "guarded")
    others = seen(("n1", 0), ("n1", 1), ("n1", 2), partitions=3)
    assert not takeover._is_served(others, "blog")
    assert not takeover._is_served(seen(("n0", 0), ("n0", 1), partitions=3), "blog")


def test_takeovers_by_both_rules_are_measured_in_turn(monkeypatch):
    """Each with a seed of its own, at another instant of a period."""
    monkeypatch.setattr(takeover, "own_redis", some_redis)
    monkeypatch.setattr(
        takeover, "TIMES", replace(settings.TIMES, normal_lease_ms=60.0, min_grab_ms=20.0)
    )
    own = Hosts(monkeypatch, takeover.PARTITIONS)
    _, session = played((takeover.STAGE,), {hosts.host: own.work}, seed=3, runs=2)
    told = [(plan.rule, plan.seed) for plan in own.plans[::4]]
    assert told == [("guarded", 3), ("blog", 4), ("blog", 5), ("guarded", 6)]
    assert len({plan.group for plan in own.plans}) == 4
    assert [(row.case, row.unit, row.peer, len(row.values)) for row in session.rows] == [
        (takeover.CASE, "s", "blog rule", 2),
        (takeover.CASE, "s", "bound", 2),
    ]
    assert session.rows[0].values == session.rows[1].values
    assert all(0.03 <= value < 5.0 for value in session.rows[0].values)
    assert session.notes[0] == "a Redis"


class Loads:
    """Processes under load, and those that only compute: who was ready when."""

    def __init__(self):
        self.order = []

    async def hold(self, plan, there):
        for word in ("started", "holds"):
            self.order.append(word)
            there.send(None)
            await turn()
        await asyncio.to_thread(there.recv)
        self.order.append("begins")
        there.send(Loaded([1.0 * len(plan.mode), 2.0], 1, 10.0))
        await asyncio.Event().wait()

    async def spin(self, there):
        await turn(0.01)  # it takes a while, and is waited for
        self.order.append("spins")
        there.send(None)
        await asyncio.Event().wait()


def test_renewals_are_timed_where_all_cores_are_busy(monkeypatch):
    """As many processes as cores, and as many again that compute, before any begins. By turns from
    a process, a thread and a task."""
    monkeypatch.setattr(lateness, "own_redis", some_redis)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    loads = Loads()
    works = {renewing.hold_under_load: loads.hold, renewing.spin: loads.spin}
    here, session = played((lateness.STAGE,), works, seed=3, runs=2)
    plans = [plan for name, *rest in here.started if name == "loaded process 1" for plan in rest]
    modes = ["process", "thread", "task"]
    assert [plan.mode for plan in plans] == [*modes, *modes[::-1]]
    assert {(plan.url, plan.members, plan.load_s) for plan in plans} == {(URL, 8, 0.1)}
    names = [name for name, *_ in here.started]
    each = [f"{kind} {number}" for kind in ("loaded process", "spinner") for number in (0, 1)]
    assert names == each * 6
    assert loads.order[4:6] == ["spins"] * 2
    assert loads.order[6:8] == ["begins"] * 2
    longest = {"a process": 7.0, "a thread": 6.0, "a task of the loop": 4.0}
    for row in session.rows:
        what = row.case.rpartition(", ")[2]
        if what == "leases lost under load":
            assert (row.unit, row.values, row.peer_values) == ("leases", (2.0, 2.0), (2.0, 2.0))
        elif what == "p50":
            assert (row.unit, row.values, row.peer_values) == ("ms", (2.0, 2.0), (2.0, 2.0))
        else:
            assert (row.unit, row.values) == ("ms", (7.0, 7.0))
            assert row.peer_values == (longest[row.peer],) * 2
    assert [row.peer for row in session.rows] == ["a thread", "a task of the loop"] * 4
    assert session.notes[2].startswith("a process: 8 renewals of all runs")
    assert "hold 32 leases each, beside 2 that only compute, on 2 cores" in session.notes[1]


SETTLE_S = 0.05


class Counting:
    """Stands where Redis is asked: at each reading it has done as much again."""

    def __init__(self):
        self.asked, self.asked_s = [], []
        self.on_reading = lambda _: None

    async def info(self, section):
        self.asked.append(section)
        self.asked_s.append(time.monotonic())
        n = self.asked.count("all")
        self.on_reading(n)
        return {
            "total_reads_processed": 10 * n,
            "used_cpu_user": 0.02 * n,
            "used_cpu_sys": 0.01 * n,
            "total_net_input_bytes": 300 * n,
            "total_net_output_bytes": 700 * n,
            "cmdstat_get": {"calls": 5 * n},
            "cmdstat_ping": {"calls": 3},
        }

    async def flushall(self):
        self.asked.append("emptied")


@pytest.fixture
def redis(monkeypatch):
    """What is looked at where a group rests."""
    counting = Counting()

    @asynccontextmanager
    async def looking_at(url):
        assert url == URL
        yield counting

    for module in (holding, members):
        monkeypatch.setattr(module, "own_redis", some_redis)
        monkeypatch.setattr(module, "looking_at", looking_at)
    monkeypatch.setattr(holding, "SETTLE_S", SETTLE_S)
    return counting


@pytest.mark.slow
def test_three_rules_are_lived_through_in_turn(monkeypatch, redis):
    """A life each on an empty Redis, with the seed of the run; from nothing to even, and then at
    rest."""
    sizes = {"MEMBERS_QUICK": 12, "PARTITIONS_QUICK": 24}
    for name, size in sizes.items():
        monkeypatch.setattr(holding, name, size)
    own = Hosts(monkeypatch, 24)
    here, session = played((holding.STAGE,), {hosts.host: own.work}, seed=3, runs=2)
    assert here.said == [f"{holding.TRIPS}: run {number} of 2" for number in (1, 2)]
    rules = ["guarded", "blog", "locks"]
    told = [(plan.rule, plan.seed) for plan in own.plans[::2]]
    assert told == [*((rule, 3) for rule in rules), *((rule, 4) for rule in rules[::-1])]
    assert [len(plan.nodes) for plan in own.plans] == [6] * 12, "ten in a process at most"
    assert redis.asked == ["emptied", *["all"] * 4] * 6
    rows = {}
    for row in session.rows:
        rows.setdefault(row.case, []).append((row.unit, row.peer))
        values = row.values if row.peer != "blog rule" else row.peer_values
        by_case = dict.fromkeys(holding.UNITS, None) | {holding.MOVES: 0.0, holding.SPENT: 9.0}
        if (one := by_case[row.case]) is not None:
            assert values == (one, one)
        elif row.case == holding.EVEN:
            assert all(0.0 < value < 5.0 for value in values)
    peers = ["blog rule", "redis-py Lock for each partition"]
    assert rows == {case: [(unit, peer) for peer in peers] for case, unit in holding.UNITS.items()}
    figures = {row.case: row.values[0] for row in session.rows}
    window_s = 9.0 / figures[holding.TRIPS]
    assert 0.075 <= window_s < 5.0
    assert figures[holding.REDIS_CPU] == pytest.approx(3.0 / window_s)
    assert figures[holding.NETWORK] == pytest.approx(1.0 / window_s)
    assert session.notes[1].startswith("12 members, 24 partitions")
    (last,) = {row.values[1] for row in session.rows if row.case == holding.TRIPS}
    assert f"get {5 / 9 * last:.0f}/s" in session.notes[4], "as often as in the last run"
    assert not [note for note in session.notes if "not even" in note]


def test_a_group_that_is_not_even_in_time_has_that_time(monkeypatch, redis):
    """And what it did until then."""
    monkeypatch.setattr(holding, "EVEN_WITHIN_S", {"guarded": 0.05})
    own = Hosts(monkeypatch, 4, begins=False)

    async def work(told):
        session = session_of(told)
        return await holding.live(session, URL, "guarded", 2, 4, 5)

    life = do(work, {hosts.host: own.work})
    assert (life.was_even, life.served_once) == (False, 0)
    assert life.figures[holding.EVEN] == 0.05
    assert life.figures[holding.SPENT] == 9.0
    _, spent_s, rests_s, _ = redis.asked_s
    assert rests_s >= spent_s + 0.99 * SETTLE_S, "what was won last has been renewed"


def test_a_host_that_dies_while_its_members_rest_fails_the_run(monkeypatch, redis):
    """What is counted then is not that of the whole group."""
    monkeypatch.setattr(psutil.Process, "children", lambda *_, **__: [])

    async def host(_, there):
        there.send(None)
        await asyncio.to_thread(there.recv)

        def die(number):
            if number == 3:
                there.send(RunError("host 0 died"))

        redis.on_reading = die
        there.send([Report(time.monotonic(), "n0", 0, True)])
        await asyncio.Event().wait()

    async def work(told):
        return await holding.live(session_of(told), URL, "guarded", 1, 1, 5)

    with pytest.raises(RunError, match="host 0 died"):
        do(work, {hosts.host: host})
    assert len(redis.asked_s) == 4, "it was even before"


def test_processor_time_at_rest_is_what_was_used_meanwhile(monkeypatch, redis):
    """Not what this process has used since it began."""
    monkeypatch.setattr(psutil.Process, "children", lambda *_, **__: [])
    before_s = time.process_time()
    reading, used_s = asyncio.run(holding.at_rest(redis, [os.getpid()], 0.02))
    assert reading.round_trips == 9
    assert 0.0 <= used_s <= time.process_time() - before_s + 0.02 < before_s


def test_more_members_are_measured_as_many_times_as_fewer(monkeypatch, redis):
    """One group of each size, which has a Redis of its own."""
    monkeypatch.setattr(members, "WINDOW_S", 0.02)
    monkeypatch.setattr(members, "PARTITIONS", 200)
    own = Hosts(monkeypatch, 200)
    here, session = played((members.STAGE,), {hosts.host: own.work}, seed=3, runs=2, quick=False)
    groups = {}
    for plan in own.plans:
        groups.setdefault(plan.group, []).extend(plan.nodes)
    assert [len(nodes) for nodes in groups.values()] == [10, 50, 100]
    assert len(own.plans) == 1 + 5 + 10
    more = [(f"{count} members", "10 members" if count > 10 else None) for count in (10, 50, 100)]
    assert [(row.case, row.unit, row.peer) for row in session.rows] == [
        *((f"round trips, {which}", "1/s", peer) for which, peer in more),
        *((f"CPU of Redis, {which}", "% of a core", peer) for which, peer in more),
    ]
    assert {len(row.values) for row in session.rows} == {2}
    assert here.said == [f"{which}: run {n} of 2" for which, _ in more for n in (1, 2)]


def test_groups_of_other_sizes_are_looked_at_several_times(monkeypatch, redis):
    """Each is one group; who does not come to rest is left out, and a quick run has none."""
    monkeypatch.setattr(members, "COUNTS", (4, 12))
    monkeypatch.setattr(members, "WINDOW_S", 0.02)
    monkeypatch.setattr(members, "PARTITIONS", 24)

    async def work(told):
        session = session_of(told, seed=3, runs=3)
        return await members._at_rest(session, 12), session, told.said

    own = Hosts(monkeypatch, 24)
    found, session, said = do(work, {hosts.host: own.work})
    assert redis.asked_s[0] >= max(own.begun_s) + 0.99 * SETTLE_S
    assert [plan.seed for plan in own.plans] == [3, 3]
    assert {(plan.rule, plan.partitions) for plan in own.plans} == {("guarded", (24,))}
    assert len(found) == 3
    for trips_per_s, percent in found:
        assert 9.0 / 5.0 < trips_per_s <= 9.0 / 0.02
        assert percent == pytest.approx(trips_per_s / 3.0)
    assert said == [f"12 members: run {number} of 3" for number in (1, 2, 3)]
    monkeypatch.setattr(members, "EVEN_WITHIN_S", {"guarded": 0.02})
    own.begins = False
    found, session, _ = do(work, {hosts.host: own.work})
    assert found == []
    assert session.notes[-1] == "12 members had not come to rest in time: left out"
    _, session = played((members.STAGE,))
    assert (session.rows, session.notes) == ([], ["quick: no groups of other sizes"])
