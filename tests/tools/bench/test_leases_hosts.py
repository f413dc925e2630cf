"""Processes of `spillover bench leases`, as in `test_whole_benches`, on a real Redis: hosts that
hold locks, and members that renew while their handlers keep the interpreter busy."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import subprocess
import time
from dataclasses import replace
from random import Random
from types import SimpleNamespace

import psutil
import pytest

from spillover.live.leases.store import RedisLeaseStore
from spillover.model.errors import InputError, RunError
from spillover.tools.bench.leases import hosts, readings, renewing
from spillover.tools.bench.leases.cluster import Cluster
from spillover.tools.bench.leases.renewing import LoadedPlan
from spillover.tools.bench.leases.settings import TIMES
from spillover.tools.processes.child import Child
from support.benches import do
from support.loop import turn, until


async def hosted(plan, there):
    try:
        await hosts._Host(plan, there).run()
    finally:
        await turn(0.05)  # those who held locks let go of their connections


@pytest.mark.processes
def test_locks_are_shared_out_beforehand(redis_server, redis_servers, monkeypatch):
    """Each host has its nodes, and each node its own partitions: nobody waits for another."""
    monkeypatch.setattr(psutil.Process, "children", lambda *_, **__: [])
    told = {"hosts": 2, "members": 3, "partitions": 7, "seed": 1}
    group = redis_servers.new_name()

    async def work(here):
        async with Cluster(redis_server.url, group, "locks", **told) as cluster:
            before = cluster.served_once
            began_s = cluster.begin()
            in_time = await cluster.until(lambda: cluster.served_once == 7, 20.0)
            took_s = time.monotonic() - began_s
            held = [cluster.held_by(node) for node in cluster.nodes]
            cluster.check()
            reports = [(one.node, one.partition, one.runs) for one in cluster.reports()]
        assert len(here.ending) == 2, "no host is left behind"
        assert all(task.cancelled() for task in cluster._tasks), "nobody listens to one any more"
        return before, in_time, took_s, held, reports

    before, in_time, took_s, held, reports = do(work, {hosts.host: hosted})
    assert (before, in_time) == (0, True)
    assert 0.0 < took_s < 20.0
    # Of the first host's two nodes each has every second of its partitions, the other has all.
    assert held == [[0, 4], [1, 3, 5], [2, 6]]
    assert sorted(reports) == sorted(
        (f"n{n}", partition, True) for n, of in enumerate(held) for partition in of
    )


@pytest.mark.processes
@pytest.mark.parametrize("rule", ["guarded", "blog"])
def test_members_are_whole_ones_whose_handlers_say_when_they_begin_and_end(
    redis_server, redis_servers, rule
):
    """Each partition runs until it is handed over, which is when the member leaves."""
    plan = hosts.HostPlan(
        url=redis_server.url,
        group=redis_servers.new_name(),
        rule=rule,
        nodes=("n0",),
        partitions=(2,),
        seed=5,
    )

    async def work(_):
        host = hosts._Host(plan, None)
        member = host._member("n0")
        async with member:
            await until(lambda: len(host._said) == 2)
            await turn(0.05)
            begun = [(one.node, one.partition, one.runs) for one in host._said]
        return member, begun, [(one.node, one.partition, one.runs) for one in host._said]

    member, begun, said = do(work)
    assert sorted(begun) == [("n0", 0, True), ("n0", 1, True)]
    assert sorted(said[2:]) == [("n0", 0, False), ("n0", 1, False)]
    assert (member.url, member.group, member.rule) == (plan.url, plan.group, rule)
    assert (member.times, member.settings.partitions) == (TIMES, 2)


@pytest.mark.processes
def test_a_member_that_cannot_begin_ends_its_host(redis_server, redis_servers):
    """As one of a group with other settings; who looks on would wait for it for long."""
    told = {"url": redis_server.url, "group": redis_servers.new_name(), "rule": "guarded"}
    plans = [
        hosts.HostPlan(**told, nodes=(node,), partitions=(count,), seed=5)
        for node, count in (("n0", 2), ("n1", 3))
    ]

    async def work(_):
        first = hosts._Host(plans[0], None)
        async with first._member("n0"):
            await until(lambda: len(first._said) == 2)
            ours, there = multiprocessing.Pipe()
            with ours, there:
                ours.send(None)
                with pytest.raises(InputError, match="partitions"):
                    await asyncio.wait_for(hosts._Host(plans[1], there).run(), 10.0)
                return ours.recv()

    assert do(work) is None, "it was ready before"


@pytest.mark.processes
def test_who_cannot_have_a_lock_tries_again_a_period_later(
    redis_server, redis_servers, monkeypatch
):
    """One call each: who waited for it would ask again and again. The first ones come at any
    instant of a period, so that not all come at once."""
    monkeypatch.setattr(hosts, "TIMES", replace(TIMES, normal_lease_ms=300.0, min_grab_ms=30.0))
    group = redis_servers.new_name()
    noted = []

    def note(node, partition, runs):
        noted.append((time.monotonic(), node, partition, runs))

    def calls():
        told = redis_server.client.info("commandstats")
        return told["cmdstat_set"]["calls"]

    async def work(_):
        def holding(node, random):
            held = hosts.hold_locks(redis_server.url, group, node, range(8), random, note)
            return asyncio.create_task(held)

        first = holding("n0", Random(1))
        await until(lambda: len(noted) == 8)
        before, began_s = calls(), time.monotonic()
        second = holding("n1", Random(2))
        await turn(0.9)
        asked, took_s = calls() - before, time.monotonic() - began_s
        for one in (first, second):
            one.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        return asked, took_s

    asked, took_s = do(work)
    assert {node for _, node, _, _ in noted} == {"n0"}
    begun_s = [at_s for at_s, *_ in noted[:8]]
    assert max(begun_s) - min(begun_s) >= 0.02, "not all at once"
    assert 0 < asked <= 8 * (took_s / 0.3 + 1)


@pytest.mark.processes
def test_leases_that_nobody_renews_are_over_in_time(redis_server):
    """They last as long as a lease may, less what a fence needs."""
    plan = LoadedPlan(url=redis_server.url, mode="thread", members=1, load_s=0.1)

    async def work(_):
        member = renewing._Renewer(plan)
        await member.begin()
        left_s = [lease.left_s for lease in member._leases]
        kind = member._renewer.kind
        await member.close()
        return left_s, kind

    times = TIMES.max_lease_ms - TIMES.fence_margin_ms
    left_s, kind = do(work)
    assert len(left_s) == renewing.HELD
    assert all(times / 1e3 - 1.0 < left <= times / 1e3 for left in left_s)
    assert kind == "thread", "as it was told"


@pytest.mark.processes
def test_what_is_not_held_is_not_timed(redis_server):
    """As where another has a partition first: its renewals would all be refused."""
    plan = LoadedPlan(url=redis_server.url, mode="task", members=1, load_s=0.1)

    async def work(_):
        member = renewing._Member(plan)
        other = RedisLeaseStore(redis_server.url, member._group, renewing.HELD, TIMES)
        await other.join("m", "other")
        await other.grab(1, "m", 0.0)
        await other.activate(1, "m")
        with pytest.raises(RunError, match="was not granted"):
            await member.take_all()
        await member._store.close()
        await other.close()
        return [partition for partition, _ in member.held]

    assert do(work) == [0]


@pytest.mark.processes
def test_what_members_have_started_has_to_end_with_them(monkeypatch):
    """A renewer that stayed would go on for nobody."""
    monkeypatch.setattr(readings, "GONE_WITHIN_S", 0.1)
    told = {"hosts": 1, "members": 1, "partitions": 1, "seed": 1}

    async def ready(_, there):
        there.send(None)
        await asyncio.Event().wait()

    with subprocess.Popen(["sleep", "60"]) as started:
        left = [psutil.Process(started.pid)]
        monkeypatch.setattr(psutil.Process, "children", lambda *_, **__: left)

        async def work(_):
            async with Cluster("redis://x", "g", "guarded", **told):
                pass

        try:
            with pytest.raises(RunError, match="1 processes of a member outlived it"):
                do(work, {hosts.host: ready})
        finally:
            started.kill()
        started.wait()
        do(work, {hosts.host: ready})


def run_of(work, plan, words=()):
    """What a process tells that has been told these words."""
    ours, there = multiprocessing.Pipe()
    for word in words:
        ours.send(word)
    try:
        work(plan, there)
        is_silent = not logging.getLogger("spillover").isEnabledFor(logging.CRITICAL)
        assert is_silent, "what goes wrong there is counted, not told"
    finally:
        there.close()
        logging.disable(logging.NOTSET)
    told = []
    while ours.poll():
        try:
            told.append(ours.recv())
        except EOFError:
            break
    ours.close()
    return told


@pytest.mark.processes
@pytest.mark.parametrize(("mode", "members", "load_s"), [("task", 5, 0.4), ("thread", 2, 1.2)])
def test_what_is_held_is_renewed_under_load(redis_server, monkeypatch, mode, members, load_s):
    """Once each period, of each member, which a thread has from the leases; what was due then is
    told, and how long a batch took."""
    for name, value in {"PERIOD_S": 0.1, "AFTER_S": 0.15, "RECORDS": 300, "HANDLERS": 2}.items():
        monkeypatch.setattr(renewing, name, value)
    plan = LoadedPlan(url=redis_server.url, mode=mode, members=members, load_s=load_s)

    async def work(_):
        before = redis_server.connections
        with Child("loaded", renewing.hold_under_load, plan) as child:
            began_s = time.monotonic()
            await child.receive(20.0)
            ready_s = time.monotonic() - began_s
            await turn(0.1)  # until all are ready
            child.send(None)
            told_s = time.monotonic()
            loaded = await child.receive(20.0)
            took_s = time.monotonic() - told_s
            await asyncio.wait([child._working])  # it ends by itself
            await until(lambda: redis_server.connections <= before)
            return ready_s, loaded, took_s

    ready_s, loaded, took_s = do(work, {renewing.hold_under_load: renewing._run})
    assert ready_s >= 0.09, "they do not all renew at once"
    assert took_s >= load_s + 0.14
    # On a machine that is late there are fewer.
    assert 2 <= len(loaded.late_ms) <= 5 * 5
    assert all(0.0 <= late_ms < 5000.0 for late_ms in loaded.late_ms)
    assert loaded.lost == 0
    assert 0.0 < loaded.batch_ms < load_s * 1e3


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["task", "thread"])
def test_a_process_without_a_redis_says_so(mode):
    """Once it has said that it runs."""
    plan = LoadedPlan(url="redis://127.0.0.1:1", mode=mode, members=1, load_s=0.1)
    started, error = run_of(renewing.hold_under_load, plan)
    assert started is None
    assert isinstance(error, RunError)


def host_plan(**fields):
    told = {"url": "redis://127.0.0.1:1", "group": "g", "rule": "guarded", "seed": 5}
    return hosts.HostPlan(**told | {"nodes": (), "partitions": (2,)} | fields)


def test_a_host_that_fails_says_why():
    """Before it is ready, here: the members of no partition at all."""
    (error,) = run_of(hosts.host, host_plan(nodes=("n0",), partitions=(0,)))
    assert isinstance(error, RunError)
    assert "partitions" in str(error)


def test_a_host_begins_when_it_is_told_to():
    """Which it never is where the benchmark is gone."""

    async def main():
        ours, there = multiprocessing.Pipe()
        ours.close()
        heard = SimpleNamespace(send=lambda _: None, recv=there.recv)
        locks = host_plan(rule="locks", nodes=("n0",))
        with there, pytest.raises(EOFError):
            await asyncio.wait_for(hosts._Host(locks, heard).run(), 10.0)

    asyncio.run(main())


def test_a_host_goes_on_once_its_members_have_begun(monkeypatch):
    """Until it is ended; it says now and then that it lives."""
    monkeypatch.setattr(hosts, "REPORT_S", 0.005)
    monkeypatch.setattr(hosts, "SIGN_OF_LIFE_S", 0.01)

    async def main():
        said = []
        ended = SimpleNamespace(send=said.append, recv=lambda: None)
        running = asyncio.create_task(hosts._Host(host_plan(), ended).run())
        await until(lambda: len(said) == 3 or running.done())
        is_over = running.done()
        running.cancel()
        await asyncio.wait([running])
        return is_over, said

    assert asyncio.run(main()) == (False, [None, [], []])


def test_locks_wait_for_a_redis_that_does_not_answer_for_half_a_period_at_least(monkeypatch):
    """After half a period: the first instant of it is drawn, and then nothing comes."""
    period_s = 0.2
    monkeypatch.setattr(
        hosts, "TIMES", replace(TIMES, normal_lease_ms=period_s * 1e3, min_grab_ms=30.0)
    )
    first = Random(1).random() * period_s

    async def main():
        gone_s = []

        async def hear(reader, writer):
            await reader.read()  # to the end
            gone_s.append(time.monotonic())
            writer.close()

        server = await asyncio.start_server(hear, "127.0.0.1", 0)
        url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            began_s = time.monotonic()
            holding = hosts.hold_locks(url, "g", "n0", [0], Random(1), lambda *_: None)
            task = asyncio.create_task(holding)
            await until(lambda: gone_s)
            task.cancel()
            await asyncio.wait([task])
        return gone_s[0] - began_s

    assert asyncio.run(main()) >= first + 0.49 * period_s
