"""Handlers of leases as they are loaded, started, cancelled and seen off; and what a member is made
with, and leaves behind. Without Redis."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from spillover.core.leases import events as ev
from spillover.core.leases.records import Joined
from spillover.live.leases.group import LeaseGroup
from spillover.live.leases.handlers import EXPECTED, HandlerRunner, check_handler, load_handler
from spillover.live.leases.renewal.clock import lease_now_s
from spillover.live.leases.renewal.held import HeldLeases
from spillover.live.leases.renewal.lease import Fenced, current_lease
from spillover.live.leases.store import RedisLeaseStore
from spillover.live.leases.thread import LeaseGroupThread
from spillover.model.errors import InputError
from spillover.model.lease_times import LeaseTimes
from support import waiting
from support.loop import turn, until
from support.scripted_redis import bulk, rows, scripted_redis

NOWHERE = "redis://127.0.0.1:1/0"
LIMIT_S = 20.0


def runs(main):
    async def limited():
        async with asyncio.timeout(LIMIT_S):
            await main()

    asyncio.run(limited())


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


def test_a_handler_is_a_function_that_takes_three(module):
    assert load_handler(f"python:{module}:handle", "--handler").__name__ == "handle"
    assert load_handler(f"python:{module}:more", "--handler").__name__ == "more"


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


def test_a_function_that_does_not_tell_what_it_takes_is_believed():
    """Some of Python's own."""
    check_handler(max, "handler")


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


def test_a_handler_on_a_thread_keeps_no_process_alive():
    """Each has one of its own, whose name tells the partition, and its lease."""
    seen = []

    def handle(partition, epoch, stop_event):
        thread = threading.current_thread()
        lease = current_lease()
        seen.append((partition, epoch, thread.name, thread.daemon))
        assert (lease.partition, lease.epoch, lease.stop_event) == (partition, epoch, stop_event)

    async def main():
        assert await Runs(handle).until_ended() == [None, None]

    runs(main)
    assert sorted(seen) == [(0, 7, "partition-0", True), (1, 8, "partition-1", True)]


def test_a_failure_is_told_with_its_traceback(caplog):
    """Also that of a handler which a decorator has made return what nobody awaits."""

    async def never_awaited():
        raise AssertionError

    def handle(partition, *_):
        if partition:
            return never_awaited()
        raise ValueError("x" * 1_000_000)

    async def main():
        cut, returned = await Runs(handle).until_ended()
        assert cut.startswith("ValueError: xxx")
        assert returned == "TypeError: the handler returned a coroutine: nothing of it has run"

    runs(main)
    said = {one.msg.fields["partition"]: one.msg.fields for one in caplog.records}
    assert "in handle" in said[0]["traceback"]
    assert len(said[0]["traceback"]) < 50_000


def test_what_a_handler_on_a_thread_raised_is_its_problem_unless_it_was_fenced():
    def handle(partition, epoch, _):
        raise SystemExit(3) if partition else Fenced(partition, epoch, "seen")

    async def main():
        assert await Runs(handle).until_ended() == [None, "SystemExit: 3"]

    runs(main)


def test_cancelling_ends_one_handler_on_the_loop_and_fencing_all_of_them():
    """That it was cancelled is its own fault only where its lease lasts."""

    async def handle(partition, epoch, stop_event):
        await asyncio.Event().wait()

    async def main():
        both = Runs(handle)
        await turn(0)
        both.runner.cancel(0, 8)
        both.runner.cancel(1, 7)
        await turn()
        assert both.ended == []
        both.runner.cancel(0, 7)
        await until(lambda: both.ended)
        assert both.ended == [(both.granted[0], "it cancelled itself")]
        assert list(both.runner._tasks) == [(1, 8)]
        both.runner.fence_all()
        assert (both.granted[0].is_over, both.granted[1].is_over) == (False, True)
        assert await both.until_ended() == ["it cancelled itself", None]

    runs(main)


def test_where_there_is_no_room_for_a_thread_the_handler_has_failed():
    """As if it had raised, and never before whoever started it goes on."""

    async def main():
        threading.stack_size(1 << 62)
        try:
            both = Runs(lambda *_: None)
        finally:
            threading.stack_size(0)
        assert both.ended == []
        told = await both.until_ended()
        assert [why.startswith("RuntimeError: ") for why in told] == [True, True]

    runs(main)


def test_a_handler_that_outlives_its_member_ends_without_a_word(caplog):
    free, done = threading.Event(), threading.Event()
    threads = []

    def handle(*_):
        threads.append(threading.current_thread())
        free.wait(LIMIT_S)
        done.set()

    async def main():
        Runs(handle)
        await until(lambda: len(threads) == 2)

    runs(main)
    free.set()
    for thread in threads:
        thread.join(LIMIT_S)
    assert done.is_set()
    assert caplog.records == []


# --- what a member is made with ---------------------------------------------------------------


def member(node="a", kind=LeaseGroup, url=NOWHERE, **given):
    given = {"partitions": 3, "handler": lambda *_: None, **given}
    return kind(url, "g", node=node, **given)


def test_a_seed_says_how_a_member_draws_and_ids_tell_members_apart():
    """Each its own way; without one, each anew."""

    def draws(one):
        return one.machine._agenda.random.random()

    assert draws(member(seed=3)) == draws(member(seed=3))
    told = [draws(member(seed=3)), draws(member("b", seed=3)), draws(member(seed=4))]
    told += [draws(member()), draws(member())]
    assert len(set(told)) == 5
    drawn = member(seed=0)
    assert draws(drawn) == draws(member(seed=0))


