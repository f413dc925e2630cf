"""Slots limit how many requests of a client are under way; they are taken in its loop or in any
thread."""

from __future__ import annotations

import asyncio
from collections import deque
from threading import Lock


class Slots:
    """A number of slots, for this loop and other threads. A waiter in the loop comes first."""

    def __init__(self, places: int, loop: asyncio.AbstractEventLoop) -> None:
        self._free = places
        self._loop = loop
        self._lock = Lock()
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take(self) -> bool:
        """Returns whether there was a free slot, which is taken now."""
        with self._lock:
            if self._free == 0 or self._waiting:
                return False
            self._free -= 1
            return True

    async def wait(self) -> None:
        """Take a slot, once there is a free one."""
        if self.take():
            return
        turn = self._loop.create_future()
        self._waiting.append(turn)
        self._wake()  # one may have been given back meanwhile
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting.remove(turn)
            else:
                self.give_back()
            raise

    def give_back(self) -> None:
        with self._lock:
            self._free += 1
        if self._waiting:
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        """Wake a waiter; this runs only in the loop."""
        with self._lock:
            while self._free and self._waiting:
                turn = self._waiting.popleft()
                if not turn.done():
                    self._free -= 1
                    turn.set_result(None)

    async def __aenter__(self) -> None:
        await self.wait()

    async def __aexit__(self, *_: object) -> None:
        self.give_back()
