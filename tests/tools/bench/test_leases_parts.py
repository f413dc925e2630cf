"""Parts of `spillover bench leases` in one process: hosts that tell what begins and ends, and who
follows them; locks of the peer, and renewals under load, on a real Redis."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from random import Random
from types import SimpleNamespace

import psutil
import pytest

from spillover.core.leases import events as ev
from spillover.live.leases.store import RedisLeaseStore
from spillover.model.errors import RunError
from spillover.tools.bench.leases import fenced, hosts, readings, renewing, settings
from spillover.tools.bench.leases.cluster import Cluster, _partitions_of
from spillover.tools.bench.leases.hosts import HostPlan
from spillover.tools.bench.leases.ownership import Report
from spillover.tools.bench.leases.readings import Reading, read_redis, trees_cpu_s
from spillover.tools.bench.leases.server import looking_at
from support.loop import turn, until

PERIOD_S = settings.TIMES.renewal_period_ms / 1e3


def limited(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 30.0))


class Told:
    """Stands where `Redis.info` is asked."""

    def __init__(self, **told):
        self._told = told

    async def info(self, section):
        assert section == "all"
        return self._told


TOLD = {
    "total_reads_processed": "41",
    "used_cpu_user": 1.5,
    "used_cpu_sys": 0.25,
    "total_net_input_bytes": 7,
    "total_net_output_bytes": 9,
    "cmdstat_get": {"calls": 3, "usec": 40},
    "cmdstat_config|get": {"calls": 1, "usec": 4},
    "uptime_in_seconds": 5,
}


def test_a_reading_has_what_redis_counts():
    """Both kinds of processor time; calls by the name of the command."""
    before_s = time.monotonic()
    reading = limited(read_redis(Told(**TOLD)))
    assert before_s <= reading.at_s <= time.monotonic()
    counted = Reading(reading.at_s, 41, 1.75, 7, 9, {"get": 3, "config|get": 1})
    assert reading == counted
    del TOLD["total_reads_processed"]
    with pytest.raises(RunError, match="expected Redis 6 or later"):
        limited(read_redis(Told(**TOLD)))


def test_processor_time_of_a_tree_is_that_of_all_in_it():
    own = psutil.Process().cpu_times()
    assert own.user + own.system <= trees_cpu_s([os.getpid()])
    assert trees_cpu_s([os.getpid()] * 2) >= 2 * (own.user + own.system)
    assert trees_cpu_s([]) == 0.0
    assert readings.descendants(2**30) == []


SPINS = """
import subprocess, sys, time
depth = int(sys.argv[1])
if depth:
    subprocess.Popen([sys.executable, "-c", sys.argv[2], str(depth - 1), sys.argv[2]])
while time.process_time() < 0.1:
    pass
print(flush=True)
sys.stdin.read()
"""


@pytest.mark.processes
def test_processor_time_of_a_tree_has_what_its_processes_have_started():
    """Directly or not; each has used 0.1 s."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", SPINS, "2", SPINS], **pipes) as first:
        for _ in range(3):
            first.stdout.readline()
        tree = [psutil.Process(first.pid), *readings.descendants(first.pid)]
        each_s = [one.cpu_times().user + one.cpu_times().system for one in tree]
        found_s = trees_cpu_s([first.pid])
        first.stdin.close()
        psutil.wait_procs(tree[1:], timeout=10.0)
    assert len(tree) == 3
    assert min(each_s) >= 0.09
    assert sum(each_s) <= found_s <= sum(each_s) + 0.1


def test_members_are_dealt_to_hosts_and_locks_with_them():
    """Each host has every third; of the rules all hosts know the number alone."""
    assert [_partitions_of("locks", index, 3, 8) for index in range(3)] == [
        (0, 3, 6),
        (1, 4, 7),
        (2, 5),
    ]
    assert _partitions_of("guarded", 2, 3, 8) == (8,)
    made = {"hosts": 2, "members": 5, "partitions": 8, "seed": 4}
    cluster = Cluster("redis://x", "g", "guarded", **made)
    plans = cluster._plans
    assert cluster.nodes == ("n0", "n1", "n2", "n3", "n4")
    assert [plan.nodes for plan in plans] == [("n0", "n2", "n4"), ("n1", "n3")]
    assert {(plan.url, plan.group, plan.rule, plan.partitions, plan.seed) for plan in plans} == {
        ("redis://x", "g", "guarded", (8,), 4)
    }


