"""Whole benchmarks of `spillover bench tokens` and of `spillover bench peers`, as in
`test_whole_benches`: all sides get the same jobs, each with processes of its own."""

from __future__ import annotations

import asyncio
import os
import re
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest

from spillover.live.http.client import HttpClient
from spillover.model.errors import RunError
from spillover.model.ids import ClusterId
from spillover.model.pool import Pool, PoolClass, PoolServer, PoolType
from spillover.model.schedule import Arrival
from spillover.tools.bench.load_process import JSON_HEADER, LoadProcess, Replayed
from spillover.tools.bench.nodes import state_of
from spillover.tools.bench.peers import measuring as peers
from spillover.tools.bench.peers import sides as peers_sides
from spillover.tools.bench.peers import sites
from spillover.tools.bench.peers.workloads import WAITS, mesh
from spillover.tools.bench.peers.workloads import Workload as PeersWorkload
from spillover.tools.bench.servers import Server
from spillover.tools.bench.tokens import STAGES, dispatch, measuring, sides
from spillover.tools.bench.tokens.rivals import RIVALS
from spillover.tools.bench.tokens.workloads import Workload
from support.benches import do, session_of
from support.loop import turn as loop_turn
from support.loop import until

pytestmark = pytest.mark.slow

LOAD = "the load process"
POOL = Pool(
    name="small",
    servers=tuple(PoolServer(id=name, rate=1.0) for name in "ab"),
    classes=tuple(PoolClass(id=name, servers=(name,), tokens=2) for name in "ab"),
    types=(PoolType(id="any", rate=1.0, classes=("a", "b")),),
)
WORKLOAD = Workload(name="small at 0.5", pool=POOL, job_ms=20.0, jobs=10)


def tokens_played(workload, **fields):
    async def work(told):
        session = session_of(told, duration_s=0.4, replicas=2, **fields)
        await measuring.measure(workload, session)
        return told, session

    return do(work)


SIDES = ["tokens", "tokens, least loaded", *RIVALS]


@pytest.fixture(scope="module")
def two_runs():
    return tokens_played(WORKLOAD, seed=3, runs=2)


def test_all_sides_have_the_jobs_of_the_seed(two_runs):
    """At the same time, each at its own nodes or dispatchers; nobody waits for a deadline."""
    here, _ = two_runs
    jobs = here.jobs[LOAD]
    assert {type(job) for job in jobs} == {Replayed}
    assert [job.seed for job in jobs] == [3] * 7 + [4] * 7
    assert {(job.deadline_ms, job.brief) for job in jobs} == {(None, True)}
    for seed, of_run in ((3, jobs[:7]), (4, jobs[7:])):
        schedule = WORKLOAD.schedule(session_of(here, duration_s=0.4, replicas=2).plan, seed)
        assert [job.schedule for job in of_run] == [schedule] * 7
        assert {tuple(job.targets) for job in of_run} == {("r1", "r2")}
        assert len({url for job in of_run for url in job.targets.values()}) == 14
    names = [name for name, *_ in here.started]
    assert names.count(LOAD) == names.count("the sharing servers") == 14
    assert {name for name in names if name.endswith("dispatchers")} == {
        f"{name}'s dispatchers" for name in RIVALS
    }
    assert {told[1:] for told in here.started if told[0] == "the sharing servers"} == {(POOL, 2)}
    assert here.jobs["the sharing servers"] == ["what have you done?"] * 14


def test_nodes_have_the_pool_and_the_order_of_their_side(two_runs):
    here, _ = two_runs
    assert [bed.told["seed"] for bed in here.beds] == [3, 3, 4, 4]
    orders = [{cluster.order for cluster in bed.wanted.clusters} for bed in here.beds]
    assert orders[:2] == orders[2:]
    assert sorted(*map(sorted, zip(*orders[:2], strict=True))) == [
        "least-loaded",
        "longest-available",
    ]
    for bed in here.beds:
        assert [cluster.id for cluster in bed.wanted.clusters] == ["r1", "r2"]
        handlers = [server.handler for c in bed.wanted.clusters for server in c.servers]
        assert len(set(handlers)) == 4


