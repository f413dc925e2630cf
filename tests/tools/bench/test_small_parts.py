"""Smaller parts of benchmarks: nodes in a row, who is kept at work, what an engine's speed is, and
how long a killed node's clients are waited for."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import platform
import signal
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from spillover.model.errors import RunError
from spillover.model.ids import ClusterId
from spillover.model.schedule import Arrival
from spillover.tools.bench import client, machine
from spillover.tools.bench.membership import one_node
from spillover.tools.bench.membership.crowd import CrowdProcess
from spillover.tools.bench.membership.measuring import load_of
from spillover.tools.bench.membership.rules import EVEN
from spillover.tools.bench.model import BenchPlan, Stage
from spillover.tools.bench.node import encrypted, gossip, paths
from spillover.tools.bench.nodes import FOREVER_MS
from spillover.tools.bench.peers import measuring as peers
from spillover.tools.bench.proxy import ways
from spillover.tools.bench.proxy.ways import Way, chain_of, check_hops
from spillover.tools.bench.servers import Server
from spillover.tools.bench.session import Session
from spillover.tools.bench.sim import scale, speed
from spillover.tools.bench.sim.interrupts import interruptible
from support.benches import do, session_of
from support.children import in_this_loop
from support.loop import turn, until
from support.scripted_server import answer, done, problem, scripted

PLAN = BenchPlan(quick=True)


def limited(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 20.0))


@pytest.mark.parametrize(
    ("hops", "ids", "policy"),
    [(0, "a", "adaptive"), (1, "ab", "two-choice"), (2, "abc", "adaptive")],
)
def test_nodes_in_a_row_are_busy_but_for_the_last(hops, ids, policy):
    """Which runs what the first one gets, and has room for all of it."""
    topology = chain_of(hops, "proxy:http://x", "sleep")
    assert topology.cluster_ids == tuple(ids)
    *busy, last = topology.clusters
    assert {(c.servers, c.service_ms, c.handler) for c in busy} <= {(1, FOREVER_MS, "sleep")}
    assert (last.servers, last.service_ms, last.handler) == (4096, 1.0, "proxy:http://x")
    assert [link.between for link in topology.links] == list(pairwise(ids))
    assert (topology.policy, topology.default_deadline_ms) == (policy, 60_000.0)


def checked(hops, said):
    async def main():
        async with scripted(said) as server:
            await check_hops(Way("nodes", server.url, ()), hops)
            await until(lambda: not server._connections, what="the end of the connection")
            return server.seen, server.bodies

    return limited(main())


def test_a_request_has_to_go_over_as_many_hops():
    """As the header says, or the envelope."""
    seen, bodies = checked(1, answer(200, {"ok": True}, spillover_path="a,b"))
    assert (seen[0][0], bodies) == ("POST /requests", [b'{"payload": {}}'])
    checked(0, answer(200, {"path": ["a"]}))
    for hops, said in (
        (0, answer(200, {"ok": True}, spillover_path="a,b")),
        (1, answer(200, {"path": ["a"]})),
        (1, answer(200, {"other": 1})),
        (0, answer(503, {"path": ["a"]})),
    ):
        with pytest.raises(RunError, match=f"expected an answer over {hops} hops, got "):
            checked(hops, said)


@pytest.mark.parametrize("status", [200, 202, 409])
def test_a_node_that_will_not_drain_is_told(status):
    async def main():
        async with scripted(answer(status, {})) as server:
            await ways._tell(Server(server.url, 1), "drain")
            await until(lambda: not server._connections, what="the end of the connection")
            return server.seen

    if status == 409:
        with pytest.raises(RunError, match="expected that it does drain, got 409"):
            limited(main())
    else:
        assert [line for line, _ in limited(main())] == ["POST /admin/drain"]


def test_relays_that_are_not_installed_are_told(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("spillover.tools.bench.foreign.SYSTEM_DIRECTORIES", ())
    session = Session(PLAN, print)
    assert ways.peers_of(session) == []
    assert session.notes == [
        f"{n} is not installed: no row beside it" for n in ("HAProxy", "nginx")
    ]
    for name in ("haproxy", "nginx"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    assert ways.peers_of(Session(PLAN, print)) == ["HAProxy", "nginx"]


def worked(monkeypatch, *answers, count):
    """What two nodes were asked in this time, each."""
    monkeypatch.setattr(gossip, "PERIOD_S", 0.02)

    async def main():
        async with scripted(*answers) as one, scripted(done()) as other:
            nodes = [Server(one.url, 1), Server(other.url, 2)]
            began_s = time.monotonic()
            async with gossip._worked(nodes):
                await until(lambda: len(one.seen) >= count and len(other.seen) >= 3)
                await turn(0.02)
            took_s = time.monotonic() - began_s
            await until(lambda: not one._connections and not other._connections)
            return took_s, one.seen, one.bodies

    return limited(main())


def test_nodes_are_kept_at_work_one_request_each_period(monkeypatch):
    took_s, seen, bodies = worked(monkeypatch, done(), count=4)
    assert 4 <= len(seen) <= took_s / 0.02 + 1
    assert {line for line, _ in seen} == {"POST /requests"}
    assert b'"service_ms": 50.0' in bodies[0]


def test_a_node_that_does_not_work_ends_it(monkeypatch):
    """Though the others do."""
    with pytest.raises(RunError, match="expected a result, got 429"):
        worked(monkeypatch, done(), problem(429, "queue_full"), count=2)


def test_links_are_looked_at_for_as_long_as_is_said():
    """A twentieth of a quick run here, of this process, which computes for longer: it is as long as
    it was, and so nobody takes more than a core."""
    session = session_of(SimpleNamespace(said=[]))

    async def main():
        looking = gossip._measure(session, gossip.IDLE, os.getpid(), os.getpid())
        await asyncio.gather(looking, compute())

    async def compute():
        ends_s = time.process_time() + 0.3
        while time.process_time() < ends_s:
            pass

    began_s = time.monotonic()
    limited(main())
    assert time.monotonic() - began_s >= 0.1
    (row,) = session.rows
    assert row.value == pytest.approx(0.0, abs=10.0)
    assert 1.0 < row.peer_value < 1050.0


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_only_doors_for_neighbors_are_encrypted(scheme):
    topology = encrypted._topology(scheme, 9)
    assert [(c.id, c.servers) for c in topology.clusters] == [("a", 9), ("b", 1024)]
    assert [link.between for link in topology.links] == [("a", "b")]
    urls = [url for c in topology.clusters for url in (c.url, c.peer_url)]
    assert [url.partition("://")[0] for url in urls] == ["http", scheme] * 2
    assert len({url.rpartition(":")[2] for url in urls}) == 4


def test_speed_is_requests_by_the_time_they_took():
    """Of one run, and of as many as it takes."""

    def compute():
        ends_s = time.perf_counter() + 0.03
        while time.perf_counter() < ends_s:
            pass

    side = speed._timed("x", 300, compute)
    began_s = time.perf_counter()
    (per_s,) = limited(side.measure())
    assert side.name == "x"
    assert 300 / (time.perf_counter() - began_s) <= per_s <= 300 / 0.03


@pytest.mark.slow
def test_the_compiled_engine_is_repeated_for_one_value(monkeypatch):
    pytest.importorskip("numba")
    monkeypatch.setattr(speed, "FAST_FOR_S", 0.05)
    topology = scale.circulant(5, 1)
    schedule = [Arrival(n * 0.01, ClusterId(f"c{n % 5}")) for n in range(200)]
    side = speed._fast(topology, schedule, 1)
    began_s = time.perf_counter()
    (per_s,) = limited(side.measure())
    took_s = time.perf_counter() - began_s
    assert side.name == "fast engine"
    assert took_s >= 0.05
    # At least one whole run, and no more of them than that time would bear.
    assert 200 / took_s <= per_s < 1e9


@pytest.mark.slow
def test_a_large_run_tells_its_time_and_its_memory(monkeypatch):
    """From the topology to the summary, of all requests that were asked for."""
    pytest.importorskip("numba")
    monkeypatch.setattr(scale, "CLUSTERS", 20)
    ours, there = multiprocessing.Pipe()
    began_s = time.perf_counter()
    scale.run_large(3000, 1, there)
    took_s = time.perf_counter() - began_s
    wall_s, peak_mb = ours.recv()
    assert not ours.poll()
    ours.close()
    there.close()
    assert 0.0 < wall_s <= took_s
    assert peak_mb == pytest.approx(scale._peak_mb(), rel=0.01)


class Sides:
    """Two sides that play together: one fails, and the other waits for it for ever."""

    name = "one of them"

    def __init__(self):
        self.ended = []

    async def play(self, playing):
        if self.ended or playing.ready.n_waiting:
            raise RunError("a side fails")
        try:
            await playing.ready.wait()
        finally:
            await turn(0)
            self.ended.append(playing)


@pytest.mark.parametrize("of", ["peers", "tokens"])
def test_sides_that_play_together_end_together(of):
    """With the processes that ask for them."""
    sides = [Sides()] * 2

    async def work(told):
        if of == "peers":
            workload = SimpleNamespace(name="mesh", together=True)
            playing = peers._play_all(workload, sides, [], 1, told.said.append)
        else:
            tokens = pytest.importorskip("spillover.tools.bench.tokens.measuring")
            run = SimpleNamespace(workload=SimpleNamespace(name="w"))
            playing = tokens._play_all(run, sides, told.said.append)
        with pytest.raises(RunError, match="a side fails"):
            await playing
        return len(told.started), len(told.ending), len(sides[0].ended)

    assert do(work) == (2, 2, 1)


def look(**fields):
    return {"clients": {"s1": 2, "s2": 1}, "lost": 0, "unconnected": 0, **fields}


def test_clients_of_a_killed_node_are_elsewhere_when_all_have_gone_on(monkeypatch):
    """Each of them has lost it, and none is without a node."""
    looks = [look(), look(lost=2, unconnected=1), look(lost=1), look(lost=2)]

    async def tell(connection):
        for one in looks:
            connection.send(one)
        await asyncio.Event().wait()

    async def main():
        crowd = CrowdProcess(load_of(EVEN, PLAN, 1, 3, {"s1": "http://a:1", "s2": "http://b:2"}))
        async with in_this_loop(crowd, tell) as crowd:
            found = await one_node._until(crowd, partial(one_node._are_elsewhere, 2))
            monkeypatch.setattr(one_node, "CONNECTED_WITHIN_S", 0.05)
            return found

    assert limited(main()) == looks[-1]


def test_what_is_asked_is_as_large_as_it_is_called():
    assert {len(paths.job_of(size).body) for size in paths.SIZES.values()} == {
        size + len(b'{"payload": }') for size in (1024, 65_536)
    }
    # With certificates, too, whatever they are called there.
    called = [(f"{size / 1024:g} KiB", cases) for size, cases in encrypted.PATHS.items()]
    assert [size for size, _ in called] == ["1 KiB", "64 KiB"]
    assert all(case.endswith(f", {size}") for size, cases in called for case in cases)
    job = paths.job_of(1024)
    assert (job.connections, job.statuses, job.keyed) == (12, frozenset((200,)), False)
    assert {size for _, size in client.CASES.values()} == {1024, 65_536}
    assert [library for library, _ in client.CASES.values()] == [
        "AsyncSpillover", "AsyncSpillover", "Spillover",
    ]  # fmt: skip


def test_a_processor_has_the_name_that_the_system_tells(monkeypatch):
    """That of the first one; where it tells none, what it is."""
    lines = "processor\t: 0\nmodel name\t: Fast: one\nprocessor\t: 1\nmodel name\t: Other\n"
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: lines)
    assert machine._cpu() == "Fast: one"
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: "processor\t: 0\n")
    assert machine._cpu() == (platform.processor() or platform.machine())

    def missing(*_, **__):
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    assert machine._cpu() == (platform.processor() or platform.machine())


def test_a_machine_has_the_memory_and_the_load_that_the_system_tells():
    """The load of a minute, which may be another one a moment later."""
    for _ in range(5):
        (load, *_), told = os.getloadavg(), machine.describe_machine([])
        if os.getloadavg()[0] == load:
            break
    assert told["memory_bytes"] == pytest.approx(psutil.virtual_memory().total, rel=0.05)
    assert told["load_1min"] == round(load, 2)
    assert told["packages"] == {}


def test_ctrl_c_is_at_once_while_a_stage_computes_and_no_longer():
    """Then it is again what it was before, also after a failure."""
    found = []

    async def compute(_):
        found.append(signal.getsignal(signal.SIGINT))
        raise RunError("it fails")

    def before(*_):
        """What somebody else wants to be done."""

    stage, own = interruptible(Stage(("a case",), compute)), signal.signal(signal.SIGINT, before)
    try:
        with pytest.raises(RunError, match="it fails"):
            limited(stage.run(Session(PLAN, print)))
        assert (stage.cases, found) == (("a case",), [signal.default_int_handler])
        assert signal.getsignal(signal.SIGINT) is before
    finally:
        signal.signal(signal.SIGINT, own)
