"""What keeps something renewing, piece by piece: what it starts and when again, what it hears and
hands on, how what it started ends. Nothing here asks a Redis."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from contextlib import contextmanager

import pytest

from spillover.core.leases import events as ev
from spillover.core.leases.records import Renewed
from spillover.live.leases.renewal.clock import lease_now_s
from spillover.live.leases.renewal.memory import LOOP, LeaseMemory
from spillover.live.leases.renewal.renewer import LeaseRenewer
from spillover.live.leases.renewal.settings import make_plan
from spillover.live.leases.renewal.spawn import THREAD, Worker
from spillover.live.leases.renewal.supervisor import RenewerEnded, RenewerStarted, Supervisor
from spillover.model.lease_times import LeaseTimes
from support.loop import turn
from support.waiting import until

NOWHERE = "redis://127.0.0.1:1/0"
TIMES = LeaseTimes(
    normal_lease_ms=600.0, max_lease_ms=4_000.0, max_shutdown_ms=300.0, min_grab_ms=50.0,
    held_delay_ms=1.0,
)  # fmt: skip
TICK_S = 0.05


def plan_of(times=TIMES, **given):
    return make_plan(NOWHERE, "g", 2, times, node="a", incarnation="i", **given)


@pytest.fixture
def memory():
    memory = LeaseMemory(2)
    yield memory
    memory.close()


class Looked:
    """A supervisor that watches over nothing yet, and what it told."""

    def __init__(self, memory, mode="thread", kind=Supervisor):
        self.messages, self.events = [], []
        self.supervisor = kind(
            plan_of(), memory, TICK_S, mode=mode,
            on_message=self.messages.append, on_event=self.events.append,
        )  # fmt: skip


@pytest.fixture
def looked(memory):
    made = Looked(memory)
    yield made
    made.supervisor.close()


@contextmanager
def linked():
    """A worker that is nobody, and what it says through."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Worker(THREAD, ours, None), theirs


# --- what is started --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "deaths", "kind", "why"),
    [
        ("thread", 0, "thread", "asked for"),
        ("auto", 0, "thread", "no process could be started: no Python to start"),
        ("auto", 2, "thread", "no process could be started: no Python to start"),
        ("auto", 3, "thread", "3 processes in a row ended as soon as they began"),
        ("process", 3, None, "no process could be started: no Python to start"),
    ],
)
def test_a_thread_renews_where_no_process_does(looked, monkeypatch, mode, deaths, kind, why):
    """Unless a process it must be; then it is tried again, and told."""
    monkeypatch.setattr(sys, "executable", "")
    one = looked.supervisor
    one._mode, one._young_deaths = mode, deaths
    first = one.worker
    started = one._start()
    assert one._why == why
    assert (started and started.kind) == kind
    if started is None:
        assert looked.events == [RenewerEnded(why)]
    else:
        assert looked.events == []
        assert one.worker is started
        first.end()


def test_what_takes_the_place_of_another_renews_if_that_had_begun(looked, memory):
    """And says nothing of before."""
    one, words = looked.supervisor, []

    def started():
        ours, theirs = socket.socketpair()
        words.append(theirs)
        return Worker(THREAD, ours, None)

    one.worker.end()
    one._started = started
    one._unread, one._is_young = b"half a li", False
    first = one._start()
    assert (one._unread, one._is_young) == (b"", True)
    one.begin()
    first.end()
    second = one._start()
    one.end()
    second.end()
    one._start().end()
    assert [theirs.recv(99) for theirs in words] == [b"b", b"be", b""]
    for theirs in words:
        theirs.close()


class Dying(Supervisor):
    """Whatever it starts ends as soon as it has said `says`."""

    says = b""

    def _started(self):
        ours, theirs = socket.socketpair()
        with theirs:
            theirs.sendall(self.says)
        return Worker("process", ours, None)


class Waits(threading.Event):
    """Notes how long is waited, and ends that after a few times."""

    def __init__(self, times):
        super().__init__()
        self.asked_s = []
        self._times = times

    def wait(self, timeout=None):
        self.asked_s.append(timeout)
        if len(self.asked_s) == self._times:
            self.set()
        return self.is_set()