def test_tokens_are_beside_theory_rules_and_themselves(two_runs):
    _, session = two_runs
    case = WORKLOAD.name
    virtual = ["itself, simulated", "tokens, least loaded, simulated"]
    beside = [*SIDES[1:], *virtual]
    blocked = [(row.unit, row.peer) for row in session.rows if row.case == f"{case}: blocked"]
    assert blocked == [("per 10 000 jobs", peer) for peer in ("exact", *beside)]
    times = [(row.unit, row.peer) for row in session.rows if row.case == f"{case}: mean time"]
    assert times == [("ms", peer) for peer in beside]
    assert all(10.0 < row.value < 5000.0 for row in session.rows if row.unit == "ms")
    least = [row.peer for row in session.rows if row.case == f"{case}: blocked, least loaded"]
    assert least == [*RIVALS, "tokens, least loaded, simulated"]
    efforts = [note.partition(": of one core ")[0] for note in session.notes]
    assert [note for note in efforts if note.startswith(f"{case}, ")] == [
        f"{case}, {name}" for name in SIDES
    ]
    assert session.notes[-1].startswith("All sides had the same jobs at the same time. Half-widths")
    shown = [note for note in session.notes if ": of one core " in note]
    assert all("servers " in note and "generator " in note for note in shown)
    assert ["nodes " in note.partition(";")[0] for note in shown] == [True] * 2 + [False] * 5


def test_a_side_that_is_not_played_waits_for_no_change_of_its_servers():
    """Which is due from when the load begins, and that never does."""

    async def work(told):
        plan = session_of(told, duration_s=0.4, replicas=1).plan
        changing = replace(WORKLOAD, out="b")
        parts = (changing.replicas(plan), changing.phases(plan), changing.schedule(plan, 3))
        ready = asyncio.Barrier(2)
        await ready.abort()
        load = SimpleNamespace(pid=os.getpid())
        turn = sides.Turn(sides.Run(changing, *parts, 3), load, ready, asyncio.Barrier(1))
        before = asyncio.all_tasks()
        with pytest.raises(asyncio.BrokenBarrierError):
            await sides.Tokens().play(turn)
        return [one.get_coro().__name__ for one in asyncio.all_tasks() - before]

    assert "_change" not in do(work)


def alone(told, **fields):
    """What one side is to play, at two replicas, and the others that it waits for: one that is
    ready when it is, and one that hears what it hears."""
    workload = replace(WORKLOAD, **fields)
    plan = session_of(told, duration_s=0.1, replicas=2).plan
    parts = (workload.replicas(plan), workload.phases(plan), workload.schedule(plan, 3))
    ready, heard = asyncio.Barrier(2), asyncio.Barrier(2)
    return sides.Run(workload, *parts, 3), ready, heard


def test_a_side_is_quiet_until_all_have_heard_what_became_of_jobs():
    """Then it asks its servers what they did, and ends only when all have heard that as well:
    meanwhile nobody else could hear anything."""

    async def work(told):
        run, ready, heard = alone(told)
        with LoadProcess() as load:
            side = sides.Dispatched("two choices")
            playing = asyncio.create_task(side.play(sides.Turn(run, load, ready, heard)))
            await ready.wait()
            asked = []
            for _ in range(2):
                await until(lambda: playing.done() or heard.n_waiting == 1)
                asked.append((playing.done(), list(told.jobs["the sharing servers"])))
                await asyncio.wait_for(heard.wait(), 1.0)
            return asked, await playing, len(run.schedule)

    asked, played, count = do(work)
    assert asked == [(False, []), (False, ["what have you done?"])]
    assert len(played.jobs) == count
    assert played.served.jobs == sum(job.time_ms is not None for job in played.jobs)


async def of_nodes(told, meanwhile=None, **fields):
    """What is raised by nodes that play; `meanwhile(url)` is awaited before they begin."""
    run, ready, _ = alone(told, **fields)
    with LoadProcess() as load:
        turn = sides.Turn(run, load, ready, asyncio.Barrier(1))
        playing = asyncio.create_task(sides.Tokens().play(turn))
        await until(lambda: ready.n_waiting == 1)
        if meanwhile is not None:
            await meanwhile(told.beds[0].urls["r1"])
        await ready.wait()
        with pytest.raises(RunError) as raised:
            await playing
        return str(raised.value)


def test_a_server_that_a_node_will_not_take_out_ends_it():
    """Else what the whole pool does would stand beside what theory says of less."""
    assert "expected a bucket, got 4" in do(partial(of_nodes, out="none"))


def test_a_token_that_is_not_back_in_the_end_is_told():
    """Of a job that somebody else has, which goes on."""

    async def work(told):
        clients = []

        async def ask(url):
            clients.append(HttpClient(url))
            body = b'{"type": "any", "payload": {"service_ms": 100000}}'
            headers = [JSON_HEADER]
            asked = clients[0].request("POST", "/requests", body=body, headers=headers, timeout_s=9)
            clients.append(asked)
            await until(partial(is_held, Server(url, 1)))

        said = await of_nodes(told, ask)
        clients[1].cancel()
        await clients[0].close()
        return said

    assert "expected all tokens of class" in do(work)


