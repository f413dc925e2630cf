"""SIGHUP, by which no service ends: it reads files again. Only where the terminal has gone from
which the service was started is it told to end, as by any other signal.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence

from spillover.live.process.early_hangup import EarlyHangup, has_terminal
from spillover.live.process.forks import keep_signals_from_forks
from spillover.live.process.logs import Message

LOOK_S = 10.0
"""So often it is looked whether the terminal is there. One that has gone without a SIGHUP, as after
`disown`, is of no account any more."""

_log = logging.getLogger(__name__)


def on_hangup(rereads: Sequence[Callable[[], object]], end: Callable[[], object]) -> None:
    """Have these called on SIGHUP from now on, or `end` where the terminal has gone. To be called
    in the main thread, in its loop. Under `nohup`, by which SIGHUP is ignored, nothing ends. One
    that came while the service started (`hold_hangups`) counts now: files may have been read
    before it."""
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGHUP)
    early = before if isinstance(before, EarlyHangup) else None
    had_terminal = before is not signal.SIG_IGN if early is None else early.had_terminal

    def look() -> None:
        nonlocal had_terminal
        had_terminal = had_terminal and has_terminal()
        if had_terminal:
            loop.call_later(LOOK_S, look)

    def on_signal() -> None:
        if had_terminal and not has_terminal():
            end()
            return
        if not rereads:
            _log.info(Message("SIGHUP changes nothing: there are no files to be read again"))
        for reread in rereads:
            reread()

    look()
    keep_signals_from_forks()
    loop.add_signal_handler(signal.SIGHUP, on_signal)
    if early is not None and early.came:
        loop.call_soon(on_signal)
