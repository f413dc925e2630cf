"""The servers of a pool: each has its handler and its speed, and sleep shares a server."""

import asyncio

import msgspec
import pytest

from spillover.core.overflow.events import Start
from spillover.live.engine.timers import Timers
from spillover.live.handlers.make import make_unlike_workers
from spillover.model.request import Request
from spillover.model.topology import Cluster
from spillover.model.unlike_servers import Server, UnlikeServers
from support.loop import until

LIMIT_S = 60.0


class ByHand:
    """An alarm that never wakes; its clock stands where it was put."""

    def __init__(self, _loop=None, _wake=None):
        self.now_s = 0.0

    def clock(self):
        return self.now_s

    def set(self, due_s):
        """Nobody is woken: the test rings."""

    def close(self):
        pass


class Rig:
    """The servers of one pool as its node drives them."""

    def __init__(self, *servers, by_hand=False, discipline="ps", **fields):
        self.ends = {}
        self.health = []
        self.alarm = ByHand()
        loop = asyncio.get_running_loop()
        self.timers = Timers(loop, lambda *_: self.alarm) if by_hand else Timers(loop)
        pool = UnlikeServers.of(tuple(servers), discipline=discipline)
        cluster = Cluster(id="a", servers=len(servers), **fields)
        told = (self.on_end, lambda *told: self.health.append(told))
        self.workers = make_unlike_workers(cluster, pool, "t.yaml: cluster a", self.timers, *told)
        self.refs = 0

    def on_end(self, event, at_s):
        assert event.ref not in self.ends
        self.ends[event.ref] = event, at_s

    def start(self, server, payload, at_s=None):
        self.refs += 1
        work = msgspec.Raw(msgspec.json.encode(payload))
        assert self.workers.problem_with(work) is None
        at_s = self.timers.clock() if at_s is None else at_s
        request = Request(id=f"r{self.refs}", keyed=False, work=work)
        self.workers.start(Start(self.refs, request, at_s, at_s + LIMIT_S, server))
        return self.refs

    def move_to(self, now_s):
        self.timers.run_due(now_s)
        self.alarm.now_s = now_s

    async def end(self, ref):
        await until(lambda: ref in self.ends)
        return self.ends[ref]


async def close(rig):
    await rig.workers.close()
    rig.timers.close()


def server(name, rate=1.0, handler=None):
    return Server(id=name, rate=rate, handler=handler)


# --- sleep ----------------------------------------------------------------------------------------


async def test_alone_a_request_takes_its_work_by_the_speed():
    rig = Rig(server("big", 4.0), server("small", 0.5), by_hand=True)
    big, small = rig.start(0, {"service_ms": 100}), rig.start(1, {"service_ms": 100})
    rig.move_to(10.0)
    assert rig.ends[big][1] == pytest.approx(0.025)
    assert rig.ends[small][1] == pytest.approx(0.2)
    assert rig.ends[small][0].service_s == pytest.approx(0.2)
    assert msgspec.json.decode(rig.ends[small][0].result) == {"service_ms": 200.0}
    await close(rig)


async def test_what_says_nothing_of_its_work_has_that_of_the_cluster():
    rig = Rig(server("big", 4.0), server("small", 0.5), by_hand=True, service_ms=100.0)
    big, small = rig.start(0, {}), rig.start(1, {})
    rig.move_to(10.0)
    assert rig.ends[big][1] == pytest.approx(0.025)
    assert rig.ends[small][1] == pytest.approx(0.2)
    await close(rig)


async def test_a_payload_that_no_emulated_server_can_run_is_told_at_once():
    rig = Rig(server("one"), server("two"))
    assert "service_ms" in rig.workers.problem_with(msgspec.Raw(b'{"service_ms": -1}'))
    await close(rig)


# --- others ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("importable")
async def test_each_server_has_its_own_handler():
    own = "python:handlers_of_tests:soon"
    rig = Rig(server("one"), server("two", 1.0, own), handler="python:handlers_of_tests:echo")
    first, second = rig.start(0, "x"), rig.start(1, "y")
    echoed, _ = await rig.end(first)
    assert msgspec.json.decode(echoed.result)["echo"] == "x"
    said, _ = await rig.end(second)
    assert msgspec.json.decode(said.result) == "y"
    many = [rig.start(0, n) for n in range(8)]
    for n, ref in enumerate(many):
        told, _ = await rig.end(ref)
        assert msgspec.json.decode(told.result)["echo"] == n
    await close(rig)


async def test_how_long_a_success_usually_takes_goes_by_the_speed_of_its_server():
    handler = "http:http://127.0.0.1:9/"
    rig = Rig(server("one", 4.0, handler), server("two", 0.5, handler), service_ms=40.0)
    usual_s = [one.upstreams._usual_s for one in rig.workers._servers]
    assert usual_s == pytest.approx([0.01, 0.08])
    await close(rig)
