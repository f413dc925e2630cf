"""What a watchdog ends whose parent is killed, and what it lets be."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spillover.testbed.watchdog import Watchdog, end_group
from support.process_table import lives
from support.waiting import until

pytestmark = pytest.mark.processes

PARENT = """
import subprocess, sys
from pathlib import Path
from spillover.testbed.watchdog import Watchdog

with Watchdog() as watchdog:
    started = [subprocess.Popen(["sleep", "60"], start_new_session=True) for _ in range(3)]
    for one in started:
        watchdog.watch(one.pid)
    watchdog.forget(started[2].pid)
    watchdog.watch_directory(Path(sys.argv[1]))
    print(watchdog._process.pid, *(one.pid for one in started), flush=True)
    sys.stdin.readline()
"""


SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


def ignored(pid):
    """Signals that a process does not feel, on Linux."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    mask = int(status.partition("SigIgn:")[2].split()[0], 16)
    return {number for number in signal.Signals if mask >> (number - 1) & 1}


@pytest.mark.parametrize("killed", [True, False])
def test_what_was_not_forgotten_ends_with_the_parent(killed, tmp_path):
    """However that ends; stopped or not, whatever signals come meanwhile; directories go, too."""
    directory = tmp_path / "a directory"
    (directory / "more").mkdir(parents=True)
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as parent:
        watchdog, running, stopped, forgotten = map(int, parent.stdout.readline().split())
        try:
            if sys.platform == "linux":  # where one sees that it is ready for signals
                until(lambda: ignored(watchdog) >= SIGNALS)
                for number in SIGNALS:
                    os.kill(watchdog, number)
            os.kill(stopped, signal.SIGSTOP)
            assert all(map(lives, (watchdog, running, forgotten)))
            if killed:
                parent.kill()
            else:
                parent.stdin.close()
            until(lambda: not lives(running) and not lives(stopped))
            until(lambda: not directory.exists())
            until(lambda: not lives(watchdog))
            assert lives(forgotten)
        finally:
            for pid in (running, stopped, forgotten):
                end_group(pid)


def test_a_watchdog_that_has_died_is_no_reason_to_stop(tmp_path):
    with Watchdog() as watchdog:
        watchdog._process.kill()
        watchdog._process.wait()
        watchdog.watch(1)
        watchdog.forget(1)
        watchdog.watch_directory(tmp_path)
    assert tmp_path.exists()


def test_a_group_that_is_gone_is_no_error():
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        end_group(process.pid)
        assert process.wait() == -signal.SIGKILL
    end_group(process.pid)
