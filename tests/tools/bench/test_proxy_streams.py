"""What `spillover bench proxy` makes of a way, with both ends of it in this loop: a way straight to
the service, of which this process is said to be what lies between."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import asynccontextmanager, contextmanager
from itertools import chain
from types import SimpleNamespace

import psutil
import pytest

from spillover.tools.bench.load_process import LoadProcess
from spillover.tools.bench.load_process import _Worker as LoadWorker
from spillover.tools.bench.model import BenchPlan
from spillover.tools.bench.node import paths
from spillover.tools.bench.proxy import memory, requests, service, streams
from spillover.tools.bench.proxy.readers import (
    Arrived,
    Asked,
    Counted,
    Left,
    Opened,
    Readers,
    _Worker,
)
from spillover.tools.bench.proxy.ways import BODY, DIRECT, Service, Way, direct
from spillover.tools.bench.servers import Server
from spillover.tools.bench.session import Session
from support.children import in_this_loop
from support.loop import turn
from support.scripted_server import done, scripted

PID = os.getpid()


def limited(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 60.0))


@asynccontextmanager
async def ends():
    """The service and its clients."""
    async with in_this_loop(Service(), service._serve) as own:
        await own.ready()
        worker = _Worker()
        async with in_this_loop(Readers(), worker.do_jobs) as readers:
            yield own, readers
        left = [*worker._streams.values(), *worker._unread]
        for reader in chain(left, *worker._idle.values()):
            reader.leave()
        await turn(0.02)  # and both sides know it


def session_of(**fields):
    return Session(BenchPlan(quick=True, runs=1, **fields), say=lambda _: None)


@contextmanager
def few(monkeypatch, **counts):
    with monkeypatch.context() as patch:
        for name, count in counts.items():
            patch.setattr(streams, name, count)
        yield


def test_a_turn_of_streams_tells_first_bytes_chunks_and_cancels(monkeypatch):
    """Of 10 streams with a chunk each 20 ms, none is left open after it."""

    async def main():
        session = session_of()
        async with ends() as (own, readers):
            one = streams._Streams(session, own, readers)
            taken = await one.turn("local", Way("nodes", own.url, (PID,)))
            turned_s = time.monotonic()
            plain = await one.many(direct(own))
            assert one._ends._began_s > turned_s, "what ends used before is not looked at"
            left = await one._leave(0.0)
            return session, taken, plain, left

    with few(monkeypatch, STREAMS=10, MANY_STREAMS=5):
        session, taken, (arrived, nothing_us), left = limited(main())
    assert left == ({}, {})
    p50_ms, p99_ms = taken.first_ms
    assert 0.0 < p50_ms <= p99_ms < 10_000.0
    assert taken.arrived.took_s >= 0.4
    assert 10 <= taken.arrived.events <= 10 * (taken.arrived.took_s / 0.02 + 1)
    # Both ends are in this process: it took something, and no more than there was of a core.
    assert 0.0 < taken.cpu_us * taken.arrived.events <= 1.2e6 * taken.arrived.took_s
    assert 0.0 < taken.known_ms < 1e3 * streams.KNOWN_WITHIN_S
    assert nothing_us == 0.0
    assert arrived.took_s >= 0.5
    assert 5 <= arrived.events <= 5 * (arrived.took_s / 0.02 + 1)
    assert not [note for note in session.notes if "never came" in note]


def test_cancels_that_nobody_hears_of_are_told(monkeypatch):
    """By how many they were, and of which way."""

    async def main():
        session = session_of()
        async with ends() as (own, readers), scripted_stream() as url:
            one = streams._Streams(session, own, readers)
            took_ms = await one._known_ms("one hop", Way("nginx", url, ()))
            return session.notes, took_ms

    with few(monkeypatch, STREAMS=4, KNOWN_WITHIN_S=0.1):
        notes, took_ms = limited(main())
    assert notes == ["one hop, nginx: 4 of 4 cancels never came to the service"]
    assert took_ms == 100.0


@asynccontextmanager
async def scripted_stream():
    """Streams of which the service knows nothing: one event each."""

    async def talk(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n~\r\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()


def test_the_service_tells_what_it_lost_once():
    async def main():
        async with ends() as (own, readers):
            assert own.url.startswith("http://127.0.0.1:")
            opened = Opened(url=own.url, streams=2, period_ms=10.0, size_bytes=60)
            await readers.do(opened)
            arrived = await readers.do(Counted(duration_s=0.05))
            one = streams._Streams(session_of(), own, readers)
            left, lost = await one._leave(0.0)
            return arrived.events, left, lost, await own.lost()

    events, left, lost, again = limited(main())
    assert events > 0
    assert sorted(left) == sorted(lost) == [1, 2]
    assert again == {}


@pytest.mark.slow
def test_memory_is_that_of_the_process_between(monkeypatch):
    """Of streams that say nothing, and of answers that nobody reads, it takes something: here for
    each open file, of which both ends of a stream are one each."""
    monkeypatch.setattr(memory, "resident_bytes", lambda pid: psutil.Process(pid).num_fds() << 12)
    monkeypatch.setattr(memory, "STREAMS", 60)
    monkeypatch.setattr(memory, "STALLED", 5)
    monkeypatch.setattr(memory, "SETTLED_S", 0.2)

    async def main():
        async with ends() as (own, readers):
            way, figures = Way("nodes", own.url, (PID,)), {}
            for _, measure in memory.MEASURES:
                figures |= await measure(way, readers)
            return figures

    figures = limited(main())
    assert figures.keys() == memory.UNITS.keys()
    assert all(0.0 <= figure < 1e5 for figure in figures.values())
    assert figures[memory.IDLE] == pytest.approx(8.0, rel=0.1)
    assert figures[memory.ALL] == pytest.approx(60 * 8 * 1024 / 1e6, rel=0.1)


@pytest.mark.parametrize(
    ("sizes", "most", "looks"),
    [
        ([5, 5, 5, 5, 5, 9], 5, 5),
        ([5, 5, 5, 5, 6, 4, 6, 5, 3, 9], 6, 9),
        (list(range(40)), 20, 21),
    ],
    ids=["quiet", "grows once", "grows on"],
)
def test_memory_counts_once_it_has_not_grown_for_a_while(monkeypatch, sizes, most, looks):
    """For four looks on end, of twenty at most; it is the most that was seen."""
    step_s = 2.0**-12
    for name, count in {"LOOK_S": 1, "SETTLED_S": 4, "SETTLED_WITHIN_S": 20}.items():
        monkeypatch.setattr(memory, name, count * step_s)
    left = iter(sizes)
    monkeypatch.setattr(psutil.Process, "memory_info", lambda _: SimpleNamespace(rss=next(left)))
    began_s = time.monotonic()
    assert limited(memory._resident(Way("nodes", "", (PID,)))) == [most]
    assert time.monotonic() - began_s >= (looks - 2) * step_s
    assert len(sizes) - len(list(left)) == looks


def measured(session, make_side):
    """What a side's turn comes to, of a process that asks at a server; both are this one."""

    async def main():
        async with (
            scripted(done()) as server,
            in_this_loop(LoadProcess(), lambda there: closing(there, server)) as load,
        ):
            side = await make_side(load, server.url)
            warmed = len(server.seen)
            began_s = time.process_time()
            took = await side.measure()
            used_s = time.process_time() - began_s
            return side.name, warmed, took, len(server.seen) - warmed, server, used_s

    async def closing(there, server):
        worker = LoadWorker()
        try:
            await worker.do_jobs(there)
        finally:
            await worker._clients[server.url].close()

    return limited(main())


