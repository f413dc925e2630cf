"""Renewal by a process of its own, on a real Redis: what is kept, lost, wanted, hung and told.

Members as processes that are stopped or killed, and a Redis that fails, are in
test_lease_processes.py and test_lease_redis_losses.py.
"""

import asyncio
import ctypes
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

from spillover.core.leases import events as ev
from spillover.live.leases.renewal.clock import lease_now_s
from spillover.live.leases.renewal.guard import ProgressGuard
from spillover.live.leases.renewal.lease import Fenced
from spillover.live.leases.renewal.memory import LOOP, THREAD, LeaseMemory
from spillover.live.leases.renewal.renewer import LeaseRenewer
from spillover.live.leases.renewal.settings import make_plan
from spillover.live.leases.renewal.supervisor import RenewerEnded, RenewerStarted
from spillover.live.leases.store import RedisLeaseStore
from spillover.model.lease_times import LeaseTimes
from support.loop import turn
from support.process_table import lives
from support.waiting import until

TIMES = LeaseTimes(
    normal_lease_ms=200.0,
    max_lease_ms=800.0,
    max_shutdown_ms=300.0,
    min_grab_ms=50.0,
    held_delay_ms=1.0,
)

LEASE_S = TIMES.max_lease_ms / 1000.0
ENTITLED_S = LEASE_S - TIMES.fence_margin_ms / 1000.0
LIMIT_S = 20.0


class Member:
    """What the live member does around a renewer, in short: a store, a renewer, its events."""

    def __init__(self, url, group, node="a", partitions=4, **given):
        self.node = node
        mode, times = given.pop("mode", "auto"), given.pop("times", TIMES)
        self.url, self.group, self.partitions = url, group, partitions
        plan = make_plan(url, group, partitions, times, node=node, incarnation="i", **given)
        self.events = queue.SimpleQueue()
        self.lags = []
        self.renewer = LeaseRenewer(plan, self.events.put, on_lag=self.lags.append, mode=mode)
        self.begun = False

    def ask(self, operation, *arguments):
        """One operation of the group's store, by this member unless told otherwise."""

        async def asking():
            store = RedisLeaseStore(self.url, self.group, self.partitions, TIMES, timeout_s=10.0)
            try:
                return await getattr(store, operation)(*arguments)
            finally:
                await store.close()

        return asyncio.run(asking())

    def win(self, partition):
        """The epoch."""
        assert self.ask("join", self.node, "i").ok
        assert self.ask("grab", partition, self.node, 1e6)
        return self.ask("activate", partition, self.node).epoch

    def take(self, *partitions, runtime=THREAD):
        """Win, activate and renew these, as a member."""
        leases = []
        for partition in partitions:
            sent_s = lease_now_s()
            epoch = self.win(partition)
            leases.append(self.renewer.grant(partition, epoch, sent_s + ENTITLED_S, runtime))
        if not self.begun:
            self.renewer.begin()
        self.begun = True
        return leases

    def next(self, kind, condition=lambda _: True):
        until_s = time.monotonic() + LIMIT_S
        while True:
            event = self.events.get(timeout=max(0.0, until_s - time.monotonic()))
            if isinstance(event, kind) and condition(event):
                return event

    def renewed(self, times=1):
        """The last of so many renewals from now on."""
        while not self.events.empty():
            self.events.get()
        for _ in range(times):
            event = self.next(ev.RenewalAnswered)
        return event


@pytest.fixture
def member_at(redis_server, redis_servers):
    """A member at the shared server, in a group of its own, until the block ends."""

    @contextmanager
    def make(url=redis_server.url, group=None, **given):
        member = Member(url, group or redis_servers.new_name(), **given)
        try:
            yield member
        finally:
            member.renewer.close()

    return make


@pytest.fixture(params=["process", "thread"])
def member(request, member_at):
    with member_at(mode=request.param) as made:
        yield made


def hold_the_interpreter(duration_s):
    """A native call that does not let go of the GIL."""
    ctypes.PyDLL(None).usleep(int(duration_s * 1e6))


