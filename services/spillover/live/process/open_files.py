"""The test of whether the process can open one more file. If it cannot, the event loop closes
connections as soon as it has accepted them, without a word: so it is logged here, for as long as it
lasts."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from functools import partial

from spillover.live.process.logs import Message, OncePerPeriod

LOOK_S = 1.0

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


def watch_open_files(loop: asyncio.AbstractEventLoop, *, were_used_up: bool = False) -> None:
    """Look once a second, for as long as the loop runs."""
    are_used_up = tell_if_used_up(were_used_up=were_used_up)
    loop.call_later(LOOK_S, partial(watch_open_files, loop, were_used_up=are_used_up))


def tell_if_used_up(*, were_used_up: bool) -> bool:
    """Log that no file can be opened now, if that is so, or that one can again; returns which."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            said = "nobody can connect: no more files may be open (ulimit -n)"
            _log.error(Message(said, reason=error.strerror))
            return True
    if were_used_up:
        _log.info("files can be opened again")
    return False