@pytest.mark.slow
def test_a_small_request_costs_the_time_of_the_way_by_their_number():
    """Warmed up with the same; in us, of all that were answered in the turn."""
    session = session_of()

    def make_side(load, url):
        return requests._side(session, load, "nginx", Way("nginx", url, (PID,)))

    name, warmed, took, asked, server, own_s = measured(session, make_side)
    ((used_us, count),) = took
    assert (name, count) == ("nginx", asked)
    assert warmed >= requests.CONNECTIONS
    assert used_us / 1e6 == pytest.approx(own_s, abs=0.04)
    assert set(server.bodies) == {BODY}
    assert len(server._connections) <= requests.CONNECTIONS


@pytest.mark.slow
def test_requests_are_counted_by_the_time_of_each_process():
    """Of who is asked, and of who is behind it."""
    session = session_of()

    async def make_side(load, url):
        asker = paths.Asker(session, load)
        node = Server(url, PID)
        return await asker.side("node", node, paths.job_of(1024), Server("", PID))

    name, warmed, took, asked, server, own_s = measured(session, make_side)
    assert name == "node"
    assert warmed >= paths.CONNECTIONS
    assert [count for count, _ in took] == [asked, asked]
    assert [used_s for _, used_s in took] == pytest.approx([own_s] * 2, abs=0.04)
    assert {len(body) for body in server.bodies} == {1024 + len(b'{"payload": }')}