class Host:
    """A host of which a test says what it tells."""

    def __init__(self):
        self.words = asyncio.Queue()

    async def receive(self, within_s):
        assert within_s > 0
        word = await self.words.get()
        if isinstance(word, Exception):
            raise word
        return word


def cluster_of(members=2, partitions=2):
    made = {"hosts": 1, "members": members, "partitions": partitions, "seed": 1}
    return Cluster("redis://x", "g", "guarded", **made)


def reports(*some):
    return [Report(float(at_s), node, partition, runs) for at_s, node, partition, runs in some]


def test_a_cluster_is_followed_by_what_its_hosts_say():
    """Whoever waits is told as soon as it comes to that, or that it never did."""

    async def main():
        cluster, host = cluster_of(), Host()
        listening = asyncio.create_task(cluster._listen(0, host))
        waiting = asyncio.create_task(cluster.until(lambda: cluster.is_even, 10.0))
        host.words.put_nowait(reports((1, "n0", 0, True)))
        await until(lambda: cluster.served_once == 1)
        was_even = waiting.done() or cluster.is_even
        host.words.put_nowait([])
        host.words.put_nowait(reports((2, "n1", 1, True)))
        is_even = await waiting
        held = cluster.held_by("n0"), cluster.held_by("n1")
        elsewhere = cluster.runs_elsewhere(0, "n0"), cluster.runs_elsewhere(0, "n1")
        never = await cluster.until(lambda: cluster.served_once == 0, 0.02)
        replayed = cluster.replay()
        listening.cancel()
        return was_even, is_even, held, elsewhere, never, replayed.even_since_s, cluster.reports()

    was_even, is_even, held, elsewhere, never, even_since_s, said = limited(main())
    assert (was_even, is_even, never) == (False, True, False)
    assert held == ([0], [1])
    assert elsewhere == (False, True)
    assert even_since_s == 2.0
    assert [report.partition for report in said] == [0, 1]


@pytest.mark.parametrize("was_killed", [False, True])
def test_a_host_that_dies_fails_the_run_unless_it_was_killed(was_killed):
    async def main():
        cluster, host = cluster_of(), Host()
        if was_killed:
            cluster._killed.add(0)
        listening = asyncio.create_task(cluster._listen(0, host))
        host.words.put_nowait(RunError("host 0 of the members died"))
        # Whoever waits is told at once.
        came = await cluster.until(lambda: False, 0.02 if was_killed else 20.0)
        await listening
        cluster.check()
        return came

    began_s = time.monotonic()
    if was_killed:
        assert limited(main()) is False
    else:
        with pytest.raises(RunError, match="host 0 of the members died"):
            limited(main())
    assert time.monotonic() < began_s + 10.0


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_host_that_was_killed_may_die(monkeypatch, is_killed):
    """It is what was wanted, and the others are followed on."""
    killed = []
    monkeypatch.setattr(os, "kill", lambda *how: killed.append(how))

    async def main():
        cluster, host = cluster_of(), Host()
        cluster._children = [SimpleNamespace(pid=5), SimpleNamespace(pid=6)]
        listening = asyncio.create_task(cluster._listen(1, host))
        killed_s = cluster.kill(1 if is_killed else 0)
        host.words.put_nowait(RunError("host 1 died"))
        await listening
        cluster.check()
        return killed_s

    if is_killed:
        began_s = time.monotonic()
        assert began_s <= limited(main()) <= time.monotonic()
        assert killed == [(6, 9)]
    else:
        with pytest.raises(RunError, match="host 1 died"):
            limited(main())


class Heard:
    """The other end of a host's pipe."""

    def __init__(self):
        self.said = []

    def send(self, word):
        self.said.append(word)


def host_of(rule="guarded", nodes=("n0", "n1"), partitions=(8,)):
    told = {"url": "redis://x", "group": "g", "seed": 3}
    plan = HostPlan(rule=rule, nodes=nodes, partitions=partitions, **told)
    heard = Heard()
    return hosts._Host(plan, heard), heard