def test_what_ends_as_soon_as_it_began_is_started_again_ever_later(memory):
    """After twice a twentieth of a second, and up to half a period: 0.3 s."""
    looked = Looked(memory, kind=Dying)
    one = looked.supervisor
    one._closing = Waits(4)
    one._run()
    assert one._closing.asked_s == [0.1, 0.2, 0.3, 0.3]
    kinds = [type(event) for event in looked.events]
    assert kinds == [RenewerStarted, RenewerEnded] * 4
    assert looked.events[1] == RenewerEnded("a thread")
    assert one._young_deaths == 4


def test_what_has_renewed_before_it_ended_is_replaced_at_once(memory):
    """However often."""

    class Talks(Dying):
        says = b'{"hung": []}\n'

    looked = Looked(memory, kind=Talks)
    one = looked.supervisor
    one._closing = Waits(1)
    handed_on = looked.messages.append

    def counted(message):
        handed_on(message)
        if len(looked.messages) == 5:
            one._closing.set()

    one._on_message = counted
    one._run()
    assert one._closing.asked_s == []
    assert looked.messages == [{"hung": []}] * 5
    assert one._young_deaths == 0


def test_where_nothing_can_be_started_it_is_tried_again_soon(memory, monkeypatch):
    monkeypatch.setattr(sys, "executable", "")
    looked = Looked(memory, mode="process")
    one = looked.supervisor
    one._closing = Waits(3)
    one._run()
    assert one._closing.asked_s == [0.05] * 3
    told = "no process could be started: no Python to start"
    assert looked.events == [RenewerEnded(told)] * 4
    one.close()


# --- what it says -----------------------------------------------------------------------------


def test_what_is_said_is_heard_line_by_line(looked):
    """Half a line waits for its rest; the end of a link is one."""
    one = looked.supervisor
    with linked() as (worker, theirs):
        assert one._is_young
        theirs.sendall(b'{"a": 1}\n{"b"')
        assert one._read(worker)
        assert (looked.messages, one._is_young) == ([{"a": 1}], False)
        theirs.sendall(b": 2}\n")
        assert one._read(worker)
        theirs.sendall(b'{"c": 3}\n')
        one._closing.set()
        assert not one._read(worker), "it is closing"
        one._closing.clear()
        theirs.close()
        assert not one._read(worker)
        worker.link.close()
        assert not one._read(worker)
    assert looked.messages == [{"a": 1}, {"b": 2}, {"c": 3}]


def test_the_end_of_renewals_is_told_once_to_whoever_asked_for_it(looked):
    """Not to who began anew meanwhile; at the latest when whatever renewed has ended."""
    one = looked.supervisor

    def ended():
        with linked() as (worker, theirs):
            theirs.sendall(b'{"ended": true}\n')
            one._read(worker)
        told = [event for event in looked.events if isinstance(event, ev.RenewalsEnded)]
        looked.events.clear()
        return len(told)

    assert ended() == 0
    one.end()
    assert (ended(), ended()) == (1, 0)
    one.end()
    one.begin()
    assert ended() == 0
    one.end()
    one._see_off(one.worker, at_once=True)
    assert looked.events == [RenewerEnded("stood still"), ev.RenewalsEnded()]
    assert one.worker is None


def test_what_ends_because_it_is_closed_is_told_nobody(looked):
    one = looked.supervisor
    one.end()
    one.close()
    assert one.worker is None
    with linked() as (worker, _):
        one._see_off(worker, at_once=False)
    assert looked.events == []
    one.close()


def test_once_it_is_closed_nothing_of_it_runs(memory):
    """Neither who watches nor who renewed; what was said before that was heard."""
    before = set(threading.enumerate())
    looked = Looked(memory)
    one = looked.supervisor
    one.watch()
    one.begin()
    one.end()
    until(lambda: ev.RenewalsEnded() in looked.events)
    assert one._thread.daemon, "a member that is never closed keeps no process alive"
    one.close()
    assert one.worker is None
    assert not one._thread.is_alive()
    until(lambda: set(threading.enumerate()) <= before)
    assert looked.events == [RenewerStarted("thread", None, "asked for"), ev.RenewalsEnded()]


# --- the member's side ------------------------------------------------------------------------


@contextmanager
def renewer_of(times=TIMES, **given):
    """One that renews nothing yet, and what it told."""
    told, lags = [], []
    plan = plan_of(times, **given)
    renewer = LeaseRenewer(plan, told.append, on_lag=lags.append, mode="thread")
    try:
        yield renewer, told, lags
    finally:
        renewer.close()


