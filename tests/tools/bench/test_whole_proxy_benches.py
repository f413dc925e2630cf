"""Whole benchmarks of `spillover bench proxy`, as in `test_whole_benches`: nodes in a row of which
all but the last have their hands full, and who passes what to whom."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from spillover.model.errors import NotDelivered
from spillover.tools.bench.load_process import JSON_HEADER
from spillover.tools.bench.nodes import state_of
from spillover.tools.bench.proxy import memory, requests, streams, ways
from spillover.tools.bench.proxy.readers import Asked, Counted, Left, Opened
from spillover.tools.bench.servers import Server
from support import benches
from support.benches import do, played, session_of

CLIENTS, LOAD = "the process of the clients", "the load process"


@pytest.fixture(autouse=True)
def _alone(monkeypatch, tmp_path):
    """Without relays."""
    monkeypatch.setattr("spillover.tools.bench.foreign.SYSTEM_DIRECTORIES", ())
    monkeypatch.setenv("PATH", str(tmp_path))


def in_a_row(start, hops):
    """Of nodes: what is busy and what waits at each, whether it drains; the way through them, where
    they have their doors, the seed, and what the service is."""

    async def work(told):
        async with ways.running_service() as service, start(service, hops, 7) as way:
            (bed,) = told.beds
            states = [await state_of(Server(one.url, 0)) for one in bed.nodes.values()]
            await ways.check_hops(way, hops)
            found = [(one["busy"], one["queue_length"], one["draining"]) for one in states]
            doors = [(one.url, one.proxy_url) for one in bed.topology.clusters]
            handlers = [one.handler for one in bed.topology.clusters]
            return found, way, doors, bed.told, service.url, handlers

    return do(work)


@pytest.mark.parametrize(
    ("hops", "busy"),
    [
        (0, [(0, 0, False)]),
        (1, [(1, 1, False), (0, 0, False)]),
        (2, [(1, 1, False), (1, 0, False), (0, 0, False)]),
    ],
)
def test_nodes_in_a_row_hand_on_what_comes(hops, busy):
    """Also where it is work; the door is that of the first one."""
    found, way, doors, how, service, handlers = in_a_row(ways.nodes, hops)
    assert found == busy
    assert (how["seed"], how["drain_timeout_s"]) == (7, 0.0)
    assert (way.name, way.url, way.pids) == ("nodes", doors[0][1], (os.getpid(),) * (hops + 1))
    assert set(handlers) == {f"proxy:{service}"}
    found, way, doors, how, service, handlers = in_a_row(ways.nodes_of_work, hops)
    assert found == busy
    assert how["seed"] == 7
    assert (way.url, len(way.pids)) == (doors[0][0], hops + 1)
    assert handlers == ["sleep"] * hops + [f"http:{service}/do"]


@pytest.mark.parametrize(("name", "start"), [("HAProxy", "haproxy"), ("nginx", "nginx")])
@pytest.mark.parametrize("hops", [0, 2])
def test_relays_are_one_more_than_hops_each_in_front_of_the_last(monkeypatch, name, start, hops):
    """HAProxy lets go at once what has come, and knows who has left."""
    started = []

    @asynccontextmanager
    async def relay(upstream, *options):
        started.append((upstream, options))
        yield Server(f"http://{start}{len(started)}", 7 + len(started))

    for one in ("haproxy", "nginx"):
        monkeypatch.setattr(ways, f"{one}_relay", relay if one == start else None)

    async def work(_):
        service = SimpleNamespace(url="http://service")
        async with ways.relays(name, service, hops) as way:
            return way

    way = do(work)
    urls = ["http://service", *(f"http://{start}{number}" for number in range(1, hops + 2))]
    assert [upstream for upstream, _ in started] == urls[:-1]
    assert (way.name, way.url) == (name, urls[-1])
    assert way.pids == tuple(range(8, 9 + hops))
    streaming = ("option http-no-delay", "option abortonclose", "timeout tunnel 600s")
    assert {options for _, options in started} == {streaming if start == "haproxy" else ()}


def test_requests_that_pass_are_beside_those_that_are_posted():
    """Through as many nodes, the same body, by turns."""
    case = "CPU of a small request, one hop"
    here, session = played(requests.STAGES, case=case, seed=3)
    passing, doing = here.beds
    assert [bed.told["seed"] for bed in here.beds] == [3, 3]
    assert {one.handler for one in passing.wanted.clusters} <= {passing.wanted.clusters[0].handler}
    assert len(passing.wanted.clusters) == len(doing.wanted.clusters) == 2
    door, url = passing.topology.clusters[0].proxy_url, doing.topology.clusters[0].url
    jobs = here.jobs[LOAD]
    assert [job.url for job in jobs] == [door, url, *[door, url, url, door] * 2]
    lengths_s = [0.005, 0.005, *[0.0075] * 8]
    assert [job.duration_s for job in jobs] == pytest.approx(lengths_s)
    told = {(job.body, job.connections, job.headers, job.keyed) for job in jobs}
    assert told == {(ways.BODY, 12, (JSON_HEADER,), False)}
    (row,) = session.rows
    assert (row.case, row.unit, row.peer) == (case, "us", "POST /requests")
    assert session.notes == [
        f"{name} is not installed: no row beside it" for name in ("HAProxy", "nginx")
    ]
    assert {"CPU of a small request, local": 0, case: 1} == requests.CASES


@pytest.mark.parametrize("part", [memory, requests, streams], ids=["memory", "small", "streams"])
def test_nothing_is_measured_of_nodes_that_have_not_answered_over_their_hops(monkeypatch, part):
    """Here none answers in time."""
    monkeypatch.setattr(ways, "ANSWER_WITHIN_S", 0.0)
    told = []

    async def work(here):
        told.append(here)
        await session_of(here, case="local").run(part.STAGES[:1])

    with pytest.raises(NotDelivered, match="no time was left to send it"):
        do(work)
    (here,) = told
    assert not here.jobs[CLIENTS]
    assert not here.jobs[LOAD]


@pytest.mark.slow
@pytest.mark.realtime  # who stands still for 20 ms counts no chunk in them
def test_streams_are_opened_counted_and_left_on_each_way(monkeypatch):
    """Straight to the service, and through nodes: the difference is theirs. Many of them only where
    there is no hop."""
    monkeypatch.setattr(streams, "STREAMS", 4)
    monkeypatch.setattr(streams, "MANY_STREAMS", 8)
    here, session = played(streams.STAGES[:1], seed=3)
    (bed,) = here.beds
    assert (bed.told["seed"], len(bed.wanted.clusters)) == (3, 1)
    jobs = here.jobs[CLIENTS]
    url = bed.topology.clusters[0].proxy_url
    kinds = [Opened, Counted, Asked, Left, Opened, Left, *(Opened, Counted, Left) * 2]
    assert [type(job) for job in jobs] == [*kinds[:6] * 2, *kinds[6:]]
    opened = [(job.url == url, job.streams, job.period_ms) for job in jobs if type(job) is Opened]
    assert opened == [
        *[(True, 4, 20.0), (True, 4, 60_000.0), (False, 4, 20.0), (False, 4, 60_000.0)],
        *[(True, 8, 20.0), (False, 8, 20.0)],
    ]
    assert {job.size_bytes for job in jobs if isinstance(job, Opened | Asked)} == {200}
    lengths_s = [job.duration_s for job in jobs if isinstance(job, Counted)]
    assert lengths_s == pytest.approx([0.02, 0.02, 0.025, 0.025])
    asked = [(job.url == url, job.rate_per_s) for job in jobs if isinstance(job, Asked)]
    assert asked == [(True, 200.0), (False, 200.0)]
    assert {job.duration_s for job in jobs if isinstance(job, Asked)} == {0.02}
    assert [job.every_s for job in jobs if isinstance(job, Left)] == [0.0, 0.003] * 2 + [0.0] * 2
    shown = {(row.case, row.unit, row.peer) for row in session.rows}
    of_streams = [
        *[(f"{what}, added, local, {share}", "ms", None)
          for what in ("time to the first byte", "delay of a chunk") for share in ("p50", "p99")],
        ("CPU per chunk, local", "us", None),
        ("until a cancel is at the service, local, p99", "ms", None),
    ]  # fmt: skip
    many = ("10 000 chunks/s: arrived", "10 000 chunks/s: delay of a chunk, p99")
    assert shown == {
        *of_streams,
        *zip(many, ("per s", "ms"), ("direct", "direct"), strict=True),
        ("10 000 chunks/s: CPU per chunk", "us", None),
    }
    assert here.said == ["streams, local: run 1 of 1", "10 000 chunks/s: run 1 of 1"]


@pytest.mark.slow
@pytest.mark.realtime  # who stands still as long as is counted counts no chunk
def test_over_hops_there_are_not_many(monkeypatch):
    monkeypatch.setattr(streams, "STREAMS", 2)
    monkeypatch.setattr(benches, "PART", 2)
    here, session = played(streams.STAGES[1:2], seed=3)
    assert len(here.beds[0].wanted.clusters) == 2
    assert here.said == ["streams, one hop: run 1 of 1"]
    assert len(session.rows) == 6
    assert all(", one hop" in row.case for row in session.rows)


@pytest.mark.slow
def test_memory_of_streams_is_that_of_nodes_of_their_own(monkeypatch):
    """Anew for each figure and run, of which there are no more than two; warmed up before."""
    monkeypatch.setattr(memory, "STREAMS", 6)
    monkeypatch.setattr(memory, "SETTLED_S", 0.1)
    monkeypatch.setattr(memory, "WARM_UP_S", 0.02)
    here, session = played(memory.STAGES[1:2], case="idle stream", seed=3, runs=3)
    assert [(bed.told["seed"], len(bed.wanted.clusters)) for bed in here.beds] == [(3, 2)] * 2
    jobs = here.jobs[CLIENTS]
    assert [type(job) for job in jobs] == [Asked, Opened, Opened, Left] * 2
    assert (jobs[0].rate_per_s, jobs[0].duration_s, jobs[0].size_bytes) == (200.0, 0.02, 200)
    assert jobs[1] == jobs[2]
    assert (jobs[1].streams, jobs[1].period_ms, jobs[1].size_bytes) == (3, 60_000.0, 200)
    assert {job.every_s for job in jobs if isinstance(job, Left)} == {0.0}
    assert [job.url for job in jobs[:3]] == [here.beds[0].topology.clusters[0].proxy_url] * 3
    (row,) = session.rows
    assert (row.case, row.unit, row.peer) == ("memory of an idle stream, one hop", "KiB", None)
    assert len(row.values) == 2
    assert here.said == [f"memory of an idle stream, one hop: run {n} of 2" for n in (1, 2)]
    assert session.notes == [], "a quick run has no relays beside it"


def test_memory_of_relays_is_beside_that_of_nodes_unless_it_has_to_be_quick():
    async def work(told):
        session = session_of(told, quick=False, case="of none")
        await memory.measure_memory("local", session)
        return session.notes

    assert do(work) == [
        f"{name} is not installed: no row beside it" for name in ("HAProxy", "nginx")
    ]
