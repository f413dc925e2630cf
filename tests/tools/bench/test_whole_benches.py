"""Whole benchmarks within this process: whom they start and how, what they have done by whom, in
which order and for how long, and what stands beside what. The figures are of no use."""

from __future__ import annotations

import asyncio
import json
import time
from itertools import chain

import pytest

from spillover.model.errors import RunError
from spillover.tools.bench import client, nodes
from spillover.tools.bench.load_process import (
    ASYNCHRONOUS,
    Closed,
    Held,
    Queued,
    Scheduled,
    _Worker,
)
from spillover.tools.bench.model import BenchPlan
from spillover.tools.bench.node import encrypted, gossip, latency, memory, paths
from spillover.tools.bench.nodes import FOREVER_MS
from spillover.tools.bench.servers import Bare, Relay, Server
from spillover.tools.bench.session import Session
from support.benches import played
from support.scripted_server import answer, scripted_aside

LOAD = "the load process"


def bed_of(here):
    """Its clusters (id, servers, queue limit, ms of a service), links and seed."""
    (bed,) = here.beds
    topology, told = bed.wanted, bed.told
    assert (told["drain_timeout_s"], told["certify"]) == (0.0, None)
    assert topology.default_deadline_ms > FOREVER_MS
    clusters = [(c.id, c.servers, c.queue_limit, c.service_ms) for c in topology.clusters]
    return clusters, [link.between for link in topology.links], told["seed"]


def there_and_back(*sides, turns=4):
    """Each has a turn, then each has one in the opposite order, and so on."""
    return [*chain(*(sides[::-1] if turn % 2 else sides for turn in range(turns)))]


def rows_of(session):
    """What stands beside what."""
    assert all(len(row.values) == session.plan.runs for row in session.rows)
    return [(row.case, row.unit, row.peer) for row in session.rows]


@pytest.mark.slow
@pytest.mark.parametrize("quick", [True, False])
def test_libraries_ask_in_turn_with_the_same_payload(quick):
    """Each in a process of its own, after it has been warmed up. A quick run is half as long."""
    case = "AsyncSpillover.run, 64 KiB"
    began_s = time.process_time()
    here, session = played(client.STAGES, case=case, seed=7, quick=quick)
    took_s = time.process_time() - began_s
    assert bed_of(here) == ([("a", 256, 10_000, 0.0)], [], 7)
    assert here.started == [("the asking process",)] * 3
    jobs = here.jobs["the asking process"]
    peers, ours = ("load generator", "httpx"), "AsyncSpillover"
    assert [job.library for job in jobs] == [*peers, ours, *there_and_back(ours, *peers)]
    lengths_s = [0.01] * 3 + [0.0075] * 12
    found_s = [job.duration_s / (1 if quick else 2) for job in jobs]
    assert found_s == pytest.approx(lengths_s)
    assert {(job.users, job.url) for job in jobs} == {(12, jobs[0].url)}
    payloads = {json.dumps(job.payload) for job in jobs}
    assert payloads == {json.dumps({"service_ms": 0, "pad": "x" * 65_536})}
    assert rows_of(session) == [(case, "requests/CPU-s", peer) for peer in peers]
    # Twelve ask, in four turns, and no side has had all the time.
    least = 12 / took_s
    assert all(min(*row.values, *row.peer_values) > least for row in session.rows)
    assert here.said == [f"{case}: run 1 of 1"]


def asked_at(here):
    """Jobs of the load process: at whom, by the order in which they were first asked."""
    jobs = [job for job in here.jobs[LOAD] if isinstance(job, Closed)]
    urls = list(dict.fromkeys(job.url for job in jobs))
    lengths_s = [0.01] * len(urls) + [0.0075] * (len(jobs) - len(urls))
    assert [job.duration_s for job in jobs] == pytest.approx(lengths_s)
    assert len({(job.body, job.connections, job.keyed, job.headers) for job in jobs}) == 1
    return [urls.index(job.url) for job in jobs], jobs[0]


@pytest.mark.parametrize(
    ("case", "others"),
    [
        ("local, 1 KiB", ["bare ASGI app", "bare ASGI app that checks its JSON"]),
        ("local, keyed, 64 KiB", ["bare ASGI app"]),
        ("local, asynchronous, 1 KiB", ["bare ASGI app"]),
    ],
)
def test_a_node_with_free_servers_is_beside_apps_that_give_its_answer(case, others):
    here, session = played(paths.STAGES, case=case, seed=3)
    assert bed_of(here) == ([("a", 256, 10_000, 0.0)], [], 3)
    (_, bare), (_, reading), load = here.started
    assert json.loads(bare.answer)["cluster"] == "a"
    assert (bare, reading) == (Bare(answer=bare.answer), Bare(answer=bare.answer, reads_json=True))
    assert load == (LOAD,)
    sides = range(len(others) + 1)
    asked, job = asked_at(here)
    assert asked == [*sides, *there_and_back(*sides)]
    is_later = "asynchronous" in case
    assert (job.keyed, job.headers) == ("keyed" in case, (ASYNCHRONOUS,) if is_later else ())
    assert job.statuses == ({200, 202} if is_later else {200})
    assert rows_of(session) == [(case, "requests/CPU-s", other) for other in others]


