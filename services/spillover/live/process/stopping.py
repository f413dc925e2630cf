"""How a service that runs users' code ends when it is told to. The first SIGTERM or SIGINT asks for
an orderly end, a second one for the end at once; past its limit the process ends whatever holds it:
a thread that never returns, a coroutine that swallows its cancellation, a slow `atexit`. What an
orderly end is, is not known here.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import NamedTuple

from spillover.live.process.forks import keep_signals_from_forks
from spillover.live.process.hangup import on_hangup
from spillover.live.process.logs import Message
from spillover.live.process.own_threads import start_own

OVER_S = 1.5
"""An end may take so much longer than what it waits for: it closes what it has."""

AT_ONCE_S = 1.0
"""The same after a second signal. A third one ends the process here and now."""

LEFT_S, LEFT_S_MIN = 5.0, 1.0
"""Users' code that is left when a service has ended, such as `atexit`, may take so long: at most,
and at least where little is left of the limit."""

ALARM_S = 10.0
"""So much later the system ends a process that could not do so itself."""

NAMES_MAX = 20
"""The log names at most so many threads and tasks."""

INTERRUPTED = 130

_log = logging.getLogger(__name__)


class _Due(NamedTuple):
    """When the process ends at the latest, and its exit status then."""

    at_s: float
    status: int


class Deadline:
    """The instant by which this process ends, kept by a thread of its own. Signal handlers tell it:
    nothing that they call waits for a lock."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        """The loop whose tasks are named."""
        self._due = _Due(math.inf, 1)
        self._told: queue.SimpleQueue[_Due] = queue.SimpleQueue()
        self._has_returned = False
        start_own(threading.Thread(target=self._run, name="deadline", daemon=True))

    def set(self, at_s: float, status: int) -> None:
        """Set the deadline to this instant, on the monotonic clock."""
        self._due = _Due(at_s, status)
        self._told.put(self._due)
        # No thread runs here while users' code holds the interpreter: then the system acts.
        if signal.getsignal(signal.SIGALRM) is signal.SIG_DFL:
            rest_s = max(0.0, at_s - time.monotonic())
            signal.setitimer(signal.ITIMER_REAL, rest_s + ALARM_S)

    def returned(self, status: int) -> None:
        """The service has ended with this status: only users' code can still hold the process."""
        at_s = self._due.at_s
        if not self._has_returned:
            self._has_returned = True
            at_s = left_until_s(at_s, time.monotonic())
        self.set(at_s, status)

    def _run(self) -> None:
        due = self._due
        while True:
            rest_s = due.at_s - time.monotonic()
            try:
                due = self._told.get(timeout=None if rest_s == math.inf else max(0.0, rest_s))
            except queue.Empty:
                break
        with suppress(BaseException):
            threads, tasks, at = _still_there(self.loop)
            words = "ended past its limit: something of users' code holds it"
            _log.warning(Message(words, threads=threads, tasks=tasks, main_thread=at))
            sys.stdout.flush()
        os._exit(due.status)


def left_until_s(due_s: float, now_s: float) -> float:
    """Returns until when a process may go on whose service has ended now, its limit being
    `due_s`."""
    return min(now_s + LEFT_S, max(due_s, now_s + LEFT_S_MIN))


class _Process:
    """The deadline of this process."""

    deadline: Deadline | None = None


def bound_this_process() -> None:
    """Have this process end by itself from now on: see `StopSignals` and `has_returned`. Without it
    nothing here ends a process: services run in others' processes, too."""
    _Process.deadline = Deadline()


def has_returned(status: int) -> None:
    """A service has ended with this exit status. A process that is bound ends soon now."""
    if _Process.deadline is not None:
        _Process.deadline.returned(status)


class StopSignals:
    """SIGTERM and SIGINT, from `heed` on. `first` is told which one has come, `again` of the next
    one, after which the end is to be had at once; both in the loop that runs at `heed`, if any, or
    where they may be called from any thread (`in_loop=False`) at once, though users' code may hold
    the loop. Without `again` the second one ends the process here and now. An orderly end takes
    `limit_s` at most."""

    def __init__(
        self,
        first: Callable[[int], object],
        again: Callable[[], object] | None,
        limit_s: float,
        *,
        in_loop: bool = True,
    ) -> None:
        self._first, self._again, self._limit_s = first, again, limit_s
        self._in_loop = in_loop
        self._count = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def heed(self, rereads: Sequence[Callable[[], object]] | None = None) -> None:
        """Begin, in the main thread; once more in a loop that begins later. With `rereads`, which
        needs a loop, SIGHUP too: see `on_hangup`."""
        keep_signals_from_forks()
        with suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            if self._loop is not None and _Process.deadline is None:
                self._loop.add_signal_handler(number, self.came, number)
            else:
                # Not by the loop, which users' code may hold, and which ends before the process.
                signal.signal(number, self.came)
        if _Process.deadline is not None:
            _Process.deadline.loop = self._loop
        if rereads is not None:
            on_hangup(rereads, self._terminal_gone)

    def came(self, number: int = signal.SIGTERM, _: FrameType | None = None) -> None:
        """One of them has come, or what counts as one."""
        self._count += 1
        if self._count == 1:
            self._end_by(self._limit_s + OVER_S, 1)
            self._tell(self._first, number)
        elif self._again is None or (self._count > 2 and _Process.deadline is not None):
            os._exit(INTERRUPTED)
        else:
            self._end_by(AT_ONCE_S, INTERRUPTED)
            self._tell(self._again)

    def _terminal_gone(self) -> None:
        """It counts as the first one alone: a shell and the system each tell of it."""
        if self._count == 0:
            self.came()

    def _end_by(self, in_s: float, status: int) -> None:
        if _Process.deadline is not None:
            _Process.deadline.set(time.monotonic() + in_s, status)

    def _tell(self, listener: Callable[..., object], *args: object) -> None:
        if self._loop is None or not self._in_loop:
            listener(*args)
            return
        with suppress(RuntimeError):  # the loop has ended: the deadline is what is left
            self._loop.call_soon_threadsafe(listener, *args)


def _still_there(
    loop: asyncio.AbstractEventLoop | None,
) -> tuple[list[str] | None, list[str] | None, str | None]:
    """Threads that Python waits for, and tasks, by name; and where the main thread is."""
    main = threading.main_thread()
    threads = [one.name for one in threading.enumerate() if not one.daemon and one is not main]
    tasks = [] if loop is None else [one.get_name() for one in asyncio.all_tasks(loop)]
    frame = sys._current_frames().get(main.ident or 0)  # noqa: SLF001 - there is no other way
    at = None
    if frame is not None:
        at = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
    return sorted(threads)[:NAMES_MAX] or None, sorted(tasks)[:NAMES_MAX] or None, at
