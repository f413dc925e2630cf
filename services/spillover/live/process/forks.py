"""Children that users' code forks from a process that heeds signals inherit nothing of that.
Processes that were exec'd get defaults by themselves, as long as no signal is ignored (SIG_IGN
outlasts exec)."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable

HEEDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Forks(threading.local):
    """The signals that the forking thread has blocked before."""

    before: Iterable[int] = ()


_forks = _Forks()
_heeds = False
_registered = False


def keep_signals_from_forks() -> None:
    """Children forked from now on get Python's own signal handlers and no wakeup descriptor: else
    a SIGTERM to a child, as by `multiprocessing.Pool`, would reach the event loop of this process.
    """
    global _heeds, _registered  # noqa: PLW0603 - of this process, as signals are
    _heeds = True
    if not _registered:
        _registered = True
        os.register_at_fork(before=_block, after_in_parent=_unblock, after_in_child=_begin_anew)


def leave_signals_to_parent() -> None:
    """SIGINT and SIGTERM do nothing in this process, and all they are meant to in its children."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _do_nothing)
        signal.siginterrupt(number, False)  # noqa: FBT003 - it takes no name
    keep_signals_from_forks()


def _do_nothing(*_: object) -> None:
    """A handler, since SIG_IGN would be inherited over exec."""


def _block() -> None:
    """A signal to a child that has not begun anew waits until it has."""
    _forks.before = signal.pthread_sigmask(signal.SIG_BLOCK, HEEDED)


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forks.before)


def _begin_anew() -> None:
    """Once: what a child sets itself is its own, and its children's."""
    global _heeds  # noqa: PLW0603
    if _heeds:
        _heeds = False
        signal.set_wakeup_fd(-1)
        for number in HEEDED:
            if callable(signal.getsignal(number)):
                default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
                signal.signal(number, default)
    _unblock()
