"""Plain functions in threads, one for each server: how many there are, what a function can know,
and what becomes of work where there is no thread, or no process behind it."""

import asyncio
import resource
import sys
import threading
import time
from functools import partial
from types import SimpleNamespace

import msgspec
import pytest

from spillover.core.overflow.events import Start
from spillover.live.engine.timers import Timers
from spillover.live.handlers.calls import CallResult
from spillover.live.handlers.python import handler as handler_module
from spillover.live.handlers.python import processes as processes_module
from spillover.live.handlers.python.handler import (
    AsyncWorkers,
    SyncWorkers,
    python_workers,
)
from spillover.live.handlers.python.pooled import PooledWorkers
from spillover.live.handlers.python.threads import ServerThreads
from spillover.model.errors import InputError
from spillover.model.request import Outcome, Request
from spillover.model.topology import Cluster
from support import HANDLERS, waiting
from support.loop import turn, until

NO_ROOM_BYTES = 1 << 62
"""For the stack of a thread: no system has it."""


def command(ref=1, *, began_s=None, deadline_s=60.0, type_="render"):
    request = Request(f"r{ref}", keyed=False, work=msgspec.Raw(b"[1]"), type=type_)
    began_s = time.monotonic() if began_s is None else began_s
    return Start(ref, request, began_s, began_s + deadline_s)


@pytest.fixture
def no_threads():
    """`no_threads(True)`: from now on the system gives none."""
    yield lambda is_so: threading.stack_size(NO_ROOM_BYTES if is_so else 0)
    threading.stack_size(0)


class Played:
    """Workers in a loop, and what they say."""

    def __init__(self, make):
        self.ends = []
        self.timers = Timers(asyncio.get_running_loop())
        self.workers = make(self)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.workers.close()
        self.timers.close()

    def on_end(self, event, at_s):
        assert at_s is None
        self.ends.append(event)

    async def end(self, count=1):
        await until(lambda: len(self.ends) == count)
        return self.ends[-1]


def in_threads(function, **fields):
    cluster = Cluster(id="a", servers=4, handler="python:m:f", **fields)
    return Played(lambda played: SyncWorkers(function, cluster, played.timers, played.on_end))


# --- threads ----------------------------------------------------------------------------------


def test_there_are_as_many_threads_as_there_ever_were_jobs_at_a_time():
    threads, seen = ServerThreads(), []
    first, second = threading.Event(), threading.Event()

    def job(go_on):
        seen.append(threading.current_thread())
        go_on.wait()

    for count in (1, 2):
        threads.submit(partial(job, first))
        waiting.until(lambda count=count: len(seen) == count)
    first.set()
    for _ in range(2):
        threads.ended()
    for count in (3, 4):
        threads.submit(partial(job, first))
        waiting.until(lambda count=count: len(seen) == count)
        threads.ended()
    assert {thread.name for thread in seen} == {"server-0", "server-1"}
    for _ in range(3):
        threads.submit(partial(job, second))
    waiting.until(lambda: len(seen) == 7)
    second.set()
    assert sorted(thread.name for thread in seen[4:]) == ["server-0", "server-1", "server-2"]
    assert all(thread.daemon for thread in seen)


async def test_where_there_is_no_thread_a_request_fails_and_the_next_one_does_not(no_threads):
    """Not while it is being started: whoever starts it is not done with that."""
    async with in_threads(len) as played:
        no_threads(True)
        played.workers.start(command(1))
        assert played.ends == []
        event = await played.end()
        assert (event.outcome, event.ref) == (Outcome.FAILED, 1)
        assert event.problem == "RuntimeError: can't start new thread"
        no_threads(False)
        played.workers.start(command(2))
        assert (await played.end(2)).outcome is Outcome.DONE
        assert played.workers._contexts == {}


async def test_where_there_is_no_thread_no_process_is_kept_for_it(no_threads):

    async with in_threads(len, workers="process") as played:
        no_threads(True)
        played.workers.start(command(1))
        no_threads(False)
        assert played.workers._processes._calls == {}
        assert (await played.end()).outcome is Outcome.FAILED
        await played.workers.close()
        living = Process()
        played.workers._processes._living.add(living)
        await played.workers.close()
        assert living.kills == 1, "none outlives the node"


async def test_work_that_raises_is_a_failure_and_its_thread_goes_on():
    """Whatever it is: else a server would be lost for good."""

    def work(ref):
        if ref == 1:
            raise SystemExit(3)
        return CallResult(b"1")

    async with Played(lambda played: PooledWorkers(played.on_end)) as played:
        for ref in (1, 2):
            played.workers.run(command(ref), work, ref)
            await played.end(ref)
        assert [event.outcome for event in played.ends] == [Outcome.FAILED, Outcome.DONE]
        assert played.ends[0].problem == "SystemExit: 3"
        assert played.workers._threads._started == 1