def test_what_is_held_is_renewed_each_period(member):
    first, second = member.take(1, 3)
    before_s = first.deadline_s
    event = member.renewed(3)
    assert event.pairs == [(1, first.epoch), (3, second.epoch)]
    assert event.answer.held == [(1, True, False), (3, True, False)]
    assert not event.answer.displaced
    assert event.sent_s <= lease_now_s()
    until(lambda: first.deadline_s >= event.sent_s + ENTITLED_S - 1e-9)
    deadline_s = first.deadline_s
    assert deadline_s <= lease_now_s() + ENTITLED_S, "a margin before the store may give it away"
    assert first.deadline_s > before_s
    first.check()
    assert member.lags
    assert max(member.lags) < LEASE_S


def test_lost_data_are_registered_anew_with_the_same_epoch(member, redis_server):
    (lease,) = member.take(0)
    era = member.renewed().answer.era
    redis_server.client.delete(
        *(
            f"{{spillover:{member.group}}}:{name}"
            for name in ("allocation", "grab", "members", "group")
        )
    )
    event = member.next(ev.RenewalAnswered, lambda event: event.answer.era != era)
    assert event.answer.held == [(0, True, False)]
    assert member.ask("snapshot").allocations[0].epoch == lease.epoch
    # It said which era it knew: others wait until all holders have had the time to say so.
    assert redis_server.client.hexists(f"{{spillover:{member.group}}}:group", "grace_to_ms")
    lease.check()


def test_another_process_of_that_id_displaces_it(member, redis_server):
    (lease,) = member.take(0)
    member.renewed()
    redis_server.client.hset(f"{{spillover:{member.group}}}:members", "a", f"{10**14}|other")
    assert member.next(ev.RenewalAnswered, lambda event: event.answer.displaced)
    with pytest.raises(Fenced):
        lease.check()


def test_an_expired_lease_is_never_renewed_again(member_at):
    """Even while the store would still keep it."""
    with member_at() as member:
        epoch = member.win(0)
        lease = member.renewer.grant(0, epoch, lease_now_s() + 0.05)
        before = member.ask("snapshot").allocations[0]
        until(lambda: lease.is_over)
        member.renewer.begin()
        assert member.next(ev.RenewalAnswered).answer.held == [(0, False, False)]
        assert member.ask("snapshot").allocations[0] == before
        with pytest.raises(Fenced):
            lease.check()


def test_an_answer_that_comes_after_the_deadline_keeps_nothing(member_at, redis_server):
    with member_at() as member:
        epoch = member.win(0)
        member.next(RenewerStarted)
        lease = member.renewer.grant(0, epoch, lease_now_s() + 0.1)
        redis_server.client.execute_command("CLIENT", "PAUSE", 150, "ALL")
        member.renewer.begin()
        assert member.next(ev.RenewalAnswered).answer.held == [(0, False, False)]
        assert lease.is_over


def hold_the_loop(duration_s):
    """Without holding the interpreter: threads run on."""
    threading.Event().wait(duration_s)


@pytest.mark.parametrize("busy", [hold_the_interpreter, hold_the_loop], ids=["gil", "loop"])
def test_a_busy_handler_keeps_its_lease(member_at, busy):
    """One that holds the interpreter, or the event loop, for three leases; and one that has not
    reported for much longer than it may, because of that."""
    with member_at(max_progress_ms=300.0) as member:
        silent, reports = member.take(0, 1, runtime=LOOP)

        async def handler():
            member.renewer.beat_on(asyncio.get_running_loop())
            reports.progress()
            busy(3.0 * LEASE_S)
            silent.check()
            reports.check()

        asyncio.run(handler())
        assert not silent.stop_event.is_set()
        assert member.renewed().answer.held == [(0, True, False), (1, True, False)]


@pytest.mark.parametrize("runtime", [THREAD, LOOP], ids=["thread", "loop"])
def test_a_hung_handler_loses_its_lease_and_others_keep_theirs(member_at, runtime):
    with member_at(max_progress_ms=500.0) as member:
        hung, silent, diligent = member.take(0, 1, 2, runtime=runtime)
        told = []

        async def renewed_without(times):
            member.renewer.beat_on(asyncio.get_running_loop())
            while times > 0:
                diligent.progress()
                await turn(0.01)
                while not member.events.empty():
                    event = member.events.get()
                    told.extend([event] * isinstance(event, ev.HandlerHung))
                    times -= isinstance(event, ev.RenewalAnswered) and hung.is_over

        hung.progress()
        asyncio.run(asyncio.wait_for(renewed_without(3), LIMIT_S))
        assert told == [ev.HandlerHung(0, hung.epoch)], "once, however often it is renewed without"
        silent.check()
        diligent.check()
        with pytest.raises(Fenced):
            hung.progress()