@pytest.mark.parametrize(
    ("times", "max_progress_ms", "tick_s"),
    [
        (TIMES, None, 0.075),
        (TIMES, 400.0, 0.05),
        (TIMES, 1e6, 0.075),
        (LeaseTimes(), None, 0.5),
        (LeaseTimes(max_lease_ms=2e5, max_shutdown_ms=1.0), 1e6, 0.5),
        (LeaseTimes(normal_lease_ms=660.0, max_lease_ms=2_000.0, max_shutdown_ms=1.0,
                    min_grab_ms=9.0, held_delay_ms=1.0), None, 0.0825),
    ],
)  # fmt: skip
def test_how_often_it_looks_after_handlers(times, max_progress_ms, tick_s):
    """An eighth of a period or of what handlers may take, half a margin, half a second."""
    with renewer_of(times, max_progress_ms=max_progress_ms) as (renewer, _, _):
        assert renewer._tick_s == pytest.approx(tick_s, rel=1e-12)
        assert (renewer.kind, renewer.pid) == ("thread", None)
        worker, renewer._supervisor.worker = renewer._supervisor.worker, None
        assert (renewer.kind, renewer.pid) == ("", None)
        renewer._supervisor.worker = worker


def test_handlers_are_told_to_stop_a_margin_before_the_end_and_looked_after_in_time():
    """0.4 s before it, at the next look: in 0.075 s, or sooner if one ends sooner."""
    with renewer_of() as (renewer, _, _):
        now_s = lease_now_s() + 100.0
        first = renewer.grant(0, 1, now_s + 3_600.0)
        assert renewer._tell_to_stop(now_s) == 0.075
        second = renewer.grant(1, 1, now_s + 0.4 + 0.03125)
        assert renewer._tell_to_stop(now_s) == pytest.approx(0.03125, rel=1e-6)
        assert renewer._tell_to_stop(now_s + 0.031) == 0.001
        assert (first.was_told, second.was_told) == (False, False)
        assert renewer._tell_to_stop(now_s + 0.032) == 0.075
        assert (first.was_told, second.was_told) == (False, True)
        assert not second.is_over
        second.fence()
        second.was_told = False
        renewer._tell_to_stop(now_s + 0.04)
        assert not second.was_told, "what is over has been told already"
        renewer.close()
        assert first.is_over


def test_what_came_of_a_renewal_is_told_with_how_late_it_was():
    """Each handler that hangs is told of once; one that hangs anew is told of anew."""
    with renewer_of() as (renewer, told, lags):
        told.clear()
        renewer._heard(
            {
                "sent_s": 5.0, "late_s": 0.25, "era": "e", "flags": "012", "displaced": True,
                "pairs": [[0, 7], [1, 8], [3, 9]], "hung": [[3, 9], [1, 8]],
            }
        )  # fmt: skip
        answer = Renewed("e", [(0, False, False), (1, True, False), (3, True, True)], True)
        answered = ev.RenewalAnswered(5.0, [(0, 7), (1, 8), (3, 9)], answer)
        assert told == [answered, ev.HandlerHung(1, 8), ev.HandlerHung(3, 9)]
        assert renewer._plan.era == "e", "whoever renews next knows it"
        told.clear()
        renewer._heard({"hung": [[3, 9]]})
        renewer._heard({"hung": [[1, 8], [3, 9]]})
        assert told == [ev.HandlerHung(1, 8)]
        told.clear()
        renewer._heard({"sent_s": 6.0, "late_s": 0.5, "problem": "away", "refused": False})
        assert told == [ev.RenewalFailed("away", 6.0)]
        assert lags == [0.25, 0.5]


def test_handlers_on_a_loop_are_beaten_for_until_it_is_closed():
    async def main():
        with renewer_of() as (renewer, _, _):
            loop = asyncio.get_running_loop()
            renewer.grant(0, 1, lease_now_s() + 60.0, LOOP)
            renewer.beat_on(loop)
            memory, beats = renewer._memory, set()
            async with asyncio.timeout(20.0):
                while len(beats) < 3:
                    beats.add(memory.silent_s(0, 0.0))
                    await turn(0.01)
            beater, watcher = renewer._beater, renewer._watcher
            assert (watcher.name, watcher.daemon) == ("lease-watch", True)
            renewer.close()
            assert not watcher.is_alive()
            assert beater.cancelled()
            renewer.beat_on(loop)
            assert renewer._beater is beater
            renewer.close()

    asyncio.run(main())