@pytest.mark.parametrize("rule", ["guarded", "blog"])
def test_each_member_is_another_process_of_its_id(rule):
    """By whatever rule: it joins as itself, by a mark that no other one has, and hangs up."""

    async def main():
        for _ in range(2):
            parts = member(url=server.url, rule=rule)._parts
            answer = await parts.operations[ev.AskJoin](ev.AskJoin(0, 0.0))
            assert answer == Joined(True, 40.0, "e")
            if rule == "blog":
                await parts.operations[ev.AskMarked](ev.AskMarked(0, 0.0, 1))
            await parts.close()
            await until(lambda: server.open == 0)

    joined = rows(b":1\r\n", b":40\r\n", bulk("e"))
    with scripted_redis(lambda words: b":0\r\n" if words[0] == "HEXISTS" else joined) as server:
        runs(main)
    (node, first), (other, second) = (
        words[-3:-1] for words in server.asked if words[0] == "EVALSHA"
    )
    assert node == other == "a"
    assert first != second
    assert len(first) >= 16


def test_what_renews_knows_all_that_the_store_does():
    """It speaks for the same process of the same member of the same group."""
    events, lags = [], []

    async def main():
        given = {"balance": "load", "max_progress_ms": 2_500.0, "renewer": "thread"}
        parts = member(url=server.url, **given)._parts
        await parts.operations[ev.AskJoin](ev.AskJoin(0, 0.0))
        leases = parts.make_leases(events.append, lags.append)
        (joined,) = server.asked
        incarnation, longest = joined[-2:]
        assert longest == "180000"
        plan = leases._plan
        told = ["3", "guarded", "load", longest, "a", incarnation, longest]
        assert plan.arguments[1:] == told
        assert (plan.max_progress_s, plan.partitions, leases.kind) == (2.5, 3, "thread")
        assert joined[3:7] == plan.keys
        leases._heard({"sent_s": 1.0, "late_s": 0.5, "problem": "away"})
        leases.close()
        await parts.close()

    with scripted_redis(lambda _: rows(b":1\r\n", b":40\r\n", bulk("e"))) as server:
        runs(main)
    assert events[-1] == ev.RenewalFailed("away", 1.0)
    assert lags == [0.5]


def test_listening_goes_to_the_group_and_its_pauses_are_of_each_process_alone():
    """Many that failed together do not come back together."""
    ways = dict.fromkeys(("on_challenge", "on_allocated", "on_resync"), print)
    hints = [member(seed=1)._parts.make_hints(**ways) for _ in range(2)]
    assert {one._address.url for one in hints} == {NOWHERE}
    channels = ["{spillover:g}:grab-lease", "{spillover:g}:allocated-lease"]
    assert [list(one._reactions) for one in hints] == [channels] * 2
    assert hints[0]._random.random() != hints[1]._random.random()


def test_a_store_waits_for_half_a_renewal_period_at_most():
    """And never longer than 5 s, unless it is told how long."""
    times = LeaseTimes(normal_lease_ms=900.0, min_grab_ms=200.0)

    def waits_s(times, **given):
        return RedisLeaseStore(NOWHERE, "g", 1, times, **given)._link._timeout_s

    assert waits_s(times) == 0.45
    assert waits_s(LeaseTimes()) == 5.0
    assert waits_s(LeaseTimes(), timeout_s=0.5) == 0.5


@pytest.mark.parametrize("incarnation", ["", "a|b"])
def test_the_mark_of_a_process_fits_into_values_too(incarnation):
    async def main():
        store = RedisLeaseStore(NOWHERE, "g", 1, LeaseTimes())
        with pytest.raises(InputError, match="lease group: incarnation"):
            await store.join("a", incarnation)
        assert store.round_trips == 0

    runs(main)


def test_a_member_that_is_given_up_while_it_enters_leaves_nothing_behind():
    """No thread, no task, no timer of its loop's lag; leases of nobody."""
    before = set(threading.enumerate())

    async def main():
        one = member(renewer="thread")
        entering = asyncio.create_task(one.__aenter__())
        await until(lambda: one.machine.is_down)
        assert one.renewal == "thread"
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert one.loop_lag._timer.cancelled()
        assert one.renewal == ""
        await one.drain()

    runs(main)
    waiting.until(lambda: set(threading.enumerate()) <= before)


def test_a_member_that_was_told_to_leave_before_it_entered_leaves(caplog):
    """Without a word with Redis, in a thread of its own too."""
    caplog.set_level(logging.ERROR)

    async def main():
        one = member(renewer="thread")
        assert not one.draining
        one.drain_soon()
        assert one.draining
        async with one:
            await one.wait()
            assert one.state == "finished"

    runs(main)
    one = member(kind=LeaseGroupThread, renewer="thread")
    assert (one.held, one.state) == ({}, "new")
    assert not one.wait(0.0)
    one._member.drain_soon()
    with one:
        assert one.wait(LIMIT_S)
        assert one._thread.daemon
    assert not one._thread.is_alive()
    assert (one.held, one.state) == ({}, "finished")
    assert caplog.records == []
