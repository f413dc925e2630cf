"""What benchmarks make of what they have measured: units, verdicts and what belongs to which run.
Without a measurement."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import subprocess
import sys
from contextlib import ExitStack
from types import SimpleNamespace

import psutil
import pytest

from spillover.inputs.builtin_pools import BUILTIN_POOLS
from spillover.model.errors import RunError, SpilloverError
from spillover.model.ids import ClusterId
from spillover.tools.bench.leases import takeover
from spillover.tools.bench.membership.rules import Simulated
from spillover.tools.bench.model import BenchPlan
from spillover.tools.bench.proxy import memory
from spillover.tools.bench.queue import killed
from spillover.tools.bench.session import Session
from spillover.tools.bench.sim.scale import _peak_mb
from spillover.tools.bench.tokens import measuring
from spillover.tools.bench.tokens.outcome import Job
from spillover.tools.bench.tokens.sharing_servers import Served
from spillover.tools.bench.tokens.sides import Played
from spillover.tools.bench.tokens.workloads import WORKLOADS, Phase
from spillover.tools.bench.usage import cpu_s
from support.scripted_server import problem, scripted


def test_a_takeover_is_within_its_bound_only_if_each_is():
    """A maximum lease of 3 s, a period of 1 s and the longest wait, which is shorter than that."""
    assert 4.0 < takeover.BOUND_S < 5.0
    assert takeover._verdict([1.0, 3.5]) == "longest of 2: 3.50 s: met"
    assert takeover._verdict([1.0, 6.0]) == "longest of 2: 6.00 s: NOT met"
    assert takeover._verdict([takeover.BOUND_S]).endswith(": met")


def test_an_idle_stream_costs_what_the_second_half_of_them_added():
    """Of the process that took the most; the first half also fills what is kept for good."""
    figures = memory._of_idle([1_000_000, 0], [5_000_000, 0], [5_000_000, 512_000])
    assert figures == {memory.IDLE: 1.0, memory.ALL: 4.0}


@pytest.fixture
def python():
    """Runs a text as a program that can be talked to, and ends it."""
    with ExitStack() as ends:

        def start(text, *arguments):
            command = [sys.executable, "-c", text, *map(str, arguments)]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            process = ends.enter_context(subprocess.Popen(command, **pipes))
            ends.callback(process.kill)
            return process

        yield start


GROWS = """
import sys, time
held = []
for _ in range(12):
    held.append(b"x" * 4_000_000)
    time.sleep(0.1)
print("grown", flush=True)
sys.stdin.read()
"""


@pytest.mark.processes
def test_memory_counts_once_it_has_grown(python):
    """A process that still grows when it is looked at first."""
    grown = python(GROWS)
    way = memory.Way("grows", "", (grown.pid,))
    (most,) = asyncio.run(memory._resident(way))
    assert grown.stdout.readline() == "grown\n"
    assert most >= 0.95 * psutil.Process(grown.pid).memory_info().rss


@pytest.mark.parametrize(("system", "peak_mb"), [("linux", 2048.0), ("darwin", 2.0)])
def test_a_peak_is_in_the_units_of_its_system(monkeypatch, system, peak_mb):
    """KiB, or bytes."""
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(resource, "getrusage", lambda _: SimpleNamespace(ru_maxrss=2_000_000))
    assert _peak_mb() == peak_mb


def test_processor_time_is_of_user_and_system_wherever_it_is_counted(monkeypatch):
    """Where no clock of a process tells it, and of one that is gone."""
    times = SimpleNamespace(user=0.75, system=0.5)
    monkeypatch.setattr(psutil.Process, "cpu_times", lambda _: times)
    assert cpu_s(os.getpid()) != 1.25 or sys.platform != "linux"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cpu_s(os.getpid()) == 1.25
    with pytest.raises(RunError, match="a process that is measured cannot be looked at"):
        cpu_s(2**30)


def test_the_peak_of_memory_is_in_mb():
    used_mb = psutil.Process().memory_info().rss / 1e6
    assert 0.9 * used_mb < _peak_mb() < 100 * used_mb


def test_the_fullest_and_emptiest_of_all_are_of_each_run():
    """Rows are steps, columns runs."""
    shares = ((1.1, 1.3), (1.5, 1.2), (1.2, 1.9))
    told = Simulated(moved=((1.0, 2.0), (3.0, 4.0)), fullest=shares, emptiest=shares)
    assert told.fullest_of_all == (1.5, 1.9)
    assert told.emptiest_of_all == (1.1, 1.2)
    assert told.moved_in_all == (4.0, 6.0)


def test_objects_per_second_before_and_after_a_kill():
    seen = killed._Seen(given_s=[7.9, 8.5, 9.0, 9.5, 10.0, 11.0, 12.0], killed_s=10.0)
    assert killed._rates(seen, 2.0) == (1.5, 1.0)


@pytest.mark.parametrize(
    ("name", "killed_s", "may_fail"),
    [(killed.DEAD, 1.0, True), (killed.DEAD, 0.0, False), ("p2", 1.0, False)],
)
def test_only_the_client_of_the_killed_producer_may_fail(name, killed_s, may_fail):
    """And only once it has been killed."""

    async def make():
        async with scripted(problem(422, "invalid")) as server:
            seen = killed._Seen(killed_s=killed_s) if killed_s else killed._Seen()
            await killed._make(name, server.url, seen, random.Random(1))
            return seen.accepted

    if may_fail:
        assert asyncio.run(make()) == set()
    else:
        with pytest.raises(SpilloverError):
            asyncio.run(make())


def played(*, lag_ms, time_ms, stay_s):
    served = Served(jobs=1, stay_s=stay_s, late_s=[0.0])
    job = Job(0.0, ClusterId("r"), "t1", time_ms)
    return Played(jobs=[job], served=served, cpu_share={"nodes": 0.5}, lag_ms=lag_ms)


@pytest.mark.parametrize(
    ("lag_ms", "around_ms", "is_late"), [(1.0, 1.0, False), (90.0, 1.0, True), (1.0, 90.0, True)]
)
def test_figures_that_came_too_late_are_not_to_be_used(lag_ms, around_ms, is_late):
    """Whether it was sent late, or took longer than its share of the server."""
    session = Session(BenchPlan(), say=print)
    workload = WORKLOADS[0]
    one = played(lag_ms=lag_ms, time_ms=100.0 + around_ms, stay_s=0.1)
    measuring._note_effort(session, workload, "tokens", [one])
    (note,) = session.notes
    assert f"a job took {around_ms:.2f} ms more" in note
    assert ("TOO LATE" in note) is is_late


def test_replicas_of_another_run_are_others():
    """Two runs of one replica tell as much as one run of two."""

    def jobs(replica, blocked):
        kinds = [(k, None if k < blocked else 5.0) for k in range(40)]
        return [Job(k / 40, ClusterId(replica), "t", time_ms) for k, time_ms in kinds]

    phase = Phase("", BUILTIN_POOLS["comte8"](), 0.0, 0.0, 1.0, {})
    two_runs = measuring._found([jobs("r", 4), jobs("r", 20)], [ClusterId("r")], phase)
    names = [ClusterId("r"), ClusterId("s")]
    one_run = measuring._found([jobs("r", 4) + jobs("s", 20)], names, phase)
    assert two_runs == one_run
    assert two_runs.blocking.blocked["all"] == 24
