"""One heap of deadlines and one armed loop timer for a whole node.

The loop's timers have a grain of about a millisecond and may fire early; what is due is therefore
decided by the monotonic clock alone. Callbacks get the instant they were meant for, not the one
they ran at, so that small delays do not add up in chains of emulated work.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable

GRAIN_S = 0.001
"""The finest delay that is asked of the loop: asked for less, it would spin."""


class Timer:
    """One thing to come. `cancel` is cheap; the heap drops it when it comes to the top."""

    __slots__ = ("due_s", "ring")

    def __init__(self, due_s: float, ring: Callable[[float], None]) -> None:
        self.due_s = due_s
        self.ring: Callable[[float], None] | None = ring

    def cancel(self) -> None:
        self.ring = None


class Timers:
    """Calls back at times of `time.monotonic`. Those due at the same instant ring as made."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heap: list[tuple[float, int, Timer]] = []
        self._made = 0
        self._armed: asyncio.TimerHandle | None = None
        self._armed_s = float("inf")
        self.lag_s = 0.0
        """How late the last timer rang: the lag of the loop."""

    def at(self, due_s: float, ring: Callable[[float], None]) -> Timer:
        timer = Timer(due_s, ring)
        self._made += 1
        heapq.heappush(self._heap, (due_s, self._made, timer))
        if due_s < self._armed_s:
            self._arm(due_s)
        return timer

    def run_due(self, now_s: float) -> None:
        """Ring all that is due, earliest first, those that come up meanwhile included."""
        heap = self._heap
        while heap and heap[0][0] <= now_s:
            due_s, _, timer = heapq.heappop(heap)
            ring = timer.ring
            if ring is not None:
                timer.ring = None
                ring(due_s)

    def close(self) -> None:
        """Drop all that is to come."""
        self._heap.clear()
        if self._armed is not None:
            self._armed.cancel()
            self._armed = None

    def _arm(self, due_s: float) -> None:
        if self._armed is not None:
            self._armed.cancel()
        self._armed_s = due_s
        delay_s = max(GRAIN_S, due_s - time.monotonic())
        self._armed = self._loop.call_later(delay_s, self._wake)

    def _wake(self) -> None:
        self._armed = None
        now_s = time.monotonic()
        if self._armed_s <= now_s:
            self.lag_s = now_s - self._armed_s
        self._armed_s = float("inf")
        self.run_due(now_s)
        heap = self._heap
        while heap and heap[0][2].ring is None:
            heapq.heappop(heap)
        if heap and heap[0][0] < self._armed_s:
            self._arm(heap[0][0])