def test_a_host_tells_what_begins_and_ends_and_that_it_lives(monkeypatch):
    """What was said since, once; nothing, now and then, if nothing was."""
    monkeypatch.setattr(hosts, "REPORT_S", 0.005)
    monkeypatch.setattr(hosts, "SIGN_OF_LIFE_S", 0.03)

    async def main():
        host, heard = host_of()
        reporting = asyncio.create_task(host._report())
        began_s = time.monotonic()
        host._note("n0", 3, True)
        host._note("n0", 3, False)
        await until(lambda: len(heard.said) >= 3)
        reporting.cancel()
        return heard.said, began_s, time.monotonic()

    said, began_s, ended_s = limited(main())
    assert [(one.node, one.partition, one.runs) for one in said[0]] == [
        ("n0", 3, True),
        ("n0", 3, False),
    ]
    assert all(began_s <= one.at_s <= ended_s for one in said[0])
    assert said[1:3] == [[], []]
    assert ended_s - began_s >= 0.06


def test_a_member_is_as_the_plan_says():
    """What it draws follows from the seed and its name: a run can be had again."""
    host, _ = host_of()
    members = [host._member(node) for node in ("n1", "n1", "n0")]
    assert [one.node for one in members] == ["n1", "n1", "n0"]
    first, again, other = (one.machine._agenda.random.random() for one in members)
    assert first == again != other


@pytest.mark.processes
def test_locks_are_held_renewed_and_tried_for_again(redis_server, redis_servers):
    """One of each partition; what another has is not had until that one is gone, a period later."""
    group = redis_servers.new_name()

    async def main():
        noted, before = [], redis_server.connections

        def note(node, partition, runs):
            noted.append((node, partition, runs))

        def holding(node, partitions):
            held = hosts.hold_locks(redis_server.url, group, node, partitions, Random(1), note)
            return asyncio.create_task(held)

        first = holding("n0", [0, 1])
        await until(lambda: len(noted) == 2)
        second = holding("n1", [1])
        names = sorted(redis_server.client.keys(f"*{group}*"))
        left_ms = [redis_server.client.pttl(name) for name in names]
        await turn(1.2 * PERIOD_S)  # both have tried by then
        tried = list(noted)
        redis_server.client.delete(f"{{{group}}}:lock:1")
        await until(lambda: len(noted) >= 4)
        for one in (first, second):
            one.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        await until(lambda: redis_server.connections <= before)
        return names, left_ms, tried, noted

    names, left_ms, tried, noted = limited(main())
    assert names == [f"{{{group}}}:lock:0", f"{{{group}}}:lock:1"]
    most_ms = settings.TIMES.max_lease_ms
    assert all(most_ms - 1.5e3 * PERIOD_S < left <= most_ms for left in left_ms)
    assert sorted(tried) == [("n0", 0, True), ("n0", 1, True)]
    assert set(noted[2:4]) <= {("n0", 1, False), ("n1", 1, True), ("n0", 1, True)}


@pytest.mark.processes
def test_a_task_that_renews_tells_how_late_it_was(redis_server, monkeypatch):
    """Once a period, of what it holds, until another has it; that one is then lost."""
    period_s = 0.1
    monkeypatch.setattr(renewing, "PERIOD_S", period_s)

    async def main():
        before = redis_server.connections
        plan = renewing.LoadedPlan(url=redis_server.url, mode="task", members=1, load_s=1.0)
        member = renewing._Task(plan)
        began_s = renewing.lease_now_s()
        await member.begin()
        held = list(member.held)
        await until(lambda: len(member.sent) == 2)
        lost = set(member.lost())
        await member._store.release(*held[2][:1], "n", held[2][1])
        other = RedisLeaseStore(redis_server.url, member._group, renewing.HELD, settings.TIMES)
        await other.join("m", "other")
        assert await other.grab(2, "m", 0.0)
        assert (await other.activate(2, "m")).epoch > held[2][1]
        await until(lambda: member.lost() == {2})
        await other.close()
        await member.close()
        await until(lambda: redis_server.connections <= before)
        return began_s, held, lost, member.sent

    began_s, held, lost, sent = limited(main())
    assert [partition for partition, _ in held] == list(range(renewing.HELD))
    assert lost == set()
    due_s, late_s = sent[0]
    assert began_s + period_s <= due_s < began_s + period_s + 10.0
    assert 0.0 <= late_s < 10.0
    assert sent[1][0] - due_s >= period_s


def test_a_task_that_renews_goes_on_where_nobody_answers(monkeypatch):
    """What is not answered is late all the same, and no lease is lost by it."""
    monkeypatch.setattr(renewing, "PERIOD_S", 0.002)

    async def main():
        plan = renewing.LoadedPlan(url="redis://127.0.0.1:1", mode="task", members=1, load_s=1.0)
        member = renewing._Task(plan)
        member.held = [(0, 7)]
        member._task = asyncio.create_task(member._renew())
        await until(lambda: len(member.sent) == 3 or member._task.done())
        is_over = member._task.done()
        await member.close()
        return is_over, member.lost()

    assert limited(main()) == (False, set())