async def is_held(node):
    return any(each["held"] for each in (await state_of(node))["tokens"]["classes"])


class Failing:
    """A side that cannot play."""

    name = "failing"

    async def play(self, _):
        raise RunError("it cannot be played")


class Patient:
    """A side that waits for the others, and takes a moment to end what it has begun."""

    name = "patient"

    def __init__(self):
        self.has_ended = False

    async def play(self, turn):
        try:
            await turn.ready.wait()
        finally:
            await loop_turn()
            self.has_ended = True


def test_nobody_waits_for_a_side_that_has_failed():
    """All others have ended by then."""
    patient, said = Patient(), []

    async def work(told):
        run, *_ = alone(told)
        before = asyncio.all_tasks()
        with pytest.raises(RunError, match="it cannot be played"):
            await asyncio.wait_for(measuring._play_all(run, [Failing(), patient], said.append), 2.0)
        return [one.get_coro().__name__ for one in asyncio.all_tasks() - before]

    assert not {"play", "_tell"} & set(do(work))
    assert (patient.has_ended, said) == (True, [])


def test_progress_is_told_run_by_run(two_runs):
    here, _ = two_runs
    name = WORKLOAD.name
    assert [line for line in here.said if "run " in line or "simulated" in line] == [
        f"{name}: run 1 of 2",
        f"{name}: simulated",
        f"{name}: run 2 of 2",
        f"{name}: simulated",
    ]
    how_far = [line for line in here.said if re.fullmatch(rf"{name}: \d+ of 0 s", line)]
    assert len(how_far) <= 2, "so seldom that nobody minds"
    assert any(line.endswith("jobs for each side in 0 s, on 2 replicas") for line in here.said)


def test_a_pool_that_changes_is_played_by_nodes_alone():
    """In the first order; a server is taken out at a third, and put back at two."""
    here, session = tokens_played(replace(WORKLOAD, name="changing", out="b"), seed=3)
    (bed,) = here.beds
    assert {cluster.order for cluster in bed.wanted.clusters} == {"longest-available"}
    assert [job.seed for job in here.jobs[LOAD]] == [3]
    cases = {row.case.partition(":")[0] for row in session.rows}
    assert cases == {f"changing, {phase}" for phase in ("all", "b out", "b back")}
    assert {row.peer for row in session.rows} == {"exact"}
    assert not [line for line in here.said if "simulated" in line]


A, B = ClusterId("a"), ClusterId("b")
SCHEDULE = [Arrival(0.01 * n, (A, B)[n % 2], service_ms=2.0) for n in range(10)]
JOBS = PeersWorkload(
    name="small",
    topology=mesh("small", (2, 1)),
    draw=lambda _, seed: [replace(one, time_s=one.time_s + seed / 1e3) for one in SCHEDULE],
    full_s=1.0,
    quick_s=1.0,
    figures=WAITS,
)


class Sited:
    """In place of HAProxy: at each site a door to its first own server, which is told to it."""

    def __init__(self):
        self.texts = []

    @asynccontextmanager
    async def running(self, text, listening):
        self.texts.append(text)
        port = int(re.search(r"server s0 127.0.0.1:(\d+)", text)[1])
        site = re.search(r"x-home (\S+)", text)[1].encode()

        turns = asyncio.Lock()  # that server takes one at a time

        async def pass_on(reader, writer):
            there = await asyncio.open_connection("127.0.0.1", port)
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while head := await reader.readuntil(b"\r\n\r\n"):
                    length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])
                    came_us = b"%d" % (time.time() * 1e6)
                    told = b"x-home: %b\r\nx-came-us: %b\r\n\r\n" % (site, came_us)
                    request = head[:-2] + told + await reader.readexactly(length)
                    async with turns:
                        there[1].write(request)
                        answer = await there[0].readuntil(b"\r\n\r\n")
                        length = int(re.search(rb"(?i)content-length: (\d+)", answer)[1])
                        answer += await there[0].readexactly(length)
                    writer.write(answer)
            writer.close()
            there[1].close()

        async with await asyncio.start_server(pass_on, sock=listening):
            yield Server("", os.getpid())


def peers_played(monkeypatch, workload, **fields):
    sited = Sited()
    monkeypatch.setattr(sites, "running_haproxy", sited.running)

    async def work(told):
        session = session_of(told, **fields)
        await peers.measure(workload, session)
        return told, session, sited.texts

    return do(work)


