"""What a command does that runs several processes; these are scripted, as is what they live."""

import json
import signal
import subprocess
import sys

import pytest

from support.waiting import until

pytestmark = pytest.mark.processes

ONE = """
import json, os, signal, sys
own = json.loads(os.environ["SPILLOVER_PROCESS"])
file = f"lives.{own['number']}"
with open(file, "a") as lives:
    lives.write(".")
status = json.load(open("statuses.json")).get(f"{own['number']} {os.path.getsize(file)}")
if status is not None:
    os._exit(status)
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
os.write(own["life_fd"], b".")
sys.stdin.read()
"""

ALL = """
import asyncio, json, logging, sys
from contextlib import ExitStack
from spillover.model.topology import Cluster, Topology
from spillover.testbed import processes, revival

logging.basicConfig(format="%(message)s")
revival.DELAYS_S = (0.01,) * 6
processes.sys.executable, none_before = "./one", sys.argv[1]
start, lives = asyncio.create_subprocess_exec, []

async def start_or_fail(*told, **named):
    lives.append(told)
    if len(lives) == int(none_before):
        raise BlockingIOError(11, "Resource temporarily unavailable")
    return await start(*told, **named)

asyncio.create_subprocess_exec = start_or_fail

async def main():
    with ExitStack() as sockets:
        topology = Topology(name="one", clusters=(Cluster(id="a", servers=4),))
        addresses = processes.Addresses(("127.0.0.1", 0), None, None)
        all = processes.Processes(2, addresses, sockets, topology=topology, limit_s=5.0)
        return await all.run(end_with_stdin=False)

sys.exit(asyncio.run(main()))
"""


@pytest.fixture
def start(tmp_path):
    """`start(statuses, fails)`: two processes, each of whose lives that has a status ends with it
    before it listens. The start that is this one of all fails."""
    started = []
    one = tmp_path / "one"
    one.write_text(f"#!{sys.executable} -IS\n{ONE}")
    one.chmod(0o755)

    def begin(statuses, fails=0):
        (tmp_path / "statuses.json").write_text(json.dumps(statuses))
        with (tmp_path / "said").open("w") as said:
            command = [sys.executable, "-c", ALL, str(fails)]
            started.append(subprocess.Popen(command, cwd=tmp_path, stdout=said, stderr=said))
        return started[0]

    yield begin
    for process in started:
        process.kill()
        process.wait()


def lives(directory, number):
    file = directory / f"lives.{number}"
    return file.stat().st_size if file.exists() else 0


def test_a_process_that_ends_at_its_first_start_is_started_again(start, tmp_path):
    """The first of all has come to listen: the others may."""
    running = start({"2 1": 1, "2 2": -9 & 0xFF})
    until(lambda: lives(tmp_path, 2) == 3)
    assert "process has ended process=2 status=1 again_in_s=0.01" in (tmp_path / "said").read_text()
    running.send_signal(signal.SIGTERM)
    assert running.wait(30.0) == 0
    assert lives(tmp_path, 1) == 1


def test_all_end_with_the_first_that_does_not_come_to_listen(start, tmp_path):
    assert start({"1 1": 3}).wait(30.0) == 3
    assert "process has ended, all end process=1 status=3" in (tmp_path / "said").read_text()
    assert lives(tmp_path, 2) == 0


@pytest.mark.parametrize("fails", [2, 3])
def test_a_start_that_fails_for_now_is_tried_again(start, tmp_path, fails):
    """The machine has no more processes, or files: for those that are there that is no end."""
    running = start({"2 1": 1} if fails == 3 else {}, fails)
    until(lambda: lives(tmp_path, 2) == fails - 1)
    said = (tmp_path / "said").read_text()
    assert 'cannot be started process=2 reason="Resource temporarily unavailable"' in said
    running.send_signal(signal.SIGTERM)
    assert running.wait(30.0) == 0
    assert lives(tmp_path, 1) == 1


def test_all_end_with_a_first_start_that_fails(start, tmp_path):
    assert start({}, 1).wait(30.0) == 1
    assert (tmp_path / "said").read_text().count("\n") == 1
