"""SIGHUP, by which no service ends: it reads files again. Only where the terminal has gone from
which the service was started is it told to end, as by any other signal.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
from collections.abc import Callable, Sequence

from spillover.live.process.logs import Message

_GONE = (errno.ENXIO, errno.EIO)
"""What opening the terminal of this process fails with where there is none, or none any more."""

LOOK_S = 10.0
"""So often it is looked whether the terminal is there. One that has gone without a SIGHUP, as after
`disown`, is of no account any more."""

_log = logging.getLogger(__name__)


def on_hangup(rereads: Sequence[Callable[[], object]], end: Callable[[], object]) -> None:
    """Have these called on SIGHUP from now on, or `end` where the terminal has gone. To be called
    in the main thread, in its loop. Under `nohup`, by which SIGHUP is ignored, nothing ends."""
    loop = asyncio.get_running_loop()
    had_terminal = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN

    def look() -> None:
        nonlocal had_terminal
        had_terminal = had_terminal and _has_terminal()
        if had_terminal:
            loop.call_later(LOOK_S, look)

    def on_signal() -> None:
        if had_terminal and not _has_terminal():
            end()
            return
        if not rereads:
            _log.info(Message("SIGHUP changes nothing: there are no files to be read again"))
        for reread in rereads:
            reread()

    look()
    loop.add_signal_handler(signal.SIGHUP, on_signal)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError as error:
        return error.errno not in _GONE
    return True
