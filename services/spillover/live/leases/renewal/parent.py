"""How the process that renews sees its member: whether it is gone, and whether it was stopped.

A stopped process (SIGSTOP, a debugger) serves nothing, however long: its leases must run out. One
that merely holds the interpreter runs, and keeps them. Only the system can tell these apart.
"""

from __future__ import annotations

import os
import sys

STOPPED = frozenset("Tt")


class Parent:
    """The process that started this one; it says its id itself, as it may be gone by now."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def is_gone(self) -> bool:
        """Returns whether the process has ended. The pipe's end does not tell that: a child of the
        member's may still hold the pipe."""
        return os.getppid() != self._pid

    def is_stopped(self) -> bool:
        return _state(self._pid) in STOPPED


class NoParent:
    """The parent of a thread, which goes and stops with its process."""

    def is_gone(self) -> bool:
        return False

    def is_stopped(self) -> bool:
        return False


def _state(pid: int) -> str:
    """One letter, as ps shows it; empty if it cannot be known."""
    try:
        if sys.platform == "linux":
            with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib is heavy
                return chr(file.read().rpartition(b") ")[2][0])
        with os.popen(f"ps -o state= -p {pid}") as shown:  # noqa: S605 - a number
            return shown.read(1)
    except (OSError, IndexError):
        return ""
