"""What breaks around renewal: the member stopped or killed, Redis killed, paused, restarted, gone
silent. The member is a process of its own; no handler acts after its deadline, whatever happens."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from spillover.live.leases.store import RedisLeaseStore
from spillover.model.lease_times import LeaseTimes
from support.waiting import until

TIMES = {
    "normal_lease_ms": 200.0,
    "max_lease_ms": 800.0,
    "max_shutdown_ms": 300.0,
    "min_grab_ms": 50.0,
    "held_delay_ms": 1.0,
}
LEASE_S = 0.8
LIMIT_S = 20.0

# Serves partition 0: acts at a fenced sink as often as it can, and says when it did, or why not.
MEMBER = """
import asyncio, json, os, sys, threading, time
from redis import Redis
from spillover.core.leases import events as ev
from spillover.live.leases.renewal.clock import lease_now_s
from spillover.live.leases.renewal.lease import Fenced
from spillover.live.leases.renewal.renewer import LeaseRenewer
from spillover.live.leases.renewal.supervisor import RenewerEnded, RenewerStarted
from spillover.live.leases.renewal.settings import make_plan
from spillover.live.leases.store import RedisLeaseStore
from spillover.live.leases.sinks.redis_sink import RedisSink
from spillover.model.lease_times import LeaseTimes

url, sink_url, group, times, how = sys.argv[1:]
times = LeaseTimes(**json.loads(times))
lock = threading.Lock()

def say(what, **more):
    with lock:
        print(json.dumps({"what": what, "now_s": lease_now_s(), **more}), flush=True)

def heard(event):
    match event:
        case ev.RenewalAnswered():
            say("renewed", sent_s=event.sent_s, held=event.answer.held)
        case ev.RenewalFailed():
            say("failed", problem=event.problem)
        case RenewerStarted():
            say("started", pid=event.pid, kind=event.kind)
        case RenewerEnded():
            say("ended", how=event.how)

async def activate():
    store = RedisLeaseStore(url, group, 1, times, timeout_s=10.0)
    await store.join("a", "i")
    await store.grab(0, "a", 1e6)
    sent_s = lease_now_s()
    epoch = (await store.activate(0, "a")).epoch
    await store.close()
    return sent_s, epoch

plan = make_plan(url, group, 1, times, node="a", incarnation="i")
renewer = LeaseRenewer(plan, heard)
sent_s, epoch = asyncio.run(activate())
lease = renewer.grant(0, epoch, sent_s + 0.72)
renewer.begin()
if how == "forks":
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    say("forked", pid=child)
sink = RedisSink(Redis.from_url(sink_url), "sink-" + group)
sink.claim(lease)
say("serves", epoch=epoch)
try:
    while True:
        deadline_s = lease.deadline_s
        sink.apply(lease, ("INCR", "sink-" + group + ":acts"))
        say("acted", deadline_s=deadline_s)
        time.sleep(0.01)
except Fenced as fenced:
    say("fenced", stopped=lease.stop_event.is_set())
time.sleep(60)
"""


class Process:
    """A member, and what it has said."""

    def __init__(self, url, sink_url, group, how="serves"):
        self.group = group
        self.url = url
        command = [sys.executable, "-c", MEMBER, url, sink_url, group, json.dumps(TIMES), how]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0)
        self.pid = self.process.pid
        self.said = []
        self._unread = b""

    def hear(self, wait_s):
        """What it says within a moment."""
        if select.select([self.process.stdout], [], [], wait_s)[0]:
            data = os.read(self.process.stdout.fileno(), 65_536)
            assert data, "the member has ended"
            *lines, self._unread = (self._unread + data).split(b"\n")
            self.said += [json.loads(line) for line in lines]

    def until(self, what, since=0, **more):
        """The first such line from number `since` on."""
        until_s = time.monotonic() + LIMIT_S
        while True:
            for line in self.said[since:]:
                if line["what"] == what and more.items() <= line.items():
                    return line
            assert time.monotonic() < until_s, (what, self.said[-5:])
            self.hear(0.05)

    def listen_for(self, duration_s):
        until_s = time.monotonic() + duration_s
        while (left_s := until_s - time.monotonic()) > 0:
            self.hear(left_s)

    def stop_for(self, duration_s):
        """SIGSTOP, and SIGCONT later: the number of lines that it had said until then."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            threading.Event().wait(duration_s)
            self.hear(0.0)
            return len(self.said)
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def check_acts(self):
        """Nothing was begun after the deadline."""
        acts = [line for line in self.said if line["what"] == "acted"]
        assert acts
        assert not [line for line in acts if line["deadline_s"] == 0.0]
        fenced = [line["now_s"] for line in self.said if line["what"] == "fenced"]
        assert not fenced or acts[-1]["now_s"] <= fenced[0]

    def ask(self, operation, *arguments):
        async def asking():
            store = RedisLeaseStore(self.url, self.group, 1, LeaseTimes(**TIMES), timeout_s=10.0)
            try:
                return await getattr(store, operation)(*arguments)
            finally:
                await store.close()

        return asyncio.run(asking())


