"""SIGHUP while a service starts. It ends no service (`hangup`), but before that has its loop the
system's own answer to it is the end. So the first thing that a service does is to note it.

Imports next to nothing: what is imported here takes time in which SIGHUP still ends the process.
"""

from __future__ import annotations

import errno
import os
import signal

_GONE = (errno.ENXIO, errno.EIO)
"""Errors of opening the terminal of this process where there is none, or none any more."""


class EarlyHangup:
    """The handler of SIGHUP until `on_hangup` takes over: what it has noted is found in it."""

    def __init__(self, *, had_terminal: bool) -> None:
        self.had_terminal = had_terminal
        """True where it has a terminal, and counts on it: not under `nohup`, by which SIGHUP is
        ignored."""
        self.came = False

    def __call__(self, *_: object) -> None:
        self.came = True
        if self.had_terminal and not has_terminal():
            # Nothing has begun that would have to be put away.
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            signal.raise_signal(signal.SIGHUP)


def hold_hangups() -> None:
    """Have SIGHUP noted from now on. A handler, and not that it is ignored: processes that are
    started would inherit that. To be called in the main thread."""
    was_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    signal.signal(signal.SIGHUP, EarlyHangup(had_terminal=not was_ignored and has_terminal()))


def has_terminal() -> bool:
    """Returns whether the terminal from which this process was started is there."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError as error:
        return error.errno not in _GONE
    return True