@pytest.mark.slow
def test_a_busy_node_is_beside_relays_of_the_same_answer(monkeypatch, tmp_path):
    """Its neighbor has room for all; HAProxy stands beside it where it is installed."""
    monkeypatch.setattr("spillover.tools.bench.foreign.SYSTEM_DIRECTORIES", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    case = "forwarded, 64 KiB"
    here, session = played(paths.STAGES, case=case, seed=3)
    clusters = [("a", 64, 0, 0.0), ("b", 256, 0, 0.0)]
    assert bed_of(here) == (clusters, [("a", "b")], 3)
    occupier, (_, bare), (_, relay), load = here.started
    assert occupier == load == (LOAD,)
    assert json.loads(bare.answer)["path"] == ["a", "b"]
    assert isinstance(relay, Relay)
    held = here.jobs[LOAD][0]
    assert isinstance(held, Held)
    assert (held.requests, json.loads(held.body)["payload"]["service_ms"]) == (64, FOREVER_MS)
    asked, job = asked_at(here)
    assert asked == [0, 1, *there_and_back(0, 1)]
    assert held.url == job.url
    assert rows_of(session) == [(case, "requests/CPU-s", "bare aiohttp relay")]
    assert session.notes == ["HAProxy is not installed: no row beside it"]


def test_a_node_that_forwards_nothing_ends_it(monkeypatch):
    """It would be another path that is measured."""
    monkeypatch.setattr(paths, "BUSY_SERVERS", 2)
    monkeypatch.setattr(paths, "FORWARDED", {})
    session = Session(BenchPlan(), print)
    for busy in (2, 1):
        with scripted_aside(answer(200, {"busy": busy})) as node:
            comparing = paths._compare_relays(session, None, Server(node.url, 1), {})
            if busy == 2:
                asyncio.run(comparing)
                continue
            with pytest.raises(RunError, match="served requests itself"):
                asyncio.run(comparing)


@pytest.mark.slow
def test_half_of_what_servers_can_do_is_asked_of_a_node_and_an_app_that_sleeps():
    """In turn, each time another schedule of the same length."""
    here, session = played((latency.STAGE,), seed=3, runs=2)
    assert bed_of(here) == ([("a", 5, 10_000, 4.0)], [], 3)
    (_, bare), load = here.started
    assert (load, bare.sleep_s, json.loads(bare.answer)["cluster"]) == ((LOAD,), 0.004, "a")
    jobs = here.jobs[LOAD]
    assert {type(job) for job in jobs} == {Scheduled}
    node, app = jobs[0].url, jobs[1].url
    assert [job.url for job in jobs] == [node, app, app, node]
    assert [job.seed for job in jobs] == [3, 4, 5, 6]
    assert len({tuple(job.schedule) for job in jobs}) == 4
    assert {arrival.cluster for job in jobs for arrival in job.schedule} == {"a"}
    assert all(0.0 < job.schedule[-1].time_s <= 0.05 for job in jobs)
    assert 62 <= sum(len(job.schedule) for job in jobs) <= 188  # of 125
    assert latency.RATE_PER_S == 0.5 * latency.SERVERS / (latency.SERVICE_MS / 1e3)
    told = [(f"added latency at half load, {name}", "ms") for name in ("p50", "p99")]
    assert rows_of(session) == [(*one, "bare ASGI app that sleeps") for one in told]
    assert session.notes[0].startswith("added latency at half load: of it, on both sides")


def test_memory_is_measured_where_everything_waits():
    """From N on to twice as many, with one more for what was asked at first."""
    here, session = played(memory.STAGES, seed=3)
    assert {bed.told["seed"] for bed in here.beds} == {3}
    for bed in here.beds:
        assert [(c.servers, c.queue_limit) for c in bed.wanted.clusters] == [(1, 20_000)]
    assert [name for name, *_ in here.started] == [LOAD, LOAD, LOAD, LOAD, "the peer Bare", LOAD]
    assert here.started[4][1] == Bare(answer=b"{}", holds=True)
    taken, first, second, taken_again, *held = here.jobs[LOAD]
    for job in (taken, taken_again):
        assert isinstance(job, Held)
        assert (job.requests, json.loads(job.body)["payload"]["service_ms"]) == (1, FOREVER_MS)
    assert first == second == Queued(url=taken.url, body=taken.body, requests=100)
    assert held[0] == held[1]
    assert held[2] == held[3]
    assert {(job.requests, len(job.body)) for job in held} == {(25, 256 + len(b'{"payload": }'))}
    assert [job.url == taken_again.url for job in held] == [True, True, False, False]
    assert {json.loads(job.body)["payload"]["service_ms"] for job in held} == {0}
    # Of this process, which is large: a request takes a small part of it.
    assert all(abs(row.value) < 5e5 for row in session.rows)
    assert here.said == [f"{case}: run 1 of 1" for case in (memory.ASYNC_CASE, memory.SYNC_CASE)]
    assert rows_of(session) == [
        ("memory per queued request, asynchronous", "bytes", None),
        ("memory per queued request, synchronous, above peer", "bytes", "bare ASGI app, pending"),
    ]


@pytest.mark.parametrize(
    ("case", "left_out", "place", "expected"),
    [
        (memory.ASYNC_CASE, Held, 1, "'busy': 1"),
        (memory.ASYNC_CASE, Queued, 2, "'queue_length': 201"),
        (memory.SYNC_CASE, Held, 2, "'queue_length': 25"),
        (memory.SYNC_CASE, Held, 3, "'queue_length': 50"),
    ],
)
def test_memory_is_not_that_of_requests_that_were_never_there(
    monkeypatch, case, left_out, place, expected
):
    """Of one half of them, or of the one that takes the server. What of the first half comes late
    would be counted with the second."""
    monkeypatch.setattr(nodes, "STATE_WITHIN_S", 0.2)
    work, asked = _Worker._do, []

    async def do_less(worker, job):
        if isinstance(job, left_out):
            asked.append(job)
            if len(asked) == place:
                return job.requests
        return await work(worker, job)

    monkeypatch.setattr(_Worker, "_do", do_less)
    with pytest.raises(RunError, match=rf"expected {{{expected}}} in time, got"):
        played(memory.STAGES, case=case)


@pytest.mark.parametrize(
    ("case", "states"), [("CPU per link", ("idle", "busy")), ("busy CPU per link", ("busy",))]
)
def test_a_node_with_links_is_beside_one_without(case, states):
    """At rest, and then with all of them at work; whoever looks for one gets that alone."""
    here, session = played((gossip.STAGE,), case=case, seed=3)
    names = ["hub", "alone", *(f"leaf{number}" for number in range(4))]
    links = [("hub", leaf) for leaf in names[2:]]
    assert bed_of(here) == ([(name, 1, 0, 0.0) for name in names], links, 3)
    assert rows_of(session) == [
        (f"{state} CPU per link", "CPU-ms/s", f"{state} node without links") for state in states
    ]
    assert here.said == [f"{state} CPU per link: run 1 of 1" for state in states]


def of_pairs(here, count=1):
    """What both federations are like, without certificates and with them, pair after pair."""
    assert len(here.beds) == 2 * count
    for place, bed in enumerate(here.beds):
        assert bed.told["seed"] == 3
        assert (bed.told["certify"] is not None) is (place % 2 == 1)
    return [[(c.servers, c.queue_limit) for c in bed.wanted.clusters] for bed in here.beds]


@pytest.mark.slow
def test_certificates_are_beside_none_at_both_ends():
    """Forwards to a neighbor, whose own requests do not go from node to node."""
    pytest.importorskip("cryptography")
    here, session = played(encrypted.STAGES, case="1 KiB", seed=3)
    assert of_pairs(here) == [[(64, 0), (1024, 0)]] * 2
    plain, secure = (list(bed.urls.values()) for bed in here.beds)
    held = [job for job in here.jobs[LOAD] if isinstance(job, Held)]
    assert [(job.url, job.requests) for job in held] == [(plain[0], 64), (secure[0], 64)]
    assert {json.loads(job.body)["payload"]["service_ms"] for job in held} == {FOREVER_MS}
    jobs = [job for job in here.jobs[LOAD] if isinstance(job, Closed)]
    asked = [job.url for job in jobs]
    forwarded, local = (secure[0], plain[0]), (secure[1], plain[1])
    assert asked[:10] == [*forwarded, *there_and_back(*forwarded)]
    assert asked[10:] == [*local, *there_and_back(*local)]
    assert {len(job.body) for job in jobs} == {1024 + len(b'{"payload": }')}
    assert rows_of(session) == [
        (case, "requests/CPU-s", "without TLS")
        for case in (encrypted.FORWARDED, encrypted.RECEIVED, encrypted.LOCAL)
    ]


@pytest.mark.slow
def test_idle_connections_are_counted_between_nodes_of_each_run(monkeypatch):
    """From as many requests at once on to three times as many."""
    pytest.importorskip("cryptography")
    monkeypatch.setattr(encrypted, "AT_ONCE", 5)
    monkeypatch.setattr(encrypted, "AT_ONCE_MS", 40.0)
    here, session = played(encrypted.STAGES[1:], seed=3, runs=2)
    assert of_pairs(here, 2) == [[(20, 0), (1024, 0)]] * 4
    jobs = [job for job in here.jobs[LOAD] if isinstance(job, Closed)]
    assert [job.connections for job in jobs] == [5, 15] * 4
    assert {(job.duration_s, len(job.body)) for job in jobs} == {(0.04, len(jobs[0].body))}
    assert json.loads(jobs[0].body)["payload"]["service_ms"] == 40.0
    assert [job.url for job in jobs] == [
        url for bed in here.beds for url in [next(iter(bed.urls.values()))] * 2
    ]
    assert rows_of(session) == [(encrypted.IDLE, "bytes", "without TLS")]
    assert here.said == [f"{encrypted.IDLE}: run {number} of 2" for number in (1, 2)]
