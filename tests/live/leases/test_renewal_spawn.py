"""What renews, as it is started and seen off: a process or a thread, its plan, and how it sees its
member. Nothing here asks a Redis."""

import os
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from spillover.live.leases.renewal import spawn
from spillover.live.leases.renewal.settings import make_plan
from spillover.live.leases.renewal.spawn import Worker
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


def open_files():
    return len(list(Path("/dev/fd").iterdir()))


def test_what_cannot_be_started_leaves_nothing_open(memory, monkeypatch):
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
    worker = spawn.start_process(plan_of(), memory)
    try:
        assert worker.link.gettimeout() == spawn.START_S
        seen = Path(f"/proc/{worker.pid}")
        assert str((seen / "cwd").readlink()) == "/"
        files = {number: str((seen / "fd" / number).readlink()) for number in ("0", "1")}
        assert files == {"0": "/dev/null", "1": "/dev/null"}
    finally:
        worker.end(at_once=True)