@pytest.fixture
def member_at(redis_server, redis_servers):
    """A process that serves partition 0, until the block ends. Its sink is at the shared server."""

    @contextmanager
    def make(url=redis_server.url, how="serves"):
        member = Process(url, redis_server.url, redis_servers.new_name(), how)
        try:
            member.until("serves")
            member.until("renewed")
            yield member
        finally:
            member.process.kill()
            member.process.wait()
            member.process.stdout.close()

    return make


def is_running(pid):
    """Not if it has ended and nobody has asked how."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(") ")[2][0] != "Z"
    return False


def test_a_member_stopped_for_half_a_lease_keeps_it(member_at):
    with member_at() as member:
        since = member.stop_for(0.5 * LEASE_S)
        member.until("acted", since)
        member.until("renewed", since, held=[[0, True, False]])
        member.listen_for(LEASE_S)
        assert not [line for line in member.said if line["what"] == "fenced"]
        member.check_acts()


@pytest.mark.parametrize("leases", [1.5, 5.0])
def test_a_member_stopped_for_longer_is_fenced_at_its_first_act(member_at, leases):
    """Its renewer runs on, and does not keep alive what stands still."""
    with member_at() as member:
        since = member.stop_for(leases * LEASE_S)
        assert member.ask("snapshot").allocations[0].lease_to_ms < member.ask("snapshot").now_ms
        fenced = member.until("fenced", since)
        assert fenced["stopped"]
        # One act may have been under way when it was stopped, between its check and its word.
        assert len([line for line in member.said[since:] if line["what"] == "acted"]) <= 1
        member.until("renewed", since, held=[[0, False, False]])


def test_a_partition_of_a_stopped_member_is_served_by_another_and_safe(member_at):
    with member_at() as member:
        os.kill(member.pid, signal.SIGSTOP)
        try:
            until(lambda: member.ask("join", "b", "i").ok and member.ask("grab", 0, "b", 1e6))
            epoch = member.ask("activate", 0, "b").epoch
        finally:
            os.kill(member.pid, signal.SIGCONT)
        assert epoch > member.until("serves")["epoch"]
        member.until("fenced")
        member.check_acts()


@pytest.mark.parametrize("how", ["serves", "forks"])
def test_the_renewer_ends_with_its_member(member_at, how):
    """Also where a child of the member's still holds the pipe."""
    with member_at(how=how) as member:
        renewer = member.until("started")["pid"]
        try:
            assert is_running(renewer)
            member.process.kill()
            until(lambda: not is_running(renewer))
        finally:
            if how == "forks":
                os.kill(member.until("forked")["pid"], signal.SIGKILL)


@pytest.fixture
def own_server(redis_servers, tmp_path):
    with redis_servers.running(tmp_path) as server:
        yield server


def test_without_redis_the_lease_runs_out_where_it_is_held(member_at, own_server):
    with member_at(own_server.url) as member:
        since = len(member.said)
        own_server.stop(signal.SIGKILL)
        assert "Redis cannot be reached" in member.until("failed", since)["problem"]
        member.until("fenced", since)
        sent_s = [line["sent_s"] for line in member.said if line["what"] == "renewed"][-1]
        acted_s = [line["now_s"] for line in member.said if line["what"] == "acted"][-1]
        assert acted_s - sent_s < 0.9 * LEASE_S + 0.1
        member.check_acts()


@pytest.mark.parametrize(("pause_s", "is_kept"), [(0.4, True), (1.2, False)])
def test_a_redis_that_pauses(member_at, own_server, pause_s, is_kept):
    with member_at(own_server.url) as member:
        since = len(member.said)
        own_server.client.execute_command("CLIENT", "PAUSE", int(pause_s * 1000), "ALL")
        assert "did not answer in time" in member.until("failed", since)["problem"]
        if not is_kept:
            member.until("fenced", since)
        assert member.until("renewed", since)["held"] == [[0, is_kept, False]]
        member.check_acts()
