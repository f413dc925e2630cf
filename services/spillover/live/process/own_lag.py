"""Time limits on others that do not count what this process is late by itself.

After a second without CPU time, or of a handler that held up the loop, what others have long done
lies in the kernel, and every limit of less than a second has run out. Loops may ring timers before
they look (uvloop does). Which others, and what a limit means, is not known here.
"""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Self

STEP_S = 0.1
"""A limit is counted in such steps, so that a loop which is late within it is noticed."""

LATE_S = 0.02
"""A timer that is later than this is late by more than its grain, and by more than a busy loop
takes in a turn."""


class PatientTimeout:
    """A timeout as `asyncio.timeout`, but while the loop is late the time stands still. Raises
    TimeoutError from the block, which by then has had a turn of the loop since it was last late."""

    def __init__(self, limit_s: float) -> None:
        self._left_s = limit_s
        self._timeout = asyncio.timeout(None)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._excused = False

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        self._step()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._timeout.__aexit__(kind, error, trace)

    def _step(self) -> None:
        step_s = min(self._left_s, STEP_S)
        due_s = time.monotonic() + step_s
        self._timer = self._loop.call_later(step_s, self._ring, step_s, due_s)

    def _ring(self, step_s: float, due_s: float) -> None:
        self._left_s -= step_s
        late_s = time.monotonic() - due_s
        if self._left_s <= 0.0 and late_s > LATE_S and not self._excused:
            self._excused = True  # once: a loop that is always late must not wait for ever
            self._left_s = min(late_s, STEP_S)
        if self._left_s > 0.0:
            self._step()
        else:
            self._timer = None
            self._timeout.reschedule(self._loop.time())
