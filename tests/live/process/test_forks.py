"""Signals to children that users' code forks are no business of the process that heeds its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

LIMIT_S = 30.0
SERVICE = """
import asyncio, multiprocessing, os, signal, subprocess, sys
from spillover.live.process.forks import leave_signals_to_parent
from spillover.live.process.hangup import on_hangup

def use_pool():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(abs, [-1, 2]) == [1, 2]

async def main():
    came = []
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, came.append, number)
    on_hangup([], lambda: None)
    await asyncio.to_thread(use_pool)
    use_pool()
    await asyncio.sleep(0)
    assert not came, came
    os.kill(os.getpid(), signal.SIGTERM)
    while not came:
        await asyncio.sleep(0.01)

def work():
    leave_signals_to_parent()
    os.kill(os.getpid(), signal.SIGTERM)
    use_pool()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    child.terminate()
    assert child.wait() == -signal.SIGTERM

asyncio.run(main()) if sys.argv[1] == "service" else work()
"""


def ended(role: str) -> None:
    command = [sys.executable, "-c", SERVICE, role]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.processes
def test_pool_in_service_ends_its_own_children_alone():
    ended("service")


@pytest.mark.processes
def test_children_of_worker_process_heed_signals_that_it_does_not():
    ended("worker")
