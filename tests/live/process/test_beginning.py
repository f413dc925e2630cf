"""A command that was started without a standard descriptor, or as the first process of a container,
runs and ends as any other."""

import json
import shutil
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

CLOSED = """
import json, os, sys
kept = os.dup(1)
os.closerange(0, 3)
sys.stdin = sys.stdout = sys.stderr = None  # as Python has it where they were closed before
from spillover.live.process.beginning import begin
begin()
print("to nobody", file=sys.stderr)
print("to nobody", flush=True)
told = [(os.path.realpath(f"/proc/self/fd/{n}"), os.get_inheritable(n)) for n in range(3)]
os.write(kept, json.dumps([*told, sys.stdin.read()]).encode())
"""

EARLY = """
import os, signal, sys

module, entry = sys.argv[1:3]
del sys.argv[1:3]

class Once:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGTERM)

sys.meta_path.insert(0, Once())
sys.exit(__import__(entry, fromlist=["main"]).main())
"""
"""Gets a SIGTERM as a module is about to be imported."""


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_standard_descriptors_that_are_closed_lead_nowhere():
    """Also for processes that are started, and for what is printed."""
    told = subprocess.run([sys.executable, "-c", CLOSED], stdout=subprocess.PIPE, check=True)
    assert json.loads(told.stdout) == [["/dev/null", True]] * 3 + [""]


STARTS = """
import signal, subprocess, sys
from spillover.live.process.beginning import begin
begin()
sys.exit(subprocess.run([sys.executable, "-c", "raise SystemExit(3)"]).returncode)
"""


def test_the_end_of_a_process_is_heard_of_though_the_starter_ignored_the_ends_of_its_own():
    """Else each worker process that dies would be waited for, as one of which nobody knows."""
    ignores = ("env", "--ignore-signal=CHLD")
    told = subprocess.run([*ignores, sys.executable, "-c", STARTS], check=False)
    assert told.returncode == 3


NEW_SPACE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child")


def can_be_first():
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*NEW_SPACE, "true"], check=False, capture_output=True).returncode == 0


@pytest.mark.parametrize(
    ("entry", "module"),
    [
        ("spillover.cli", "spillover.apps.node.server"),
        ("spillover_loadgen.cli", "spillover_loadgen.commands"),
    ],
)
def test_a_first_process_that_starts_can_be_ended(entry, module, tmp_path):
    """Linux drops a signal for which that has no handler."""
    if not can_be_first():
        pytest.skip("no namespaces of processes to be had (unshare)")
    topology = tmp_path / "one.yaml"
    topology.write_text("clusters: [{id: a, servers: 1, url: 'http://127.0.0.1:1'}]\n")
    arguments = ["node", "--topology", str(topology), "--cluster", "a"]
    command = [*NEW_SPACE, sys.executable, "-c", EARLY, module, entry, *arguments]
    ended = subprocess.run(command, check=False, capture_output=True, timeout=30)
    assert ended.returncode == 128 + signal.SIGTERM, ended.stderr
