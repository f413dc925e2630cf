"""Answers that have been written and that the other side has not read: how many bytes they are, and
how long it may read nothing of them. What is answered is not known here.
"""

from __future__ import annotations

import asyncio

from spillover.live.engine.moving import Moving


class UnreadAnswers:
    """Those of one connection. Only what is too much for the transport at once is looked at, so
    that small answers cost nothing. Who has read nothing for `limit_s` has gone: the answer must
    not be held for it."""

    def __init__(self, transport: asyncio.Transport, moving: Moving | None, limit_s: float) -> None:
        self._transport = transport
        self._moving = moving
        self._limit_s = limit_s
        self._size_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def count(self, size_bytes: int) -> None:
        """Note that so many bytes are unread now."""
        if self._moving is not None:
            self._moving.add(size_bytes - self._size_bytes)
        self._size_bytes = size_bytes
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if size_bytes:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._limit_s, self._look)

    def _look(self) -> None:
        left_bytes = self._transport.get_write_buffer_size()
        if left_bytes < self._size_bytes:
            self.count(left_bytes)
        else:
            self._transport.abort()