def test_a_way_uses_what_its_processes_use():
    assert Way("nodes", "", ()).cpu_s() == 0.0
    one = Way("nodes", "", (PID,)).cpu_s()
    assert 1.9 * one <= Way("nodes", "", (PID, PID)).cpu_s() <= 2.1 * one + 0.1
    assert DIRECT == "direct"


class Clients:
    """In place of the clients' process, and of the service's: notes what it is told to do, of which
    nothing takes any time. Who has left is known at once."""

    pid = PID

    def __init__(self):
        self.told = []

    async def do(self, job):
        self.told.append(job)
        match job:
            case Counted():
                return Arrived(1000, job.duration_s, 1.0, 2.0)
            case Asked():
                return [float(n) for n in range(101)]
            case Left():
                return {1: 10**9, 2: 2 * 10**9}
        return None

    async def lost(self):
        return {1: 10**9 + 4_000_000, 2: 2 * 10**9 + 3_000_000}

    async def count(self, job):
        self.told.append(job)
        return 10

    def lengths_s(self, kind):
        return [job.duration_s for job in self.told if type(job) is kind]


@pytest.mark.parametrize(("quick", "turn_s", "many_s"), [(False, 1.2, 1.5), (True, 0.4, 0.5)])
def test_a_turn_of_streams_is_as_long_as_its_plan_says(quick, turn_s, many_s):
    """And what came is told as it came: its middle, its end, and cancels by the slower of two."""
    clients, way = Clients(), Way("nodes", "http://x", ())
    session = Session(BenchPlan(quick=quick), say=print)

    async def main():
        one = streams._Streams(session, clients, clients)
        return await one.turn("local", way), await one.many(way)

    began_s = time.monotonic()
    taken, (many, _) = limited(main())
    assert time.monotonic() - began_s < streams.KNOWN_WITHIN_S, "nobody waits for what is known"
    assert clients.lengths_s(Counted) == [turn_s, many_s]
    assert clients.lengths_s(Asked) == [turn_s]
    assert (taken.first_ms, taken.known_ms) == ([50.0, 99.0], 4.0)
    assert (taken.arrived.took_s, many.took_s) == (turn_s, many_s)
    assert not [note for note in session.notes if "never came" in note]


@pytest.mark.parametrize(
    ("quick", "posted_s", "asked_s"),
    [(False, [0.3, 0.3], [0.4, 0.3]), (True, [0.1, 0.15], [0.2, 0.15])],
)
def test_sides_are_warmed_up_before_a_turn_as_long_as_its_plan_says(quick, posted_s, asked_s):
    """A turn is a fourth of what a run takes of a side."""
    session = Session(BenchPlan(quick=quick), say=print)
    posting, asking = Clients(), Clients()

    async def main():
        way = Way("nodes", "http://x", ())
        side = await requests._side(session, posting, "nodes", way)
        await side.measure()
        asker = paths.Asker(session, asking)
        side = await asker.side("node", Server("http://x", PID), paths.job_of(1024))
        await side.measure()

    limited(main())
    assert [job.duration_s for job in posting.told] == posted_s
    assert [job.duration_s for job in asking.told] == asked_s


def test_an_end_that_computes_all_the_time_is_told_beside_its_way():
    """As both do here: a look that a busy machine comes between is taken again."""
    clients, way = Clients(), Way("nodes", "http://x", ())
    session = session_of()

    async def main():
        one = streams._Streams(session, clients, clients)
        for _ in range(500):
            await one._arrived(1, 0.1, "local", way)
            if len(session.notes) == 2:
                return

    limited(main())
    told = "of the benchmark took a core: they, not it, are the limit"
    names = ("clients", "service")  # whichever is seen first
    assert sorted(session.notes) == [f"local, nodes: the {name} {told}" for name in names]
