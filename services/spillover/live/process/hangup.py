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

_log = logging.getLogger(__name__)


def on_hangup(rereads: Sequence[Callable[[], object]], end: Callable[[], object]) -> None:
    """Have these called on SIGHUP from now on, or `end` where the terminal has gone. To be called
    in the main thread, in its loop."""
    had_terminal = _has_terminal()

    def on_signal() -> None:
        if had_terminal and not _has_terminal():
            end()
            return
        if not rereads:
            _log.info(Message("SIGHUP changes nothing: there are no files to be read again"))
        for reread in rereads:
            reread()

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, on_signal)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError as error:
        return error.errno not in _GONE
    return True
