"""SIGHUP that comes while a service starts ends nothing either, and is made up for."""

import os
import pty
import signal
import subprocess
import sys

import pytest

from support.ports import free_ports

pytestmark = pytest.mark.processes

STARTING = """
import os, signal, sys

class Once:
    "Says that a module is about to be imported, and has something done then."

    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            {act}

sys.meta_path.insert(0, Once())
{before}
from spillover.cli import main
sys.exit(main())
"""
TO_ITSELF = "os.kill(os.getpid(), signal.SIGHUP)"
CLOSED = "print('ready', flush=True); os.read(0, 1); os.kill(os.getpid(), signal.SIGHUP)"
ITS_TERMINAL = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)"
COMMANDS = "spillover.cli.commands"
"""Imported by each command, before anything else."""
SERVER = "spillover.apps.node.server"
"""Imported once a node has looked at its options."""


def starting(*arguments, module=COMMANDS, act=TO_ITSELF, before="", **options):
    script = STARTING.format(module=module, act=act, before=before)
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stderr=subprocess.PIPE, text=True, start_new_session=True, **options,
    )  # fmt: skip


def test_members_of_lease_groups_live_to_say_what_is_wrong(tmp_path):
    """Their command has two words. Those of the others are below."""
    command = "lease", "run", "--group", "g", "--node", "n", "--redis", "nonsense"
    process = starting(*command, cwd=tmp_path)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 2, told
    assert told.startswith("spillover")
    assert told.count("\n") == 1


def test_a_node_heeds_it_once_it_can(tmp_path):
    """Here it has no files that could be read again."""
    (port,) = free_ports(1)
    topology = tmp_path / "one.yaml"
    topology.write_text(f"clusters: [{{id: a, servers: 1, url: 'http://127.0.0.1:{port}'}}]\n")
    command = "node", "--topology", str(topology), "--cluster", "a", "--lame-duck-s", "0"
    node = starting(*command, module=SERVER)
    try:
        told = ""
        while "node listens" not in told:
            told += (line := node.stderr.readline())
            assert line, told
        assert "SIGHUP changes nothing" in told
        node.terminate()
        assert node.wait(20) == 0
    finally:
        node.kill()
        node.communicate()


def test_a_terminal_that_has_gone_is_the_end(tmp_path):
    ours, theirs = pty.openpty()
    process = starting(
        "up", "nowhere.yaml", act=CLOSED, before=ITS_TERMINAL,
        stdin=theirs, stdout=subprocess.PIPE, cwd=tmp_path,
    )  # fmt: skip
    os.close(theirs)
    try:
        assert process.stdout.readline() == "ready\n"
        os.close(ours)
        assert process.wait(20) == -signal.SIGHUP
    finally:
        process.kill()
        process.communicate()