@pytest.mark.parametrize("together", [False, True])
def test_sites_play_the_schedule_of_each_seed(monkeypatch, together):
    """Nodes and HAProxy's sites, in turn or at the same time; the order is turned round on every
    other run."""
    workload = replace(JOBS, together=together, deadline_ms=3000.0)
    here, session, texts = peers_played(
        monkeypatch, workload, seed=3, runs=2, policies=("paper", "isolated")
    )
    sides = ["paper", "isolated", "HAProxy, queue 1"]
    assert here.said == [
        "small: run 1 of 2",
        *(f"small: {side}" for side in sides),
        "small: run 2 of 2",
        *(f"small: {side}" for side in sides[::-1]),
        "small: paper, simulated",
        "small: isolated, simulated",
    ]
    jobs = here.jobs[LOAD]
    assert [job.seed for job in jobs] == [3] * 3 + [4] * 3
    assert {(job.deadline_ms, tuple(job.targets)) for job in jobs} == {(3000.0, (A, B))}
    for job in jobs:
        assert job.schedule == JOBS.draw(1.0, job.seed)
    beds = [(bed.told["seed"], bed.wanted.policy) for bed in here.beds]
    assert sorted(beds) == [(seed, name) for seed in (3, 4) for name in ("isolated", "paper")]
    for text in texts:
        assert "timeout queue 1500ms" in text
        assert "queue(own) ge 1" in text
    assert [text.count("maxconn 1") for text in texts] == [2, 1] * 2
    ways = [told[1] for told in here.started if told[0] == "the relays"]
    assert [{way: delay_s for way, (_, delay_s) in one.items()} for one in ways] == [
        {(A, B): 0.035, (B, A): 0.035}
    ] * 2
    servers = [told[1] for told in here.started if told[0] == "the emulated servers"]
    assert servers == [workload.topology] * 2
    shown = {(row.case.partition(":")[0], row.peer) for row in session.rows}
    both = ("HAProxy, queue 1", "itself, simulated")
    assert shown == {
        *((f"small, {policy}", peer) for policy in ("paper", "isolated") for peer in both),
        ("small, isolated", "paper"),
    }
    assert all(len(row.values) == len(row.peer_values) == 2 for row in session.rows)
    efforts = [note for note in session.notes if ": of one core " in note]
    kinds = ["nodes", "nodes", "HAProxy"]
    assert [f"of one core {kind} " in note for kind, note in zip(kinds, efforts, strict=True)] == [
        True
    ] * 3
    assert "servers and relays" in efforts[2]
    assert session.notes[-1] == "Too few seeds to claim anything: take --runs 6 or more."


def test_a_side_asks_for_nothing_before_all_are_ready():
    """Where one of them never is, it does not begin."""

    async def work(told):
        ready = asyncio.Barrier(2)
        await ready.abort()
        with LoadProcess() as load:
            playing = peers_sides.Turn(JOBS, JOBS.draw(1.0, 3), 3, load, ready)
            with pytest.raises(asyncio.BrokenBarrierError):
                await peers_sides.Federation("paper").play(playing)
        return len(told.beds), list(told.jobs)

    assert do(work) == (1, [])


def test_sites_play_beside_the_papers_rule_unless_told_otherwise(monkeypatch):
    here, session, _ = peers_played(monkeypatch, replace(JOBS, together=True), seed=3)
    assert [bed.wanted.policy for bed in here.beds] == ["paper"]
    peer = "HAProxy, queue 1"
    assert {row.case.partition(":")[0] for row in session.rows} == {"small, paper"}
    assert {row.peer for row in session.rows} == {peer, "itself, simulated"}


@pytest.mark.parametrize("order", ["longest-available", "least-loaded"])
def test_dispatches_of_each_order_are_beside_a_plain_cluster(order, monkeypatch):
    monkeypatch.setattr(dispatch, "DISPATCHES_QUICK", 400.0)

    async def work(told):
        session = session_of(told, case=f"dispatch, {order}", seed=3, runs=2)
        await session.run(STAGES)
        return told, session

    here, session = do(work)
    (row,) = session.rows
    assert (row.case, row.unit, row.peer) == (f"dispatch, {order}", "us", "plain cluster")
    assert len(row.values) == len(row.peer_values) == 2
    # The least of each: whoever stands still for a moment makes the rest longer.
    assert 0.0 < min(row.peer_values) < min(row.values)
    assert max(row.values) < 1e4
    assert here.said == [f"dispatch, {order}: run {number} of 2" for number in (1, 2)]


def test_stages_are_those_of_the_workloads():
    """Each is measured if it is wanted."""
    case = "comte11 at 0.8"

    async def work(told):
        session = session_of(told, case=case, seed=3, duration_s=0.3, replicas=1)
        await session.run(STAGES)
        return session

    assert {row.case.partition(":")[0] for row in do(work).rows} == {case}
