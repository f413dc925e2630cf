"""One heap of deadlines and one alarm for a whole node.

An alarm may wake early; what is due is therefore decided by its clock alone. Callbacks
get the instant they were meant for, not the one they ran at, so that small delays do not add up in
chains of emulated work.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass

from spillover.live.engine.alarms import Alarm, LoopAlarm

CANCELLED_KEPT_MAX = 64
"""Cancelled timers that the heap may hold before they are swept out, if they are the majority."""


@dataclass(slots=True, eq=False)
class Timer:
    """One thing to come. `cancel` is cheap; the heap drops it in time."""

    timers: Timers
    due_s: float
    ring: Callable[[float], None] | None
    """Called at that time; None once it was, or was cancelled."""

    def cancel(self) -> None:
        """Does nothing once it has rung."""
        if self.ring is not None:
            self.ring = None
            self.timers.dropped()


class Timers:
    """Calls back at times of its alarm's clock. Those due at the same instant ring as made.

    A callback that raises is the loop's exception handler's business; the others ring all the
    same.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        make_alarm: Callable[[asyncio.AbstractEventLoop, Callable[[], None]], Alarm] = LoopAlarm,
    ) -> None:
        self._loop = loop
        self._alarm = make_alarm(loop, self._wake)
        self._set_alarm = self._alarm.set
        self.clock = self._alarm.clock
        self._heap: list[tuple[float, int, Timer]] = []
        self._made = 0
        self._cancelled = 0
        self._closed = False
        self.next_s = math.inf
        """What the alarm is set to: nothing is due before. In the past while timers ring."""
        self._lag_s = 0.0

    def __len__(self) -> int:
        """What the heap holds, cancelled timers included."""
        return len(self._heap)

    def at(self, due_s: float, ring: Callable[[float], None]) -> Timer:
        timer = Timer(self, due_s, ring)
        if self._closed:
            return timer
        self._made += 1
        heapq.heappush(self._heap, (due_s, self._made, timer))
        if due_s < self.next_s:
            self.next_s = due_s
            self._set_alarm(due_s)
        return timer

    def run_due(self, now_s: float) -> None:
        """Ring all that is due, earliest first, those that come up meanwhile included."""
        while self._heap and self._heap[0][0] <= now_s:
            due_s, _, timer = heapq.heappop(self._heap)
            ring = timer.ring
            if ring is None:
                self._cancelled -= 1
                continue
            timer.ring = None
            try:
                ring(due_s)
            except Exception as error:  # noqa: BLE001 - nobody is above a timer to catch it
                context = {"message": "a timer's callback failed", "exception": error}
                self._loop.call_exception_handler(context)

    def take_lag_s(self) -> float:
        """Returns the largest lag of the loop, which is how late timers rang, since this was last
        asked.
        """
        lag_s, self._lag_s = self._lag_s, 0.0
        return lag_s

    def dropped(self) -> None:
        """A timer was cancelled. A heap of mostly such timers would only cost memory."""
        self._cancelled += 1
        if self._cancelled > CANCELLED_KEPT_MAX and 2 * self._cancelled > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].ring is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def close(self) -> None:
        """Drop all that is to come. What is set later never rings."""
        self._closed = True
        self._heap.clear()
        self._cancelled = 0
        self._alarm.close()

    def _wake(self) -> None:
        now_s = self.clock()
        if self.next_s <= now_s:
            self._lag_s = max(self._lag_s, now_s - self.next_s)
        self.next_s = -math.inf  # what is set while others ring is armed below
        self.run_due(now_s)
        while self._heap and self._heap[0][2].ring is None:
            heapq.heappop(self._heap)
            self._cancelled -= 1
        self.next_s = self._heap[0][0] if self._heap else math.inf
        self._set_alarm(self.next_s)