def test_a_handler_reads_batches_until_the_load_is_over():
    """Each of them whole, and once."""
    batch = json.dumps([{"id": 1, "value": 2}] * 10)
    read = []
    renewing._handle(batch, renewing.lease_now_s() + 0.02, read)
    assert len(read) > 1
    assert set(read) == {20}
    renewing._handle(batch, renewing.lease_now_s() - 1.0, none := [])
    assert none == []


class EndedError(Exception):
    """As a process is ended, from outside."""


def test_who_only_computes_does_so_until_it_is_ended():
    """All the while, once it has said that it begins."""

    def end(*_):
        raise EndedError

    heard = Heard()
    handled = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, 0.03)  # of processor time: it would not come otherwise
    try:
        with pytest.raises(EndedError):
            renewing.spin(heard)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, handled)
    assert heard.said == [None]


def test_a_renewal_was_due_when_it_was_sent_less_how_late_it_was():
    """Whether it was answered or not; what the answer does not keep is lost."""
    plan = renewing.LoadedPlan(url="redis://x", mode="thread", members=1, load_s=1)
    member = renewing._Renewer(plan)
    kept = SimpleNamespace(held=[(0, True, False), (2, False, False)])
    answered = ev.RenewalAnswered(10.0, [(0, 7), (2, 7)], kept)
    member._on_event(answered)
    assert member.sent.pop() == (10.0, 0.0), "nobody has said that it was late"
    member._on_lag(0.25)
    member._on_event(answered)
    assert (member.sent, member.lost()) == ([(9.75, 0.25)], {2})
    member._on_lag(0.5)
    member._on_event(ev.RenewalFailed("no store", 12.0))
    member._on_event(ev.RenewalsEnded())
    assert (member.sent, member.lost()) == ([(9.75, 0.25), (11.5, 0.5)], {2})
    member._leases = [SimpleNamespace(partition=number, is_over=number == 3) for number in range(4)]
    assert member.lost() == {2, 3}


def test_what_is_not_kept_is_lost():
    member = renewing._Member(
        renewing.LoadedPlan(url="redis://x", mode="task", members=1, load_s=1)
    )
    member._judge([(0, True, False), (1, False, False), (3, False, True)])
    member._judge([(1, True, False)])
    assert member.lost() == {1, 3}


def test_members_under_load_have_groups_of_their_own():
    """Nobody else wants what they hold, nor did one of an earlier run."""
    plan = renewing.LoadedPlan(url="redis://x", mode="task", members=2, load_s=1)
    groups = [renewing._Member(plan)._group for _ in range(2)]
    assert groups[0] != groups[1]
    assert all(group.startswith("bench-") for group in groups)


@pytest.mark.processes
def test_who_looks_has_a_client_of_its_own(redis_server):
    async def main():
        before = redis_server.connections
        async with looking_at(redis_server.url) as client:
            first = await read_redis(client)
            await client.ping()
            between = (await read_redis(client)).since(first)
        await until(lambda: redis_server.connections <= before)
        return between

    between = limited(main())
    assert between.round_trips >= 1
    assert between.calls["ping"] >= 1
    assert 0.0 < between.at_s < 10.0


def counted(client):
    """The commands so far, but for what asks for them."""
    told = client.info("commandstats")
    names = ("watch", "hget", "multi", "set", "exec", "discard")
    return Counter({name: told.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in names})


@pytest.mark.processes
def test_what_a_batch_is_compared_with_writes_as_much(redis_server):
    """All its keys in one go, and a checkpoint; what needs no script reads the epoch before, and
    lets Redis see to it that it still stands."""
    client = redis_server.client
    client.delete(*fenced.KEYS, fenced.HASH)
    fenced._transaction(client)
    assert client.mget(fenced.KEYS) == [fenced.VALUE] * 20
    assert client.hgetall(fenced.HASH) == {"checkpoint": "7"}
    client.delete(*fenced.KEYS, fenced.HASH)
    before = counted(client)
    fenced._watched(client)
    assert counted(client) - before == Counter(["watch", "hget", "multi", "set", "exec"])
    assert client.mget(fenced.KEYS[:2]) == [fenced.VALUE, None]
    client.delete(fenced.KEYS[0])
