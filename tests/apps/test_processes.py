"""One process of several that are a cluster: its turn to serve neighbors."""

import asyncio
import select
import subprocess
import sys
from contextlib import contextmanager

import pytest

from spillover.apps.node.processes import OwnProcess
from support.loop import turn

pytestmark = pytest.mark.processes

OTHER = """
import fcntl, sys
with open(sys.argv[1], "r+") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
    print("has the turn", flush=True)
    sys.stdin.read()
"""


@contextmanager
def other_in_turn(file):
    """Another process, that has its turn until this ends."""
    command = [sys.executable, "-IS", "-c", OTHER, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        try:
            assert select.select([other.stdout], [], [], 60.0)[0]
            yield
        finally:
            other.kill()


def test_a_turn_that_is_given_up_goes_to_the_next(tmp_path):
    """Whether it had come or not: what has stopped to listen is in nobody's way."""
    file = tmp_path / "turn"
    file.touch()
    with file.open("r+") as ours:
        own = OwnProcess(1, ("http://127.0.0.1:1",), ("127.0.0.1", 1), None, None, ours.fileno(), 0)

        async def give_up():
            task = asyncio.create_task(own.its_turn())
            await turn()
            task.cancel()
            await asyncio.wait([task])

        with other_in_turn(file):
            asyncio.run(give_up())
        with other_in_turn(file):
            pass
        asyncio.run(own.its_turn())