def test_a_loop_that_stands_still_for_long_hangs_with_all_its_handlers():
    """After four leases; but not if that is because the whole member was stopped."""
    memory, held = LeaseMemory(3), [(0, 7), (1, 7), (2, 7)]
    for partition, runtime in ((0, LOOP), (1, LOOP), (2, THREAD)):
        memory.grant(partition, 7, 1e9, runtime)
    memory.beat(LOOP, 100.0, 0.1)
    for partition in (0, 2):
        memory.report_progress(partition)  # the handler of 1 never does
    guard = ProgressGuard(memory, max_progress_s=0.05, lease_s=1.0)
    assert guard.hung(held, 103.9, awake_since_s=50.0) == []
    assert guard.hung(held, 104.1, awake_since_s=101.0) == []
    assert guard.hung(held, 104.1, awake_since_s=50.0) == [(0, 7)]
    memory.beat(LOOP, 104.2, 0.1)
    memory.report_progress(0)
    assert guard.hung(held, 104.3, awake_since_s=50.0) == [(0, 7)]  # for good
    assert guard.hung([(0, 8)], 104.3, awake_since_s=50.0) == []
    memory.close()


def test_a_renewer_that_is_killed_is_replaced_before_anything_is_lost(member_at):
    """It heeds no other signal: terminals send theirs to all, and the member hands over first."""
    with member_at() as member:
        (lease,) = member.take(0)
        member.renewed()
        pid = member.renewer.pid
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(pid, number)
        member.renewed(2)
        os.kill(pid, signal.SIGKILL)
        assert member.next(RenewerEnded).how == "signal 9"
        assert member.next(RenewerStarted).pid != pid
        assert member.next(ev.RenewalAnswered).answer.held == [(0, True, False)]
        lease.check()


def test_a_renewer_that_stands_still_is_replaced(member_at):
    with member_at() as member:
        (lease,) = member.take(0)
        member.renewed()
        os.kill(member.renewer.pid, signal.SIGSTOP)
        assert member.next(RenewerEnded).how == "stood still"
        assert member.next(RenewerStarted).kind == "process"
        answer = member.next(ev.RenewalAnswered).answer
        assert answer.held == [(0, not lease.is_over, False)]


def test_closing_fences_what_is_left_and_ends_the_process(member_at):
    with member_at() as member:
        (lease,) = member.take(0)
        member.renewed()
        pid = member.renewer.pid
        member.renewer.close()
        with pytest.raises(Fenced):
            lease.check()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


MEMBER = """
import json, os, sys, time
from spillover.live.leases.renewal.renewer import LeaseRenewer
from spillover.live.leases.renewal.settings import make_plan
from spillover.live.leases.renewal.supervisor import RenewerStarted
from spillover.model.lease_times import LeaseTimes

url, group, how = sys.argv[1:]
started = []
plan = make_plan(url, group, 1, LeaseTimes(), node="a", incarnation="i")
renewer = LeaseRenewer(plan, started.append, mode="process")
while not any(isinstance(one, RenewerStarted) for one in started):
    time.sleep(0.01)
child = os.fork() if how == "forks" else -1
if child == 0:
    time.sleep(60)
    os._exit(0)
print(json.dumps([started[0].pid, child]), flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("how", ["serves", "forks"])
def test_the_renewer_ends_with_its_member(redis_server, redis_servers, how):
    """Also where a child of the member's still holds the pipe."""
    command = [sys.executable, "-c", MEMBER, redis_server.url, redis_servers.new_name(), how]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as member:
        renewer, child = json.loads(member.stdout.readline())
        try:
            assert lives(renewer)
            member.kill()
            until(lambda: not lives(renewer))
        finally:
            if child > 0:
                os.kill(child, signal.SIGKILL)
