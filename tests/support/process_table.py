"""What processes there are on this machine, for tests that look at those they started."""

from __future__ import annotations

from typing import TypeAlias

import psutil

Table: TypeAlias = dict[int, tuple[int, str]]


def processes() -> Table:
    """Returns the parent and the command line of each process by its id. Those are left out that
    have none: zombies, what is about to end, and the kernel's own."""
    table: Table = {}
    for process in psutil.process_iter(["ppid", "cmdline"]):
        told = process.info
        if told["cmdline"]:
            table[process.pid] = told["ppid"] or 0, " ".join(told["cmdline"])
    return table


def lives(pid: int) -> bool:
    """Returns whether there is such a process, and it is no zombie."""
    return _status_of(pid) not in {None, psutil.STATUS_ZOMBIE}


def is_stopped(pid: int) -> bool:
    """Returns whether all of it stands still: a signal takes a moment."""
    return _status_of(pid) in {psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP}


def _status_of(pid: int) -> str | None:
    try:
        return psutil.Process(pid).status()
    except psutil.NoSuchProcess:
        return None
