"""A directory for temporary files that does not outlive its owner for long: whoever starts next
removes what those left behind who were killed.

An owner holds a lock on a file in it, which the kernel lets go of however the owner ends. Not its
pid: pids come back, and mean something else in another container with the same directory. What the
files are for is not known here.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from spillover.testbed.file_lock import try_lock

PREFIX = "spillover-"
LOCK_FILE = "owner.lock"


class OwnedDirectory:
    """One of this process, from now on until `remove` or `keep`."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock: int | None = _lock_in(self.path)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._unlock()

    def keep(self) -> None:
        """Leave it to people: nobody removes it but they."""
        with contextlib.suppress(OSError):
            (self.path / LOCK_FILE).unlink()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def remove_leftovers() -> None:
    """Remove such directories of this user whose owner has ended. Nobody's who lives, no other
    user's, and none that was kept."""
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # gone, or not for this user to look at
                if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False):
                    _remove_if_left(Path(entry.path))


def _remove_if_left(directory: Path) -> None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    lock = os.open(directory / LOCK_FILE, flags)
    try:
        is_own = os.geteuid() == os.fstat(lock).st_uid == directory.lstat().st_uid
        if is_own and try_lock(lock):
            shutil.rmtree(directory, ignore_errors=True)
    finally:
        os.close(lock)


def _lock_in(directory: Path) -> int | None:
    """The descriptor that holds the lock; None where there are no locks, so that nothing is ever
    removed. The file has its name once it is locked: before, it would look left behind."""
    unnamed = directory / f"{LOCK_FILE}.new"
    lock = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        locked = try_lock(lock)
    except OSError:
        locked = False
    if not locked:
        os.close(lock)
        unnamed.unlink()
        return None
    unnamed.rename(directory / LOCK_FILE)
    return lock
