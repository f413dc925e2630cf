"""A service ends within its limits, whatever users' code leaves behind."""

import math
import subprocess
import sys

import pytest

from spillover.live.process.stopping import INTERRUPTED, LEFT_S, LEFT_S_MIN, left_until_s

LIMIT_S = 30.0

SERVICE = """
import asyncio, os, signal, sys, threading
from spillover.live.process import stopping

stopping.OVER_S = stopping.AT_ONCE_S = stopping.LEFT_S = stopping.LEFT_S_MIN = 0.1
how = sys.argv[1]
if "thread" in how:
    threading.Thread(target=threading.Event().wait, name="of a user").start()

async def swallow():
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass

async def serve():
    told = asyncio.Event()
    signals = stopping.StopSignals(lambda _: told.set(), told.set, 60.0)
    signals.heed()
    os.kill(os.getpid(), signal.SIGTERM)
    if "again" in how:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
        threading.Event().wait()  # the loop is held
    if "task" in how:
        asyncio.create_task(swallow(), name="request r1")
    await told.wait()
    if "task" in how:
        stopping.has_returned(0)

stopping.bound_this_process()
asyncio.run(serve())
stopping.has_returned(3)
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("how", "status", "said"),
    [
        ("thread", 3, "of a user"),
        ("task", 0, "request r1"),
        ("again", INTERRUPTED, " in wait"),
    ],
)
def test_what_holds_a_process_beyond_its_limit_is_told_and_left(how, status, said):
    """Also where a second signal comes while the loop is held."""
    command = [sys.executable, "-c", SERVICE, how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, said in done.stderr) == (status, True), done.stderr
    assert "past its limit" in done.stderr


def test_what_is_left_when_a_service_has_ended_has_seconds():
    """What remains of the limit, but neither much more nor nothing."""
    assert left_until_s(math.inf, 10.0) == 10.0 + LEFT_S
    assert left_until_s(12.0, 10.0) == 12.0
    assert left_until_s(10.1, 10.0) == 10.0 + LEFT_S_MIN
