"""Whole benchmarks of `spillover bench queue`, as in `test_whole_benches`: real producers, and
clients as users have them."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest

from spillover.live.queue.store import ObjectStore
from spillover.model.errors import RunError
from spillover.tools.bench.queue import killed, measuring, rabbitmq, waits
from support.benches import Producers, played
from support.loop import turn

pytestmark = pytest.mark.slow


@pytest.fixture
def deaths(monkeypatch):
    """Of producers of which one is killed: (when, who, by what). It goes with all that it held."""
    found, beds, ending = [], [], []
    enter = Producers.__aenter__

    async def entered(bed):
        beds.append(await enter(bed))
        return bed

    def kill(pid, number):
        found.append((time.monotonic(), pid, number))
        ending.append(asyncio.get_running_loop().create_task(beds[-1].running["p1"].end()))

    monkeypatch.setattr(Producers, "__aenter__", entered)
    monkeypatch.setattr(os, "kill", kill)
    return found


@pytest.fixture
def late_s(monkeypatch):
    """When the last of three consumers began, each time: later than the others."""
    found, use = [], killed._use

    async def used(name, *more):
        if name == "c2":
            await turn(0.2)
            found.append(time.monotonic())
        await use(name, *more)

    monkeypatch.setattr(killed, "_use", used)
    return found


@pytest.mark.realtime  # a disk that does not write for 1.2 s has no objects given
def test_one_of_several_producers_is_killed_in_each_run(deaths, late_s, monkeypatch):
    """After as long as it was measured, and a while since the last consumer began; objects are on
    disk, and those that it had accepted are still there."""
    counts = {"PRODUCERS": 3, "CONSUMERS": 3, "PRODUCTION_PER_S": 60.0, "CONSUMPTION_PER_S": 25.0}
    for name, count in counts.items():
        monkeypatch.setattr(killed, name, count)
    monkeypatch.setattr(killed, "MEASURED_S", (24.0, 24.0))
    seen, measured = [], killed._figures

    def figures(one, measured_s):
        seen.append((one, measured_s))
        return measured(one, measured_s)

    monkeypatch.setattr(killed, "_figures", figures)
    here, session = played(killed.STAGES, seed=3, runs=2)
    assert [bed.count for bed in here.beds] == [3, 3]
    for bed in here.beds:
        assert (bed.told["buffers"], bed.told["drain_timeout_s"]) == (1, 0.1)
    stores = [bed.told["stores"] for bed in here.beds]
    assert stores[0] != stores[1]
    assert not any(one.exists() for one in stores)
    assert [(pid, number) for _, pid, number in deaths] == [(os.getpid(), signal.SIGKILL)] * 2
    assert all(at_s >= late + 0.025 + 1.2 for (at_s, *_), late in zip(deaths, late_s, strict=True))
    assert deaths[1][0] >= deaths[0][0] + 2 * 1.2 + 0.025
    for (one, measured_s), (at_s, *_) in zip(seen, deaths, strict=True):
        assert measured_s == 1.2
        assert 0.0 <= one.killed_s - at_s < 5.0
        assert one.is_ending
        assert one.began == {"c0", "c1", "c2"}
        assert not killed._missing(one)
        assert all(0.0 <= wait_ms < 5000.0 for wait_ms in one.left_ms)
        assert len(one.left_ms) <= 3
    assert [(row.case, row.unit, row.peer) for row in session.rows] == [
        (f"one of 20 producers killed: {what}", unit, "itself, before")
        for what, unit in (
            ("objects of the others", "per s"),
            ("wait for an object, median", "ms"),
            ("longest wait", "ms"),
        )
    ]
    assert {(len(row.values), len(row.peer_values)) for row in session.rows} == {(2, 2)}
    given, _, longest = session.rows
    assert min(given.peer_values) > 0.0
    assert all(longest.values)
    assert here.said == [f"{killed.GIVEN}: run {number} of 2" for number in (1, 2)]
    (note,) = session.notes
    assert note.startswith("one of 20 producers killed: nothing that was accepted is lost")


def test_a_run_that_does_not_begin_says_what_it_lacks(monkeypatch):
    """Nobody makes anything in time."""
    counts = {"PRODUCERS": 2, "CONSUMERS": 2, "PRODUCTION_PER_S": 1e-6, "BEGUN_WITHIN_S": 0.0}
    for name, count in counts.items():
        monkeypatch.setattr(killed, name, count)
    with pytest.raises(RunError, match="expected each consumer to get an object within 0 s"):
        played(killed.STAGES, seed=3)


def test_a_producer_that_is_killed_and_has_lost_something_ends_the_benchmark(tmp_path):
    store = ObjectStore(tmp_path, killed.DEAD, "test")
    store.close()
    seen = killed._Seen(accepted={b"p1 1", b"p1 2", b"p2 7"}, settled={b"p1 2"})
    with pytest.raises(RunError, match="1 objects that the killed producer had accepted are lost"):
        killed._check_store(tmp_path, seen)


def test_waits_are_seen_at_producers_of_which_some_are_only_watched(monkeypatch):
    """One case after the other on the same producers, each with makers of its own."""
    for name, count in {"PRODUCERS": 4, "CONSUMERS": 4, "WATCHED": 3}.items():
        monkeypatch.setattr(waits, name, count)
    monkeypatch.setattr(waits, "PRODUCTION_PER_S", 40.0)
    monkeypatch.setattr(waits, "MEASURED_S", (10.0, 10.0))
    here, session = played(waits.STAGES, case="load 100 %, one probe", seed=3, runs=2)
    (bed,) = here.beds
    assert (bed.count, bed.told) == (7, {"buffers": 1, "drain_timeout_s": 0.1})
    assert here.started == [("the process that makes objects",)]
    runs = [job for job in here.jobs["the process that makes objects"] if job is not None]
    assert [list(one.urls) for one in runs] == [["p1", "p2", "p3", "p4"]] * 2
    assert all(len(one.made_s) == 4 for one in runs)
    assert runs[0].made_s != runs[1].made_s
    case = "load 100 %, one probe"
    beside = ["itself, simulated at the same instants", "itself, simulated"]
    beside.append("the document's model, our legs")
    assert [(row.case, row.unit, row.peer) for row in session.rows[:6]] == [
        *((f"{case}: wait for an object", "ms", peer) for peer in beside),
        *((f"{case}: probes of a request", "each", peer) for peer in beside),
    ]
    legs = [(row.case.removeprefix(f"{case}: "), row.unit, row.peer) for row in session.rows[6:]]
    assert legs == [(what, "ms", None) for what in (*waits.LEGS, waits.AT_DOOR)]
    assert all(row.value >= 0.0 for row in session.rows[6:])
    assert session.rows[6].value > 0.0
    assert here.said == [f"{case}: run {number} of 2" for number in (1, 2)]
    assert len(session.notes) == 3


@pytest.fixture
def no_rabbitmq(monkeypatch):
    monkeypatch.setattr(measuring, "why_not", lambda: "it is not here")
    monkeypatch.setattr(measuring, "REDIS", ())


@pytest.mark.usefixtures("no_rabbitmq")
@pytest.mark.parametrize(
    ("size", "bytes_each", "at_once", "count"),
    [("1 KiB", 1024, 32, 150), ("64 KiB", 65_536, 16, 50), ("4 MiB", 4 << 20, 4, 4)],
)
def test_objects_of_a_size_are_brought_and_taken(monkeypatch, size, bytes_each, at_once, count):
    """By a process each; as much moves as the objects take."""
    monkeypatch.setitem(measuring.COUNTS, "4 MiB", (4, 4))
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    here, session = played(measuring.STAGES[:-1], case=f"objects of {size}", seed=3, runs=2)
    took_s, used_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
    ours = [(bed.count, bed.told) for bed in here.beds]
    assert ours == [(1, {"buffers": 16, "drain_timeout_s": 0.1})]
    plans = [plan for _, plan in here.started]
    assert [plan.consumes for plan in plans] == [False, True] * 2
    assert {(one.by, one.url, one.size_bytes, one.at_once, one.count) for one in plans} == {
        ("producer", here.beds[0].urls["p1"], bytes_each, at_once, count)
    }
    assert here.jobs["the load"] == [None] * 4
    what = f"objects of {size}"
    assert [(row.case, row.unit) for row in session.rows] == [
        (what, "per s"),
        (f"{what}: bytes moved between machines", "KB each"),
        (f"{what}: CPU of the queue", "us each"),
        (f"{what}: CPU of producers and consumers", "us each"),
    ]
    rate, moved, *cpu = session.rows
    assert min(rate.values) > count / took_s
    assert moved.values == pytest.approx([bytes_each / 1e3] * 2)
    assert all(0.0 < row.value * count <= 2e6 * used_s for row in cpu), "of two clients at most"
    assert session.notes == [
        "whoever produces is on its producer's machine, the others on one of their own",
        "RabbitMQ is not compared: it is not here",
    ]


@pytest.mark.processes
def test_what_others_show_is_not_lost_with_a_broker_that_does_not_start(monkeypatch, tmp_path):
    pytest.importorskip("aiormq")
    for name, does in (("rabbitmq-server", "echo no cookie; exit 1"), ("epmd", "exit 0")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(rabbitmq, "SCRIPT", tmp_path / "none")
    monkeypatch.setattr(measuring, "REDIS", ())
    monkeypatch.setitem(measuring.COUNTS, "4 MiB", (4, 4))
    _, session = played(measuring.STAGES, case="objects of 4 MiB: ", seed=3)
    assert len(session.rows) == 3
    assert session.notes[-1] == (
        "RabbitMQ is not compared: rabbitmq-server does not start: no cookie"
    )


@pytest.mark.usefixtures("no_rabbitmq")
def test_what_nobody_takes_is_brought_for_a_while(monkeypatch):
    """To a producer of its own in each run."""
    monkeypatch.setattr(measuring, "STUCK_S", 0.2)
    here, session = played(measuring.STAGES, case="nobody takes", seed=3, runs=2)
    assert [(bed.count, bed.told["buffers"]) for bed in here.beds] == [(1, 16)] * 2
    plans = [plan for _, plan in here.started]
    assert [(one.consumes, one.size_bytes, one.count, one.at_once) for one in plans] == [
        (False, 4 << 20, 64, 8)
    ] * 2
    assert [one.url for one in plans] == [bed.urls["p1"] for bed in here.beds]
    assert all(bed.running["p1"].objects.produced > 0 for bed in here.beds)
    (row,) = session.rows
    case = "memory while nobody takes: objects of 4 MiB brought for 3 s"
    assert (row.case, row.unit, len(row.values)) == (case, "MB more", 2)


@pytest.mark.processes
@pytest.mark.usefixtures("no_rabbitmq", "redis_servers")
def test_what_a_redis_of_its_own_is_sent_and_sends_is_beside_ours(monkeypatch):
    """An object there and back, with a little around it."""
    monkeypatch.setattr(measuring, "REDIS", ("Redis list",))
    monkeypatch.setitem(measuring.COUNTS, "1 KiB", (100, 100))
    _, session = played(measuring.STAGES[:1], seed=3)
    assert {row.peer for row in session.rows} == {"Redis list"}
    (moved,) = (row for row in session.rows if row.unit == "KB each")
    (theirs_kb,) = moved.peer_values
    assert 2 * 1.024 < theirs_kb < 3 * 1.024
    assert any(note.startswith("redis-server ") for note in session.notes)
