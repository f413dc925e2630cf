"""What a member and its renewer share, piece by piece, without a process or a clock: the words in
their memory, who hangs, what is said over the link, how a lease ends."""

import json
import math
import socket
import sys

import pytest

from spillover.live.leases.renewal import child
from spillover.live.leases.renewal.clock import lease_now_s
from spillover.live.leases.renewal.guard import BLOCKED_LEASES, ProgressGuard
from spillover.live.leases.renewal.lease import Fenced, Lease
from spillover.live.leases.renewal.memory import THREAD
from spillover.live.leases.renewal.parent import NoParent
from spillover.live.leases.renewal.rounds import Rounds
from spillover.live.leases.renewal.settings import make_plan
from spillover.live.leases.renewal.supervisor import Stillness
from spillover.model.errors import InputError
from spillover.model.lease_times import LeaseTimes

LEASE_S = 10.0


# --- the memory -------------------------------------------------------------------------------


def test_an_answer_renews_only_what_is_still_held_when_it_comes(memory):
    """A lease that was over by then may have been given up: it is lost, whatever Redis says."""
    plan = make_plan("redis://h", "g", 2, LeaseTimes(), node="a", incarnation="i")
    rounds = Rounds(plan, memory)
    sent_s = lease_now_s()
    memory.grant(0, 1, sent_s + 0.5, THREAD)
    memory.grant(1, 1, sent_s - 0.5, THREAD)
    assert rounds._apply([(0, 1), (1, 1)], "22", sent_s) == "20"
    assert memory.deadline_s(0, 1) == sent_s + plan.lease_s - plan.margin_s > sent_s + 0.5
    assert memory.deadline_s(1, 1) == 0.0
    assert rounds._apply([(0, 1)], "0", sent_s) == "0"
    assert memory.deadline_s(0, 1) == 0.0
    rounds.close()


# --- who hangs --------------------------------------------------------------------------------


def test_who_hung_once_hangs_for_good(memory):
    guard = ProgressGuard(memory, 2.0, LEASE_S)
    memory.grant(0, 1, 1e9, THREAD)
    memory.grant(1, 1, 1e9, THREAD)
    memory.beat(THREAD, 100.0, 9.0)
    memory.report_progress(0)
    memory.beat(THREAD, 102.0, 9.0)
    assert guard.hung(memory.held(), 102.0, 0.0) == []
    memory.beat(THREAD, 102.1, 9.0)
    assert guard.hung(memory.held(), 102.1, 0.0) == [(0, 1)]
    memory.report_progress(0)
    assert guard.hung(memory.held(), 102.1, 0.0) == [(0, 1)]
    memory.grant(0, 2, 1e9, THREAD)
    assert guard.hung(memory.held(), 102.1, 0.0) == []
    memory.grant(0, 1, 1e9, THREAD)
    assert guard.hung(memory.held(), 102.1, 0.0) == []


# --- whether a renewer stands still -----------------------------------------------------------


def looks_until_too_long(stillness, beat_s, from_s):
    """How many looks, one each 0.25 s, until a renewer that does not move stands still."""
    for count in range(1, 100):
        if stillness.is_too_long(beat_s, from_s + count * 0.25):
            return count
    raise AssertionError("it never stands still")


def test_a_renewer_stands_still_that_has_not_moved_for_two_fifths_of_a_lease():
    """4 s are 16 looks. Until it has moved for the first time it has 5 s."""
    stillness = Stillness(LEASE_S, 0.25, 7.0, 100.0)
    assert looks_until_too_long(stillness, 7.0, 100.0) == 21
    assert not stillness.is_too_long(106.0, 106.0)
    assert looks_until_too_long(stillness, 106.0, 106.0) == 17
    assert not stillness.is_too_long(111.0, 111.0)
    assert looks_until_too_long(stillness, 111.0, 111.0) == 17
    assert looks_until_too_long(Stillness(20.0, 0.25, 7.0, 100.0), 7.0, 100.0) == 33


# --- what is said -----------------------------------------------------------------------------


@pytest.fixture
def ends(memory):
    """The renewer's life on one end of a link, and the member's end of it."""
    plan = make_plan("redis://h", "g", 2, LeaseTimes(), node="a", incarnation="i")
    theirs, ours = socket.socketpair()
    with theirs, ours:
        theirs.settimeout(0.0)
        yield child.Renewal(plan, memory, theirs, NoParent()), ours


def test_a_member_that_is_not_one_renews_nothing(ends):
    renewal, ours = ends

    def heard(words):
        ours.send(words)
        assert renewal._heard()
        return renewal._due_s

    assert renewal._due_s is None
    assert heard(child.BEGIN) <= lease_now_s()
    assert heard(child.END) is None
    renewal._flush()
    assert json.loads(ours.recv(4096)) == {"ended": True}
    ours.close()
    assert not renewal._heard()


def test_what_a_busy_member_does_not_read_leaves_its_beginning_and_its_end(ends, monkeypatch):
    """The first has left in part: what follows must stand on lines of its own."""
    monkeypatch.setattr(child, "UNSAID_MAX", 5)
    renewal, ours = ends
    count, size = 12, 1 << 20
    for number in range(count):
        renewal._say({"more": "x" * size, "number": number})
        renewal._flush()
    assert len(renewal._unsaid) == child.UNSAID_MAX
    assert len(renewal._unsaid[0]) < size, "no buffer of a socket is as large"
    told = bytearray()
    while renewal._unsaid or not told.endswith(b"\n"):
        told += ours.recv(1 << 20)
        renewal._flush()
    numbers = [json.loads(line)["number"] for line in told.splitlines()]
    assert numbers == sorted(set(numbers))
    assert (numbers[0], numbers[-1]) == (0, count - 1)
    assert len(numbers) < count


