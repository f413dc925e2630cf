"""How late an event loop is: a timer that should ring every so often, and when it did.

Read from any thread, also while the loop stands still: what it is late by then counts too.
"""

from __future__ import annotations

import asyncio
import math
import time

PERIOD_S = 0.1


class LoopLag:
    """The lag of one loop, measured from `watch` to `close`."""

    def __init__(self) -> None:
        self._max_s = 0.0
        self._due_s = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin; call it on that loop."""
        self._due_s = time.monotonic() + PERIOD_S
        self._timer = loop.call_later(PERIOD_S, self._ring, loop)

    def now_s(self) -> float:
        """Returns by how much the loop is late at this instant."""
        return max(0.0, time.monotonic() - self._due_s)

    def take_s(self) -> float:
        """Returns the largest lag since this was last asked."""
        lag_s, self._max_s = max(self._max_s, self.now_s()), 0.0
        return lag_s

    def close(self) -> None:
        self._due_s = math.inf
        if self._timer is not None:
            self._timer.cancel()

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        self._max_s = max(self._max_s, self.now_s())
        self.watch(loop)
