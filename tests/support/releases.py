"""Other versions of Spillover to run beside this tree's: those of the repository's own history.

Each is a value for PYTHONPATH, which comes before what is installed: the Python and the packages
are those of the tests.
"""

from __future__ import annotations

import compileall
import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("services/spillover", "loadgen/spillover_loadgen")


def _git(*words: str) -> subprocess.CompletedProcess[bytes]:
    """Whoever owns the files: tests may run as root in somebody else's checkout."""
    command = ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), *words]
    return subprocess.run(command, capture_output=True, check=False)


def has(commit: str) -> bool:
    """Whether there is a history, and this commit is in it."""
    if shutil.which("git") is None:
        return False
    return _git("cat-file", "-e", f"{commit}^{{commit}}").returncode == 0


def extracted(commit: str, where: Path) -> str:
    """The packages as they were at this commit."""
    archive = _git("archive", commit, *PACKAGES)
    assert archive.returncode == 0, archive.stderr
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as packed:
        packed.extractall(where, filter="data")
    return _path(where)


def _path(where: Path) -> str:
    """Compiled once, and not by each node that starts."""
    assert compileall.compile_dir(where, quiet=1)
    return os.pathsep.join(str((where / package).parent) for package in PACKAGES)
