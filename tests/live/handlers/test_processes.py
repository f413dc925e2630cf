"""Worker processes that eat memory, run on, or die: what it costs their own request, and nobody
else's.
"""

import asyncio
import os
import signal
import sys
import time

import pytest

from spillover.live.handlers.make import be_ready
from spillover.live.handlers.python.processes import JOIN_S
from spillover.model.errors import InputError
from spillover.model.request import Outcome
from support import handler_rig

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("importable")]

CHILD_S = 20.0
MEMORY_LIMIT_BYTES = 160 * 1024 * 1024


class Rig(handler_rig.Rig):
    """Its servers are processes, two if nothing else is said."""

    def __init__(self, function, **fields):
        handler = f"python:handlers_of_tests:{function}"
        super().__init__(**{"handler": handler, "servers": 2, "workers": "process", **fields})


async def test_processes_have_imported_the_function_before_they_are_asked(tmp_path, monkeypatch):
    (tmp_path / "imported_in_workers.py").write_text(
        "import multiprocessing, os\n"
        "if multiprocessing.parent_process() and os.path.exists('broken'):\n"
        "    raise OSError('no GPU')\n"
        "open(f'imported-{os.getpid()}', 'w').close()\n"
        "def work(_): return os.getpid()\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    handler = "python:imported_in_workers:work"

    async with Rig("", handler=handler) as rig:
        await be_ready(rig.workers, rig.cluster, "test: cluster a")
        warm = {int(path.name.rpartition("-")[2]) for path in tmp_path.glob("imported-*")}
        warm.discard(os.getpid())
        assert len(warm) == 2
        assert await rig.result(None) in warm
        (tmp_path / "broken").touch()
        other = Rig("", handler=handler)
        with pytest.raises(InputError, match=r"cannot import .*: OSError: no GPU"):
            await be_ready(other.workers, other.cluster, "test: cluster a")
        await other.workers.close()
        other.timers.close()


async def test_a_handler_that_eats_memory_fails_alone(require):
    """MemoryError, in one line; what it left behind goes with its process, so that the next
    request finds as much as the first."""
    require(sys.platform == "linux", "a system that heeds RLIMIT_DATA")

    async with Rig("eat", servers=1, memory_limit_bytes=MEMORY_LIMIT_BYTES) as rig:
        event = await rig.end(rig.start(1_000))
        assert (event.outcome, event.problem) == (Outcome.FAILED, "MemoryError")
        assert await rig.result(50) > 0


async def test_a_result_that_takes_more_than_there_is(require):
    """It fits once but not twice, which sending it takes: failed, or dead, but never stuck."""
    require(sys.platform == "linux", "a system that heeds RLIMIT_DATA")

    async with Rig("huge", servers=1, memory_limit_bytes=80 * 1024 * 1024) as rig:
        event = await rig.end(rig.start(1))
        assert event.outcome is Outcome.FAILED
        assert "\n" not in event.problem


async def test_a_process_that_runs_on_is_killed_and_replaced():
    """So long after it was stopped and not before; its neighbor notices nothing."""
    async with Rig("hang", kill_after_ms=100) as rig:
        other = rig.start(0.4)
        began_s = time.monotonic()
        ref = rig.start(60)
        stopped_s = time.monotonic()
        rig.workers.stop(ref)
        event = await rig.end(ref)
        ended_s = time.monotonic()
        assert event.outcome is Outcome.CANCELLED
        assert ended_s - stopped_s >= 0.1
        assert 0.1 <= event.service_s <= ended_s - began_s
        assert await rig.result(0) > 0
        assert (await rig.end(other)).outcome is Outcome.DONE


async def test_what_is_not_wanted_returns_in_time_and_signals_are_the_nodes_business():
    """What returns in time is not killed, nor is what comes next. A terminal sends signals to every
    process of a command, and service managers do: what runs is done, in the same process."""
    async with Rig("hang", servers=1, kill_after_ms=100) as rig:
        process = await rig.result(0)
        ref = rig.start(0.01)
        rig.workers.stop(ref)
        assert (await rig.end(ref)).outcome is Outcome.DONE
        ref = rig.start(0.15)
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(process, number)
        assert (await rig.end(ref)).outcome is Outcome.DONE
        assert await rig.result(0) == process


async def test_a_process_whose_work_is_not_wanted_runs_on_where_nothing_else_is_said():
    """The rule for handlers: its server is busy until it returns."""
    async with Rig("hang", servers=1) as rig:
        process = await rig.result(0)
        ref = rig.start(0.05)
        rig.workers.stop(ref)
        assert (await rig.end(ref)).outcome is Outcome.DONE
        assert await rig.result(0) == process


async def test_a_process_that_dies_takes_only_its_own_request():
    async with Rig("hang") as rig:
        await be_ready(rig.workers, rig.cluster, "test: cluster a")
        other = rig.start(0.3)
        victim = await rig.result(0)
        event = await rig.end(rig.start(-1))
        problem = "the worker process died (signal 9)"
        assert (event.outcome, event.problem) == (Outcome.FAILED, problem)
        assert await rig.result(0) != victim
        assert (await rig.end(other)).outcome is Outcome.DONE


async def test_a_process_that_dies_is_noticed_where_the_handlers_module_ignores_ends():
    """The system tells nobody then, and forgets the process; the node does not wait for it."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        async with Rig("hang", servers=1) as rig:
            victim = await rig.result(0)
            async with asyncio.timeout(CHILD_S / 2):
                event = await rig.end(rig.start(-1))
            assert event.problem == "the worker process died (how is not known)"
            assert await rig.result(0) != victim
            closing_s = time.monotonic()
        assert time.monotonic() - closing_s < 0.9 * JOIN_S
    finally:
        signal.signal(signal.SIGCHLD, before)


async def test_a_process_that_dies_and_leaves_a_child_is_replaced():
    """The child holds the pipe and the sentinel: its request ends all the same."""
    async with Rig("fork", servers=1) as rig:
        await rig.result([0, "return"])
        async with asyncio.timeout(CHILD_S / 2):
            event = await rig.end(rig.start([CHILD_S, "die"]))
        problem = "the worker process died (exit status 7)"
        assert (event.outcome, event.problem) == (Outcome.FAILED, problem)
        assert await rig.result([0, "return"]) > 0


async def test_a_killed_process_that_leaves_a_child():
    """Seen off at once, by the kill timer as by the end of the node; the loop is not held up."""
    async with Rig("fork", servers=2, kill_after_ms=300) as rig:
        assert await rig.result([CHILD_S, "return"]) > 0
        ref = rig.start([CHILD_S, "hang"])
        rig.workers.stop(ref)
        async with asyncio.timeout(CHILD_S / 2):
            assert (await rig.end(ref)).outcome is Outcome.CANCELLED
        assert await rig.result([CHILD_S, "return"]) > 0
        rig.start([CHILD_S, "hang"])
        closing_s = time.monotonic()
        closing = asyncio.ensure_future(rig.workers.close())
        await asyncio.wait([closing], timeout=0)
        assert time.monotonic() - closing_s < JOIN_S / 2, "the loop was held up"
        await closing
        assert time.monotonic() - closing_s < 0.9 * JOIN_S


async def test_a_child_that_comes_back_answers_for_nobody():
    """What it returns would be taken for the next request's result."""
    async with Rig("fork_back", servers=1) as rig:
        assert [await rig.result(n) for n in range(3)] == [[n, True] for n in range(3)]


async def test_what_returned_before_the_kill_keeps_its_result():
    """The timer rings when the call has ended and the node's loop has not yet been told."""
    async with Rig("hang", servers=1, kill_after_ms=60_000) as rig:
        await rig.result(0)
        ref = rig.start(0.02)
        rig.workers.stop(ref)
        until_s = time.monotonic() + 20.0
        while rig.workers._processes._calls and time.monotonic() < until_s:
            os.sched_yield()  # not a turn of the loop, which must not see the end yet
        rig.workers._kill(ref)
        assert (await rig.end(ref)).outcome is Outcome.DONE
