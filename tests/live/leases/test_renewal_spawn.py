"""What renews, as it is started and seen off: a process or a thread, its plan, and how it sees its
member. Nothing here asks a Redis."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from spillover.live.leases.renewal import spawn
from spillover.live.leases.renewal.memory import LeaseMemory
from spillover.live.leases.renewal.parent import NoParent, Parent
from spillover.live.leases.renewal.settings import make_plan
from spillover.live.leases.renewal.spawn import THREAD, Worker
from spillover.live.redis.address import parse_address
from spillover.model.errors import RunError
from spillover.model.lease_times import LeaseTimes
from support.waiting import until

NOWHERE = "redis://127.0.0.1:1/0"
TIMES = LeaseTimes(
    normal_lease_ms=600.0, max_lease_ms=4_000.0, max_shutdown_ms=300.0, min_grab_ms=50.0,
    held_delay_ms=1.0,
)  # fmt: skip


def plan_of(times=TIMES, **given):
    return make_plan(NOWHERE, "g", 2, times, node="a", incarnation="i", **given)


@pytest.fixture
def memory():
    memory = LeaseMemory(2)
    yield memory
    memory.close()


@contextmanager
def linked():
    """A worker that is nobody, and what it says through."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Worker(THREAD, ours, None), theirs


# --- what was started -------------------------------------------------------------------------


@pytest.mark.processes
@pytest.mark.parametrize(
    ("program", "at_once", "how"),
    [
        ("exit 0", False, "exit status 0"),
        ("exit 7", False, "exit status 7"),
        ("exec sleep 60", False, "signal 9"),
        ("exec sleep 60", True, "signal 9"),
    ],
)
def test_a_process_that_does_not_end_with_its_link_is_killed(program, at_once, how):
    """It has nothing to put in order; how it ended is told."""
    ours, theirs = socket.socketpair()
    process = subprocess.Popen([shutil.which("sh"), "-c", program])
    if how.startswith("exit"):
        until(lambda: os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG))
    with theirs:
        worker = Worker("process", ours, process)
        assert worker.pid == process.pid
        assert worker.end(at_once=at_once) == how
        assert theirs.recv(1) == b""
        worker.say(b"b")
        worker.wake()


def test_a_word_to_who_does_not_listen_is_never_waited_for():
    """As to a renewer that stands still; whoever waits for its link can be woken."""
    with linked() as (worker, theirs):
        worker.link.settimeout(None)
        for _ in range(20_000):
            worker.say(b"b" * 64)
        theirs.settimeout(20.0)
        assert theirs.recv(1) == b"b"
        worker.wake()
        assert worker.link.recv(1) == b""
        assert (worker.pid, worker.end()) == (None, "a thread")


def open_files():
    return len(list(Path("/dev/fd").iterdir()))


def test_what_cannot_be_started_leaves_nothing_open(memory, monkeypatch):
    """No Python, no room for a thread."""
    before = open_files()
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(FileNotFoundError, match="no Python to start"):
        spawn.start_process(plan_of(), memory)
    assert open_files() <= before
    threading.stack_size(1 << 62)
    try:
        with pytest.raises(RunError, match="'lease-renewal' cannot be started"):
            spawn.start_thread(plan_of(), memory)
    finally:
        threading.stack_size(0)
    assert open_files() <= before


@pytest.mark.processes
@pytest.mark.skipif(not Path("/proc").exists(), reason="it is looked up there")
def test_a_process_that_renews_has_nothing_of_its_members(memory):
    """No folder that could not be unmounted, no terminal, none of its files but two."""
    worker = spawn.start_process(plan_of(), memory)
    try:
        assert worker.link.gettimeout() == spawn.START_S
        seen = Path(f"/proc/{worker.pid}")
        assert str((seen / "cwd").readlink()) == "/"
        files = {number: str((seen / "fd" / number).readlink()) for number in ("0", "1")}
        assert files == {"0": "/dev/null", "1": "/dev/null"}
    finally:
        worker.end(at_once=True)


def test_a_thread_that_renews_keeps_no_process_alive(memory):
    """And ends with its link."""
    before = set(threading.enumerate())
    worker = spawn.start_thread(plan_of(), memory)
    (thread,) = set(threading.enumerate()) - before
    assert (thread.name, thread.daemon) == ("lease-renewal", True)
    worker.end()
    thread.join(20.0)
    assert not thread.is_alive()


@pytest.mark.processes
def test_a_parent_is_who_started_this_process_and_stopped_as_the_system_says():
    assert not Parent(os.getppid()).is_gone()
    assert Parent(os.getpid()).is_gone()
    assert not Parent(os.getpid()).is_stopped()
    assert not Parent(2**22 + 1).is_stopped(), "of nobody nothing is known"
    assert (NoParent().is_gone(), NoParent().is_stopped()) == (False, False)
    process = subprocess.Popen([shutil.which("sh"), "-c", "kill -STOP $$; exit 7"])
    try:
        until(Parent(process.pid).is_stopped)
    finally:
        process.kill()
        process.wait()


# --- the plan ---------------------------------------------------------------------------------


def test_a_plan_counts_in_seconds():
    """A call may take a fourth of a lease and 5 s at most, so that a second one is in time."""
    plan = plan_of(max_progress_ms=2_500.0)
    numbers = (plan.period_s, plan.lease_s, plan.margin_s, plan.timeout_s, plan.max_progress_s)
    assert numbers == (0.6, 4.0, 0.4, 1.0, 2.5)
    longest = plan_of(LeaseTimes())
    assert (longest.timeout_s, longest.max_progress_s) == (5.0, None)
    assert plan_of(max_progress_ms=0.5).max_progress_s == 0.0005
    assert (longest.era, longest.partitions) == ("", 2)
    assert plan.arguments[0] != longest.arguments[0], "each would begin an era of its own"


def test_an_address_is_all_that_a_url_says():
    url = "rediss://us%40er:p%2Fw@h:7/3?ssl_ca_certs=/ca.pem&ssl_cert_reqs=none"
    assert parse_address(url) == {
        "path": "", "host": "h", "port": 7, "number": 3, "user": "us@er", "password": "p/w",
        "tls": True, "ca": "/ca.pem", "verify": False,
    }  # fmt: skip
    assert parse_address("unix:///run/a%20b") == {
        "path": "/run/a b", "host": "localhost", "port": 6379, "number": 0, "user": "",
        "password": "", "tls": False, "ca": "", "verify": True,
    }  # fmt: skip
