"""Processes that the lab starts: heard, told in one line when they die, and never left behind."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from operator import methodcaller

import pytest

from spillover.model.errors import RunError
from spillover_lab.processes.child import Child
from support.process_table import lives

pytestmark = pytest.mark.processes

WITHIN_S = 30.0
PARENT = """
import sys
from spillover_lab.bench.leases import spin
from spillover_lab.processes.child import Child
with Child("the spinner", spin) as child:
    child.connection.recv()
    print(child.pid, flush=True)
    sys.stdin.read()
"""


def answer_of(target, within_s=WITHIN_S):
    with Child("the child", target) as child:
        return asyncio.run(child.receive(within_s))


def test_values_come_and_errors_are_raised():
    """The target gets the pipe; an error that it sends is one here."""
    assert answer_of(methodcaller("send", {"a": 1})) == {"a": 1}
    with pytest.raises(RunError, match=r"^no luck$"):
        answer_of(methodcaller("send", RunError("no luck")))


def test_death_and_silence_are_told_in_one_line():
    with pytest.raises(RunError, match=r"^the child died$"):
        answer_of(methodcaller("close"))
    with pytest.raises(RunError, match=r"^the child said nothing for 0 s$"):
        answer_of(methodcaller("recv"), within_s=0.01)
    with pytest.raises(RunError, match=r"^the child was not started$"):
        _ = Child("the child", methodcaller("recv")).pid


def test_it_may_be_ended_twice():
    child = Child("the child", methodcaller("recv")).start()
    child.end()
    child.end()


def test_nothing_is_left_and_ctrl_c_is_not_for_it():
    """An interrupt reaches it at any time, also while it comes up, and does nothing."""
    with Child("the child", methodcaller("recv")) as child:
        pid = child.pid
        os.kill(pid, signal.SIGINT)
        with pytest.raises(RunError, match="said nothing"):
            asyncio.run(child.receive(1.0))
        assert lives(pid)
    assert not lives(pid)
    assert multiprocessing.active_children() == []
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, set())
    with pytest.raises(RunError, match=r"^the child died$"):
        child.send(1)


def test_it_ends_with_its_parent_however_that_ends():
    """Also one that never looks at its pipe."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        pid = int(parent.stdout.readline())
        assert lives(pid)
        parent.kill()
        ended_by_s = time.monotonic() + WITHIN_S
        while lives(pid):
            assert time.monotonic() < ended_by_s
