"""Directories of those who were killed are removed by who comes next, and no others."""

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from spillover.testbed import owned_directory
from spillover.testbed.owned_directory import LOCK_FILE, OwnedDirectory, remove_leftovers

pytestmark = pytest.mark.processes

OWNER = """
import sys
from spillover.testbed.owned_directory import OwnedDirectory
owned = OwnedDirectory()
(owned.path / "log").write_text("words")
print(owned.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """A directory for temporary files of this test's own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


@pytest.fixture
def owner():
    """A process with such a directory: it, and the directory."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield process, process.stdout.readline().strip()
    process.kill()
    process.communicate()


def left(temporary):
    return {path.name for path in temporary.iterdir()}


def test_what_a_killed_owner_left_is_removed_and_what_a_living_one_has_is_not(owner, temporary):
    process, path = owner
    remove_leftovers()
    assert Path(path, "log").exists()
    process.send_signal(signal.SIGSTOP)
    remove_leftovers()
    assert Path(path, "log").exists()
    process.kill()
    process.wait()
    assert Path(path, "log").exists()
    remove_leftovers()
    assert not left(temporary)


def test_an_owner_removes_its_own_or_keeps_it_for_people(temporary):
    kept, removed = OwnedDirectory(), OwnedDirectory()
    remove_leftovers()
    assert left(temporary) == {kept.path.name, removed.path.name}
    (kept.path / "log").write_text("words")
    kept.keep()
    removed.remove()
    removed.remove()
    remove_leftovers()
    assert left(temporary) == {kept.path.name}
    assert [file.name for file in kept.path.iterdir()] == ["log"]


def test_nothing_else_is_touched(temporary, monkeypatch):
    """Other names, other kinds, directories without an owner's lock, other users', and where the
    name leads elsewhere."""
    for name in ("spillover-none", "other", "spillover-locked"):
        (temporary / name).mkdir()
    (temporary / "other" / LOCK_FILE).touch()
    (temporary / "spillover-file").touch()
    (temporary / "spillover-link").symlink_to(temporary / "other")
    (temporary / "spillover-none" / LOCK_FILE).symlink_to(temporary / "other" / LOCK_FILE)
    (temporary / "spillover-locked" / LOCK_FILE).touch()
    before = left(temporary)
    monkeypatch.setattr(owned_directory.os, "geteuid", lambda: os.getuid() + 1)
    remove_leftovers()
    assert left(temporary) == before
    monkeypatch.undo()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    remove_leftovers()
    assert left(temporary) == before - {"spillover-locked"}
    assert (temporary / "other" / LOCK_FILE).exists()


def test_a_directory_that_cannot_be_looked_into_is_no_error(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere/at/all")
    remove_leftovers()


def test_without_locks_there_is_a_directory_all_the_same(temporary, monkeypatch):
    """And nothing that anybody would take for left behind."""

    def refuse(*_):
        raise OSError(95, "not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    owned = OwnedDirectory()
    assert not list(owned.path.iterdir())
    remove_leftovers()
    owned.remove()
    assert not left(temporary)
