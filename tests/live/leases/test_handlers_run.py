"""Handlers of leases as they are loaded, started, cancelled and seen off; and what a member is made
with, and leaves behind. Without Redis."""

import asyncio
import threading

import pytest

from spillover.core.leases import events as ev
from spillover.core.leases.records import Joined
from spillover.live.leases.group import LeaseGroup
from spillover.live.leases.handlers import EXPECTED, HandlerRunner, load_handler
from spillover.live.leases.renewal.clock import lease_now_s
from spillover.live.leases.renewal.held import HeldLeases
from spillover.live.leases.renewal.lease import Fenced, current_lease
from spillover.model.errors import InputError
from support import waiting
from support.loop import turn, until
from support.scripted_redis import bulk, rows, scripted_redis

NOWHERE = "redis://127.0.0.1:1/0"


# --- which function ---------------------------------------------------------------------------

NOTHING = "nothing of which would run: leave out its `yield`"
HANDLERS = """
def handle(partition, epoch, stop_event): ...
def more(partition, epoch, stop_event, *rest): ...
def less(partition, epoch): ...
class Called:
    def __call__(self, one, two): ...
called = Called()
def one_by_one(partition, epoch, stop_event):
    yield partition
async def one_by_one_async(partition, epoch, stop_event):
    yield partition
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "handlers_to_load.py").write_text(HANDLERS, encoding="utf-8")
    return "handlers_to_load"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("python:{}:less", f"--handler: {EXPECTED}; less takes others"),
        ("python:{}:called", f"--handler: {EXPECTED}; Called takes others"),
        ("python:{}:one_by_one", f"--handler: {EXPECTED}; one_by_one is a generator, {NOTHING}"),
        (
            "python:{}:one_by_one_async",
            f"--handler: {EXPECTED}; one_by_one_async is a generator, {NOTHING}",
        ),
        ("python:{}:none", "--handler: expected a function 'none' in module 'handlers_to_load'"),
        ("http:{}", f"--handler: {EXPECTED}, got 'http:handlers_to_load'"),
    ],
)
def test_what_is_no_handler_is_told_in_one_line(module, name, said):
    with pytest.raises(InputError) as raised:
        load_handler(name.format(module), "--handler")
    assert str(raised.value) == said


# --- its life ---------------------------------------------------------------------------------


class Runs:
    """Handlers of two partitions, and how they ended."""

    def __init__(self, handler):
        self.ended = []
        self.leases = HeldLeases(2)
        self.runner = HandlerRunner(handler, lambda lease, why: self.ended.append((lease, why)))
        self.granted = [self.leases.grant(p, 7 + p, lease_now_s() + 600.0) for p in (0, 1)]
        for lease in self.granted:
            self.runner.start(lease)

    async def until_ended(self, count=2):
        await until(lambda: len(self.ended) == count)
        assert self.runner._running.keys() == {
            (lease.partition, lease.epoch)
            for lease in self.granted
            if lease not in [ended for ended, _ in self.ended]
        }
        await turn(0)
        assert len(self.runner._tasks) in {0, 2 - count}
        self.leases._memory.close()
        return [why for _, why in sorted(self.ended, key=lambda one: one[0].partition)]


async def test_a_handler_on_a_thread_keeps_no_process_alive():
    seen = []

    def handle(partition, epoch, stop_event):
        thread = threading.current_thread()
        lease = current_lease()
        seen.append((partition, epoch, thread.name, thread.daemon))
        assert (lease.partition, lease.epoch, lease.stop_event) == (partition, epoch, stop_event)

    assert await Runs(handle).until_ended() == [None, None]
    assert sorted(seen) == [(0, 7, "partition-0", True), (1, 8, "partition-1", True)]


async def test_a_failure_is_told_with_its_traceback(caplog):
    async def never_awaited():
        raise AssertionError

    def handle(partition, *_):
        if partition:
            return never_awaited()
        raise ValueError("x" * 1_000_000)

    cut, returned = await Runs(handle).until_ended()
    assert cut.startswith("ValueError: xxx")
    assert returned == "TypeError: the handler returned a coroutine: nothing of it has run"
    said = {one.msg.fields["partition"]: one.msg.fields for one in caplog.records}
    assert "in handle" in said[0]["traceback"]
    assert len(said[0]["traceback"]) < 50_000


async def test_what_a_handler_on_a_thread_raised_is_its_problem_unless_it_was_fenced():
    def handle(partition, epoch, _):
        raise SystemExit(3) if partition else Fenced(partition, epoch, "seen")

    assert await Runs(handle).until_ended() == [None, "SystemExit: 3"]


async def test_cancelling_ends_one_handler_on_the_loop_and_fencing_all_of_them():
    """That it was cancelled is its own fault only where its lease lasts."""

    async def handle(partition, epoch, stop_event):
        await asyncio.Event().wait()

    both = Runs(handle)
    await turn(0)
    both.runner.cancel(0, 8)
    both.runner.cancel(1, 7)
    await turn()
    assert both.ended == []
    both.runner.cancel(0, 7)
    await until(lambda: list(both.runner._tasks) == [(1, 8)])
    assert both.ended == [(both.granted[0], "it cancelled itself")]
    both.runner.fence_all()
    assert (both.granted[0].is_over, both.granted[1].is_over) == (False, True)
    assert await both.until_ended() == ["it cancelled itself", None]


async def test_where_there_is_no_room_for_a_thread_the_handler_has_failed():
    """As if it had raised, and never before whoever started it goes on."""
    threading.stack_size(1 << 62)
    try:
        both = Runs(lambda *_: None)
    finally:
        threading.stack_size(0)
    assert both.ended == []
    told = await both.until_ended()
    assert [why.startswith("RuntimeError: ") for why in told] == [True, True]


# --- what a member is made with ---------------------------------------------------------------


def member(node="a", kind=LeaseGroup, url=NOWHERE, **given):
    given = {"partitions": 3, "handler": lambda *_: None, **given}
    return kind(url, "g", node=node, **given)


@pytest.mark.parametrize("rule", ["guarded", "blog"])
async def test_each_member_is_another_process_of_its_id(rule):
    joined = rows(b":1\r\n", b":40\r\n", bulk("e"))
    with scripted_redis(lambda words: b":0\r\n" if words[0] == "HEXISTS" else joined) as server:
        for _ in range(2):
            parts = member(url=server.url, rule=rule)._parts
            answer = await parts.operations[ev.AskJoin](ev.AskJoin(0, 0.0))
            assert answer == Joined(True, 40.0, "e")
            if rule == "blog":
                await parts.operations[ev.AskMarked](ev.AskMarked(0, 0.0, 1))
            await parts.close()
            await until(lambda: server.open == 0)
    (node, first), (other, second) = (
        words[-3:-1] for words in server.asked if words[0] == "EVALSHA"
    )
    assert node == other == "a"
    assert first != second
    assert len(first) >= 16


async def test_a_member_that_is_given_up_while_it_enters_leaves_nothing_behind():
    before, tasks = set(threading.enumerate()), asyncio.all_tasks()
    one = member(renewer="thread")
    entering = asyncio.create_task(one.__aenter__())
    await until(lambda: one.machine.is_down)
    assert one.renewal == "thread"
    waiting_for_it = asyncio.create_task(one.wait())
    await turn()
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    await waiting_for_it  # it has been given up, as Redis never answered
    assert asyncio.all_tasks() == tasks
    assert one.loop_lag._timer.cancelled()
    assert one.renewal == ""
    await one.drain()
    waiting.until(lambda: set(threading.enumerate()) <= before)
