"""The client's types, as mypy --strict sees them from a user's program; and what `help` shows."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import spillover
from spillover import client

EXAMPLE = Path(__file__).parent / "typed_example.py"
WRONG = """
from spillover.client import Spillover

with Spillover("http://127.0.0.1:8101") as spillover:
    spillover.run({}, deadline_s="5")
    for answer in spillover.map([1], return_errors=True):
        answer.result
"""


def mypy(directory, *files):
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--cache-dir", "nul"]
    done = subprocess.run(
        [*command, *files], check=False, cwd=directory, capture_output=True, text=True
    )
    return done.stdout


@pytest.mark.processes
@pytest.mark.slow
def test_a_users_program_is_checked(tmp_path):
    """Where the package only lies installed: no configuration of ours, no path to its sources."""
    assert (Path(spillover.__file__).parent / "py.typed").exists()
    (tmp_path / "right.py").write_text(EXAMPLE.read_text("utf-8"), "utf-8")
    (tmp_path / "wrong.py").write_text(WRONG, "utf-8")
    *errors, summary = mypy(tmp_path, "right.py", "wrong.py").splitlines()
    assert summary == "Found 2 errors in 1 file (checked 2 source files)", errors
    said = "\n".join(line for line in errors if line.startswith("wrong.py:"))
    assert 'incompatible type "str"' in said
    assert 'Item "SpilloverError" of "Answer | SpilloverError" has no attribute "result"' in said


@pytest.mark.parametrize("name", ["AsyncSpillover", "Spillover", "AsyncJob", "Job", "Nodes"])
def test_help_has_a_sentence_for_all_that_is_public(name):
    of = getattr(client, name)
    shown = [one for one in vars(of) if not one.startswith("_")]
    assert shown
    for one in shown:
        member = inspect.getattr_static(of, one)
        assert inspect.getdoc(member), one


def test_both_clients_offer_the_same():
    """With the same arguments, and the same where they are not given."""

    def offered(of):
        return {
            name: [(one.name, one.default) for one in inspect.signature(member).parameters.values()]
            for name, member in vars(of).items()
            if not name.startswith("_") and callable(member)
        }

    assert offered(client.AsyncSpillover) == offered(client.Spillover)
    assert offered(client.AsyncJob) == offered(client.Job)
