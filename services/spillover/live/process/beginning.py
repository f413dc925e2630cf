"""The beginning of every command: it has its three standard descriptors, it hears how the processes
end that it starts, and as the first process of a container it can be ended by signals.

Imports next to nothing: what is imported here takes time in which a signal is lost. SIGHUP of
services is held in `early_hangup`.
"""

from __future__ import annotations

import os
import signal
import sys

STANDARD = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))
"""The streams by their descriptors, 0 to 2, and how they are opened."""

FIRST_PROCESS = 1


def begin() -> None:
    """Prepare this process. To be called once, in the main thread, before anything is opened."""
    for descriptor, (name, mode) in enumerate(STANDARD):
        _fill(descriptor)
        if getattr(sys, name) is None:
            # Python prints to stdout what is printed to a stderr that is None.
            setattr(sys, name, open(descriptor, mode, closefd=False))  # noqa: SIM115
    end_by_default()
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        # As whoever started this had it, and it outlasts exec: the system would then tell nobody
        # how a process ends, nor that it has.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Whoever starts a container may block them until here, since Linux drops a signal for which the
    # first process has no handler, but keeps one that is blocked.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))


def end_by_default() -> None:
    """Have SIGTERM end this process, which it does by itself except for the first one."""
    if os.getpid() == FIRST_PROCESS:
        signal.signal(signal.SIGTERM, _end)


def _fill(descriptor: int) -> None:
    """Open /dev/null where a standard descriptor is closed. Else the event loop gets it, and libuv
    aborts a process that closes one of the three; or a log is written into somebody's socket."""
    try:
        os.fstat(descriptor)
    except OSError:
        # The lowest that is free, and so this one. Processes that are started have it, too.
        os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003 - takes no name


def _end(number: int, _: object) -> None:
    """End the first process as the system ends others: nothing has begun that would have to be put
    away. A child that was forked from it has the system's own answer."""
    if os.getpid() == FIRST_PROCESS:
        os._exit(128 + number)
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
