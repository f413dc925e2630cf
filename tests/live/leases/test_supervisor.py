"""What keeps something renewing, piece by piece: what it starts and when again, what it hears and
hands on, how what it started ends. Nothing here asks a Redis."""

import socket
import sys
import threading
from contextlib import contextmanager

import pytest

from spillover.core.leases import events as ev
from spillover.live.leases.renewal.clock import lease_now_s
from spillover.live.leases.renewal.renewer import LeaseRenewer
from spillover.live.leases.renewal.settings import make_plan
from spillover.live.leases.renewal.spawn import THREAD, Worker
from spillover.live.leases.renewal.supervisor import RenewerEnded, RenewerStarted, Supervisor
from spillover.model.lease_times import LeaseTimes

NOWHERE = "redis://127.0.0.1:1/0"
TIMES = LeaseTimes(
    normal_lease_ms=600.0, max_lease_ms=4_000.0, max_shutdown_ms=300.0, min_grab_ms=50.0,
    held_delay_ms=1.0,
)  # fmt: skip
TICK_S = 0.05


def plan_of(times=TIMES, **given):
    return make_plan(NOWHERE, "g", 2, times, node="a", incarnation="i", **given)


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


# --- what it says -----------------------------------------------------------------------------


def test_the_end_of_renewals_is_told_once_to_whoever_asked_for_it(looked):
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