@pytest.fixture
def in_vain(memory):
    """A renewer's life whose Redis is not there, and the last that it has said."""
    plan = make_plan("redis://127.0.0.1:1", "g", 2, LeaseTimes(), node="a", incarnation="i")
    theirs, ours = socket.socketpair()
    with theirs, ours:
        renewal = child.Renewal(plan, memory, theirs, NoParent())
        yield renewal, lambda: json.loads(renewal._unsaid[-1])


def test_a_renewal_that_failed_is_tried_again_long_before_the_next_is_due(in_vain):
    """A lease outlives a Redis that is away for a moment, wherever in the period that falls."""
    renewal, said = in_vain
    for _ in range(20):
        renewal._due_s = began_s = lease_now_s()
        renewal._work(began_s)
        assert "problem" in said()
        ended_s = lease_now_s()
        assert renewal._due_s <= ended_s + LeaseTimes().renewal_period_ms / 1000.0 / 8.0


def test_what_was_slept_through_is_not_held_against_handlers(ends, memory):
    """A machine that was suspended, or a renewer that had no turn: nobody could be heard."""
    renewal, _ = ends
    guard = renewal._guard = ProgressGuard(memory, 2.0, LEASE_S)
    memory.grant(0, 1, 1e9, THREAD)
    memory.beat(THREAD, 100.0, 9.0)
    memory.report_progress(0)
    renewal._looked_s = renewal._awake_since_s = 100.0
    long_s = 100.0 + 10.0 * BLOCKED_LEASES * LEASE_S
    renewal._look(long_s)
    renewal._work(long_s)
    assert renewal._unsaid == []
    assert guard.hung(memory.held(), long_s, 0.0) == [(0, 1)], "it would be else"


class Waits:
    """`select.poll` as far as a renewer uses it: notes how long is waited, and ends it."""

    def __init__(self, ours):
        self.asked_ms = []
        self._ours = ours

    def register(self, *_):
        pass

    def poll(self, wait_ms):
        self.asked_ms.append(wait_ms)
        self._ours.close()
        return [True]


class Sleeper(NoParent):
    """A member that is stopped, or gone, as a test wants it."""

    stopped = gone = False

    def is_gone(self):
        return self.gone

    def is_stopped(self):
        return self.stopped


def test_nothing_is_renewed_for_a_member_that_is_stopped_or_gone(ends, monkeypatch):
    """Its leases are to run out; and whoever is gone wants nobody to wait."""
    renewal, ours = ends
    waits, worked = Waits(ours), []
    monkeypatch.setattr(child.select, "poll", lambda: waits)
    monkeypatch.setattr(renewal, "_work", worked.append)
    parent = renewal._parent = Sleeper()
    renewal._due_s = lease_now_s() - 1.0
    parent.stopped = True
    renewal.run()
    assert (worked, waits.asked_ms) == ([], [500.0])
    parent.stopped, parent.gone = False, True
    renewal.run()
    assert (worked, waits.asked_ms) == ([], [500.0])


# --- a lease ----------------------------------------------------------------------------------


def test_a_lease_is_over_once(memory):
    told = []
    memory.grant(0, 1, lease_now_s() + 60.0, THREAD)
    memory.beat(THREAD, 100.0, 9.0)
    lease = Lease(memory, 0, 1, told.append)
    lease.progress()
    memory.beat(THREAD, 101.0, 9.0)
    assert (memory.idle_s(0), lease.is_over, lease.was_told) == (1.0, False, False)
    memory.limit(0, 1.0)
    for _ in range(2):
        with pytest.raises(Fenced, match="partition 0, epoch 1: the lease is over"):
            lease.progress()
        lease.fence()
    assert told == [lease]
    assert memory.idle_s(0) == 1.0
    assert lease.was_told
    assert lease.stop_event.is_set()
    memory.renewed(0, 1, lease_now_s() + 60.0)
    assert (lease.left_s, lease.is_over) == (0.0, True)


def test_a_lease_says_what_is_left_of_it_and_what_was_worked(memory):
    memory.grant(1, 5, lease_now_s() + 60.0, THREAD)
    lease = Lease(memory, 1, 5, lambda _: None)
    assert 30.0 < lease.left_s <= 60.0
    assert repr(lease).startswith("Lease(partition=1, epoch=5, left_s=")
    assert lease.work is None
    for amount in (2, 0, 0.5, sys.float_info.max, sys.float_info.max):
        lease.report_load(amount)
    assert lease.work == sys.float_info.max, "2.5 is lost beside it"
    for amount in (-0.5, math.inf, math.nan, "1", None):
        with pytest.raises(InputError, match=f"at least 0, got {amount!r}"):
            lease.report_load(amount)
    lease.fence()
    assert (lease.deadline_s, lease.left_s) == (0.0, 0.0)
    assert repr(lease) == "Lease(partition=1, epoch=5, left_s=0.000)"
