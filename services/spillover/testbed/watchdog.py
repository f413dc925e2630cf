"""A small process that ends what its parent has started, if the parent dies without doing so.

Whoever starts processes ends them itself, by their pids; the watchdog is for the day on which it is
killed. It knows only what it is told: process groups (a process that was started in a session of
its own, and what that has started) and directories. What they are for is not known here.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

END_WITHIN_S = 5.0


class Watchdog:
    """Watches this process, as a context manager, from entry to exit. It ends with this process, or
    before."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "spillover.testbed.watchdog"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is not for it
        )
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def watch(self, pid: int) -> None:
        """A process that was started in a session of its own."""
        self._tell(f"watch {pid}")

    def forget(self, pid: int) -> None:
        self._tell(f"forget {pid}")

    def watch_directory(self, directory: Path) -> None:
        self._tell(f"directory {directory}")

    def _tell(self, words: str) -> None:
        # A watchdog that has died keeps nothing; that alone is no reason to stop.
        stdin = self._process.stdin
        if stdin is not None:
            with contextlib.suppress(OSError):
                stdin.write(os.fsencode(words) + b"\n")
                stdin.flush()


def end_group(pid: int) -> None:
    """End a process that leads a group of its own, and all that is left of the group; also what
    has been stopped, or has lost its leader."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def main() -> None:
    """Listen until the parent closes the pipe, or is gone; then end what it has not ended."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it starts nothing that could inherit it
    pids: set[int] = set()
    directories: list[Path] = []
    for line in sys.stdin.buffer:
        word, _, value = os.fsdecode(line).rstrip("\n").partition(" ")
        if word == "watch":
            pids.add(int(value))
        elif word == "forget":
            pids.discard(int(value))
        elif word == "directory":
            directories.append(Path(value))
    for pid in pids:
        end_group(pid)
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
