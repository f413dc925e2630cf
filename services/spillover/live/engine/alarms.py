"""How a shell is woken at an instant of its clock.

The loop's own timers have a grain of a millisecond and may fire early, which costs a request up to
a millisecond more. Linux wakes to within some ten microseconds through a timerfd, and setting one
costs less than a timer of the loop.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import math
import os
import sys
import time
from collections.abc import Callable
from typing import Protocol, TypeAlias

from spillover.live.process.logs import Message

GRAIN_S = 0.001
"""The finest delay that is asked of the loop: asked for less, it would spin."""

Clock: TypeAlias = Callable[[], float]
"""Seconds, never set."""

_CLOCK_MONOTONIC = 1
_TFD_TIMER_ABSTIME = 1
_log = logging.getLogger(__name__)


class Alarm(Protocol):
    """Wakes at the instant that it is set to. Who is woken sets it anew; until then it may wake
    again."""

    @property
    def clock(self) -> Clock:
        """Returns the clock that it goes by."""

    def set(self, due_s: float) -> None:
        """Wake at `due_s` of the clock, or soon after, in place of any instant before; never if
        that is infinity."""

    def close(self) -> None:
        """Never wake again."""


class LoopAlarm:
    """An alarm by the loop's own timers. It may wake early, by less than their grain."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        wake: Callable[[], None],
        clock: Clock = time.monotonic,
    ) -> None:
        self.clock = clock
        self._loop = loop
        self._wake = wake
        self._handle: asyncio.TimerHandle | None = None

    def set(self, due_s: float) -> None:
        self.close()
        if due_s < math.inf:
            delay_s = max(GRAIN_S, due_s - self.clock())
            self._handle = self._loop.call_later(delay_s, self._wake)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("it_interval", _Timespec), ("it_value", _Timespec))


class TimerFdAlarm:
    """An alarm by a timerfd of Linux that the loop watches. Raises OSError where there is none."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        self.clock = time.monotonic
        self._loop = loop
        libc = ctypes.CDLL(None, use_errno=True)
        try:
            self._settime = libc.timerfd_settime
            self._fd: int = libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        except AttributeError as error:
            raise OSError("the C library has no timerfd") from error
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._spec = _Itimerspec()
        self._spec_pointer = ctypes.byref(self._spec)
        loop.add_reader(self._fd, wake)  # it stays readable until it is set anew

    def set(self, due_s: float) -> None:
        # Rounded up, so that it never wakes early; an instant of 0 disarms it.
        due_ns = max(1, int(due_s * 1e9) + 1) if due_s < math.inf else 0
        value = self._spec.it_value
        value.tv_sec, value.tv_nsec = divmod(due_ns, 1_000_000_000)
        self._settime(self._fd, _TFD_TIMER_ABSTIME, self._spec_pointer, None)

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1


def finest_alarm(loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> Alarm:
    """Returns the best alarm that this system has."""
    if sys.platform == "linux":
        try:
            return TimerFdAlarm(loop, wake)
        except OSError as error:
            _log.warning(Message("no timerfd", timer_grain_ms=1, reason=str(error)))
    return LoopAlarm(loop, wake)
