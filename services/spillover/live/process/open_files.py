"""Whether the process can open one more file. If it cannot, the event loop closes connections as
soon as it has accepted them, without a word: so it is told here, for as long as it lasts.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os

from spillover.live.process.logs import Message, OncePerPeriod

LOOK_S = 1.0

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


def watch_open_files(loop: asyncio.AbstractEventLoop) -> None:
    """Look once a second, for as long as the loop runs."""
    tell_if_used_up()
    loop.call_later(LOOK_S, watch_open_files, loop)


def tell_if_used_up() -> None:
    """Log that no file can be opened now, if that is so."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            said = "nobody can connect: no more files may be open (ulimit -n)"
            _log.error(Message(said, reason=error.strerror))