async def test_a_function_in_a_thread_sees_that_its_result_is_not_wanted():
    """And no other one does. What it returns is told all the same, and nothing of it is kept."""
    running, go_on, seen = [], threading.Event(), {}

    def f(payload, ctx):
        running.append(ctx)
        go_on.wait()
        seen[ctx.id] = ctx.cancelled
        return payload

    async with in_threads(f) as played:
        played.workers.start(command(1, began_s=time.monotonic() - 5.0))
        played.workers.start(command(2))
        await until(lambda: len(running) == 2)
        played.workers.stop(1)
        played.workers.stop(9)
        for ctx in running:
            assert (ctx.type, ctx.cluster, ctx.cancelled) == ("render", "a", ctx.id == "r1")
        left_ms = {ctx.id: ctx.remaining_ms for ctx in running}
        assert 50_000.0 < left_ms["r1"] < 55_000.0 < left_ms["r2"] < 60_000.0
        go_on.set()
        await played.end(2)
        assert seen == {"r1": True, "r2": False}
        ends = {event.ref: event for event in played.ends}
        assert {event.outcome for event in played.ends} == {Outcome.DONE}
        assert ends[1].service_s >= 5.0
        assert ends[2].service_s < 5.0
        assert (played.workers._contexts, played.workers._stopped) == ({}, {})


async def test_where_there_is_no_process_nothing_is_killed():
    """A thread runs on, whatever a cluster says; nor is anything done to what has ended."""
    running, go_on = [], threading.Event()

    def f(payload):
        running.append(payload)
        go_on.wait()
        return payload

    async with in_threads(f, kill_after_ms=1.0) as played:
        errors = []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: errors.append(told))
        played.workers.start(command())
        await until(lambda: running)
        played.workers.stop(1)
        (timer,) = played.workers._stopped.values()
        await until(lambda: timer.ring is None)
        await turn()
        assert (played.ends, errors) == ([], [])
        go_on.set()
        assert (await played.end()).outcome is Outcome.DONE
        assert (played.workers._stopped, played.workers._contexts) == ({}, {})


async def test_what_has_ended_is_not_to_be_killed_any_more():
    go_on = threading.Event()
    async with in_threads(
        lambda payload: go_on.wait(60.0) and payload, kill_after_ms=3_600_000.0
    ) as played:
        played.workers.start(command())
        played.workers.stop(1)
        (timer,) = played.workers._stopped.values()
        due_in_s = timer.due_s - time.monotonic()
        assert 3_500.0 < due_in_s <= 3_600.0
        go_on.set()
        await played.end()
        assert timer.ring is None


def test_plain_functions_go_to_threads_or_processes_and_async_ones_to_the_loop(monkeypatch):
    """Those cannot be held to the limits of a process."""
    monkeypatch.chdir(HANDLERS)
    monkeypatch.syspath_prepend(HANDLERS)
    limits = [{}, {"kill_after_ms": 5.0}, {"memory_limit_bytes": 100_000_000}]
    for function, kind in (("echo", SyncWorkers), ("soon", AsyncWorkers)):
        for fields in limits:
            handler = f"python:handlers_of_tests:{function}"
            cluster = Cluster(id="a", servers=1, handler=handler, workers="process", **fields)
            if kind is AsyncWorkers and fields:
                with pytest.raises(InputError) as error:
                    python_workers(cluster, "t.yaml", None, print)
                expected = f"expected a plain function for it, {handler} is async"
                assert str(error.value) == f"t.yaml: {next(iter(fields))}: {expected}"
            else:
                assert type(python_workers(cluster, "t.yaml", None, print)) is kind


# --- on the loop ------------------------------------------------------------------------------


def on_the_loop(function):
    return Played(lambda played: AsyncWorkers(function, "a", played.on_end))


async def test_what_runs_on_the_loop_is_cancelled_with_the_node_and_waited_for():
    """It may let go of what it holds, and knows why."""
    seen = []

    async def f(payload, ctx):
        try:
            await asyncio.Event().wait()
        finally:
            await turn()
            seen.append((ctx.id, ctx.cancelled))

    async with on_the_loop(f) as played:
        for ref in (1, 2):
            played.workers.start(command(ref))
        await turn()
        await played.workers.close()
        assert sorted(seen) == [("r1", True), ("r2", True)]
        await until(lambda: not played.workers._running)
        assert [event.outcome for event in played.ends] == [Outcome.CANCELLED] * 2


async def test_what_does_not_heed_that_the_node_ends_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(handler_module, "END_S", 0.01)
    told, go_on = [], asyncio.Event()

    async def f(payload):
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                told.append(payload)

    async with on_the_loop(f) as played:
        played.workers.start(command())
        await turn()
        await played.workers.close()
        assert (told, played.ends) == ([[1]], [])
        go_on.set()
        assert (await played.end()).outcome is Outcome.DONE


# --- processes, without one -------------------------------------------------------------------


class Process:
    """What the system says of one."""

    def __init__(self, exitcode=None, *, is_alive=True):
        self.exitcode, self.lives, self.kills = exitcode, is_alive, 0

    def is_alive(self):
        return self.lives

    def kill(self):
        self.kills += 1
        self.lives = False
        self.exitcode = -9


@pytest.mark.parametrize(
    ("hard", "limit"), [(resource.RLIM_INFINITY, 1_000), (2_000, 1_000), (500, 500)]
)
def test_no_more_memory_than_the_system_allows_anyway(monkeypatch, hard, limit):
    """Of data: who asks for more than the hard limit would get an error."""
    asked = []
    limits = SimpleNamespace(
        RLIMIT_DATA=resource.RLIMIT_DATA,
        RLIM_INFINITY=resource.RLIM_INFINITY,
        getrlimit=lambda which: (which, hard),
        setrlimit=lambda *told: asked.append(told),
    )
    monkeypatch.setitem(sys.modules, "resource", limits)
    processes_module._limit_memory(1_000)
    assert asked == [(resource.RLIMIT_DATA, (limit, limit))]
