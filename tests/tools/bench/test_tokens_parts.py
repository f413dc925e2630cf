"""Servers that share and dispatchers of `spillover bench tokens`, in one loop."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from random import Random
from types import SimpleNamespace

import pytest

from spillover.live.engine.timers import Timers
from spillover.live.http.client import HttpClient
from spillover.model.pool import Pool, PoolClass, PoolServer, PoolType
from spillover.model.token_orders import ORDERS
from spillover.tools.bench.door import Door
from spillover.tools.bench.model import BenchPlan
from spillover.tools.bench.servers import Server
from spillover.tools.bench.tokens import dispatch, dispatchers, sharing_servers, sides
from spillover.tools.bench.tokens.dispatch import _dispatch_us, pool_of
from spillover.tools.bench.tokens.rules import Shortest
from spillover.tools.bench.tokens.workloads import WORKLOADS, Phase
from support.children import doing
from support.loop import turn, until
from support.scripted_server import answer, scripted

LATE_MS = 5_000.0


def limited(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 20.0))


def made(rates, tokens, kinds):
    """A pool of servers a, b, ... of these rates, each a class with so many tokens."""
    names = "abcd"[: len(rates)]
    return Pool(
        name="made",
        servers=tuple(PoolServer(id=n, rate=r) for n, r in zip(names, rates, strict=True)),
        classes=tuple(PoolClass(id=n, servers=(n,), tokens=tokens) for n in names),
        types=tuple(PoolType(id=k, rate=1.0, classes=tuple(of)) for k, of in kinds.items()),
    )


async def asked(port, path, bodies):
    """The answers to all of them at once, and how long each took, in ms."""
    client = HttpClient(f"http://127.0.0.1:{port}")
    await client.warm(len(bodies))
    asking = [client.request("POST", path, body=body, timeout_s=10.0) for body in bodies]
    answers = await asyncio.gather(*asking)
    await client.close()
    return [(a.status, json.loads(a.body), (a.received_s - a.sent_s) * 1e3) for a in answers]


def works(*sizes_ms):
    return [json.dumps({"service_ms": size_ms}).encode() for size_ms in sizes_ms]


def test_jobs_share_a_server_evenly_and_what_it_did_is_told():
    """At rate 2: jobs of 80, 160 and 240 ms end at 120, 200 and 240 ms. One more than there are
    tokens is refused, however many others have."""
    pool = made((2.0, 1.0, 1.0), 3, {"any": "abc"})

    async def main():
        async with doing(sharing_servers._serve, pool, 2) as child:
            ports = await child.receive(5.0)
            shared = await asked(ports[1][0], "/", works(80.0, 160.0, 240.0))
            child.send("?")
            first = await child.receive(5.0)
            told = first.jobs, first.stay_s, list(first.late_s)
            crowded = await asked(ports[0][1], "/", works(*[20.0] * 4))
            empty = await asked(ports[0][0], "/", [b"{}"])
            child.send("?")
            return ports, shared, told, crowded, empty, (await child.receive(5.0)).jobs

    ports, shared, (jobs, stay_s, late_s), crowded, empty, in_all = limited(main())
    assert [len(of_replica) for of_replica in ports] == [3, 3]
    assert len({port for of_replica in ports for port in of_replica}) == 6
    for (status, body, took_ms), expected_ms in zip(shared, (120.0, 200.0, 240.0), strict=True):
        assert (status, body) == (200, {})
        assert expected_ms - 15.0 <= took_ms <= expected_ms + LATE_MS
    assert (jobs, len(late_s)) == (3, 3)
    assert stay_s == pytest.approx(0.56, abs=0.06)
    assert all(0.0 <= late <= LATE_MS / 1e3 for late in late_s)
    assert sorted(status for status, *_ in crowded) == [200, 200, 200, 500]
    assert empty[0][0] == 200
    assert in_all == 7


class Hand:
    """An alarm whose clock is put forward by hand, and which never rings by itself."""

    def __init__(self):
        self.now_s = 0.0

    def clock(self):
        return self.now_s

    def set(self, due_s):
        pass


class Wire(asyncio.WriteTransport):
    """Keeps what is written."""

    def __init__(self):
        super().__init__()
        self.written = b""

    def write(self, data):
        self.written += data


def test_who_has_ended_is_gone_before_the_next_job_comes():
    """Although nobody has been woken for it: the token that it had is free, its time on the server
    is as if it had left when it was done, and only that it was answered late is told. At rate 2, of
    400 ms at 0 and of 200 ms at 0.1 s, the second ends at 0.3 s, the first with it."""
    hand, served = Hand(), sharing_servers.Served()

    async def main():
        timers = Timers(asyncio.get_running_loop(), lambda *_: hand)
        server = sharing_servers.SharingServer(2.0, 2, timers, served)
        wires = []

        def come(at_s, body):
            hand.now_s = at_s
            wires.append(Wire())
            door = Door(server.take)
            door.connection_made(wires[-1])
            server.take(door, body)
            return [wire.written[9:12] for wire in wires]

        assert come(0.0, works(400.0)[0]) == [b""]
        assert come(0.1, works(200.0)[0]) == [b"", b""]
        assert come(0.2, works(1.0)[0]) == [b"", b"", b"500"]
        assert come(0.5, b"{}") == [b"200", b"200", b"500", b""], "not yet, but at the same instant"
        timers.run_due(0.5)
        return [wire.written[9:12] for wire in wires]

    assert asyncio.run(main()) == [b"200", b"200", b"500", b"200"]
    assert (served.jobs, served.stay_s) == (3, pytest.approx(0.3 + 0.2))
    assert served.late_s == pytest.approx([0.2, 0.2, 0.0])


def job(kind, service_ms=30.0):
    return json.dumps({"type": kind, "payload": {"service_ms": service_ms}}).encode()


def test_a_dispatcher_passes_payloads_on_and_blocks_what_has_no_server():
    """Each at a server of its type; a job that has ended makes room. Another replica's servers are
    none of its own."""
    pool = made((1.0, 1.0), 1, {"any": "ab", "first": "a"})

    async def main():
        rules = [Shortest(pool, Random(1), by_rate=False) for _ in range(2)]
        async with doing(sharing_servers._serve, pool, 2) as servers:
            ports = await servers.receive(5.0)
            async with doing(dispatchers._dispatch, pool, rules, ports) as child:
                one, other = await child.receive(5.0)
                three = await asked(one, "/requests", [job("any", 200.0)] * 3)
                again = await asked(one, "/requests", [job("first")] * 2)
                others = await asked(other, "/requests", [job("first")])
                servers.send("?")
                return three, again, others, (await servers.receive(5.0)).jobs

    three, again, others, jobs = limited(main())
    for answers, statuses in ((three, [200, 200, 429]), (again, [200, 429]), (others, [200])):
        assert sorted(status for status, *_ in answers) == statuses
        for status, body, took_ms in answers:
            if status == 429:
                assert body == {"reason": "blocked"}
            else:
                assert (body["path"], body["hops"]) == ([""], 0)
                assert body["timing_ms"]["total"] <= took_ms
    assert min(body["timing_ms"]["total"] for s, body, _ in three if s == 200) >= 199.0
    assert min(body["timing_ms"]["total"] for s, body, _ in again if s == 200) >= 29.0
    assert jobs == 4


def test_a_server_that_fails_fails_its_job_alone():
    """And has its place again. With the dispatcher all its connections end."""
    pool = made((1.0,), 1, {"any": "a"})

    async def main():
        rules = [Shortest(pool, Random(1), by_rate=False)]
        async with scripted(answer(500, {}), answer(200, {})) as server:
            ports = [[int(server.url.rpartition(":")[2])]]
            async with doing(dispatchers._dispatch, pool, rules, ports) as child:
                (one,) = await child.receive(5.0)
                answers = [(await asked(one, "/requests", [job("any")]))[0] for _ in range(2)]
            await until(lambda: not server._connections)
            return answers, server.seen, server.bodies

    answers, seen, bodies = limited(main())
    assert [status for status, *_ in answers] == [502, 200]
    assert answers[0][1] == {"reason": "server_failed"}
    assert [line for line, _ in seen] == ["POST /", "POST /"]
    assert [headers["content-type"] for _, headers in seen] == ["application/json"] * 2
    assert [json.loads(body) for body in bodies] == [{"service_ms": 30.0}] * 2


class Counting:
    """Servers that note what they are asked, and take their time by a clock of their own."""

    def __init__(self, room):
        self.room = room
        self.held = set()
        self.most = self.asked = self.told = self.started = self.ended = 0
        self.now_s = 0.0
        self.clock_ns = 0
        self.collects = set()

    def may_start(self, visit):
        assert visit.ref not in self.held
        assert self.now_s == pytest.approx(self.asked / 1e3), "a thousand come in a second"
        self.asked += 1
        self.clock_ns += 5_000 if self.asked > 120 else 10**9
        self.collects.add(gc.isenabled())
        return len(self.held) < self.room

    def own_load(self, visit, may_keep, load, now_s, unreported):
        assert visit.request.type.startswith("t")
        assert (may_keep, load, now_s, unreported) == (True, 0.0, self.now_s, ())
        self.told += 1
        self.clock_ns += 2_000

    def occupy(self, visit):
        self.held.add(visit.ref)
        self.started += 1
        self.most = max(self.most, len(self.held))
        self.clock_ns += 1_000

    def vacate(self, ref):
        self.held.remove(ref)
        self.clock_ns += 10**9

    def served(self, ref, service_s):
        assert ref not in self.held
        assert service_s == 1.0
        self.ended += 1
        self.clock_ns += 10**9


@pytest.mark.parametrize(("room", "most"), [(1000, 121), (50, 50)])
def test_dispatches_are_timed_with_so_many_jobs_held(room, most):
    """The first fill the pool, and then each that comes has one end."""
    servers = Counting(room)
    took_us = _dispatch_us(servers, 200)
    assert 0.0 < took_us < 10_000.0
    assert servers.asked == 320
    assert servers.most == most
    assert servers.started == servers.told
    assert servers.started - servers.ended == len(servers.held) == min(room, 120)
    assert (servers.collects, gc.isenabled()) == ({False}, True), "no garbage is looked for"


@pytest.mark.parametrize("count", [1, 50])
def test_only_dispatches_are_timed(count, monkeypatch):
    """Neither those that fill the pool nor the ends of others: 5 us for whether there is a server,
    2 for what a policy would be told, and 1 for the start."""
    servers = Counting(1000)
    clock = SimpleNamespace(perf_counter_ns=lambda: servers.clock_ns)
    monkeypatch.setattr(dispatch, "time", clock)
    assert _dispatch_us(servers, count) == pytest.approx(8.0)


def test_a_plain_cluster_has_a_server_for_each_job_that_comes():
    """Else to be told that there is none would be what is timed."""
    servers = dispatch.plain_servers()
    _dispatch_us(servers, 50)
    assert servers.busy == 120


def test_the_pool_of_dispatches_is_as_it_is_called():
    pool = pool_of(3, "least-loaded")
    assert [server.rate for server in pool.servers] == [1.0, 2.0, 3.0, 4.0] * 25
    assert {(len(each.servers), each.tokens) for each in pool.classes} == {(1, 2)}
    assert [len(set(kind.classes)) for kind in pool.types] == [25] * 20
    assert pool_of(3, "least-loaded") == pool != pool_of(4, "least-loaded")
    assert [pool_of(3, order).order for order in ORDERS] == list(ORDERS)


def test_all_nodes_are_told_of_servers_as_a_phase_begins():
    """By the time since the load began, and only of those that change."""
    pool = made((1.0, 1.0), 2, {"any": "ab"})
    orders = {0.0: {}, 0.02: {"b": "out"}, 0.2: {"b": "in"}}
    phases = [Phase("", pool, at_s, at_s, 1.0, order) for at_s, order in orders.items()]
    run = sides.Run(None, (), phases, [], 3)

    async def main():
        async with scripted(answer(200, {})) as one, scripted(answer(200, {})) as other:
            both = (one, other)
            asked_to = sides.Turn(run, None, asyncio.Barrier(1), asyncio.Barrier(1))
            nodes = [Server(node.url, 1) for node in both]
            changing = asyncio.create_task(sides._change(asked_to, nodes))
            await turn(0.05)
            assert [*one.seen, *other.seen] == [], "it has not begun"
            began_s, took_s = time.monotonic(), []
            asked_to.began.set()
            for count in (1, 2):
                await until(lambda count=count: all(len(node.seen) >= count for node in both))
                took_s.append(time.monotonic() - began_s)
            await changing
            await until(lambda: not any(node._connections for node in both))
            return took_s, [(node.seen, node.bodies) for node in both]

    took_s, told = limited(main())
    assert took_s[0] >= 0.02
    assert took_s[1] >= 0.2
    for seen, bodies in told:
        assert [line for line, _ in seen] == ["PUT /admin/tokens"] * 2
        servers = [json.loads(body)["servers"] for body in bodies]
        assert servers == [{"b": "out"}, {"b": "in"}]


def test_schedules_are_as_long_as_their_jobs_need():
    """A minute to settle, and 500 000 jobs at 25 a second for each of 20 replicas; of a pool that
    changes as many in each third. A quick one has 3 s for each."""
    plans = BenchPlan(replicas=20), BenchPlan(quick=True)
    critical, changing = WORKLOADS[1], WORKLOADS[-1]
    assert (critical.name, changing.name) == ("comte8 at 1.0", "changing comte8")
    assert [critical.duration_s(plan) for plan in plans] == [1060.0, 3.0]
    assert [changing.duration_s(plan) for plan in plans] == [3 * (60.0 + 62_000 / 500), 9.0]
    (phase,) = critical.phases(BenchPlan(replicas=20))
    assert (phase.begin_s, phase.from_s, phase.until_s) == (0.0, 60.0, 1060.0)
    assert (phase.order, phase.pool) == ({}, critical.pool)


def test_a_server_that_is_out_takes_jobs_of_no_type():
    """Others do as before."""
    _, without, _ = WORKLOADS[-1].phases(BenchPlan(duration_s=900.0))
    pool = WORKLOADS[-1].pool
    assert "c10" in {name for kind in pool.types for name in kind.classes}
    assert [kind.classes for kind in without.pool.types] == [
        tuple(name for name in kind.classes if name != "c10") for kind in pool.types
    ]
