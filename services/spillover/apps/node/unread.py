"""Answers that have been written and that the other side has not read: how many bytes they are, and
how long it may read nothing of them. What is answered is not known here.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from spillover.core.overflow.held import Held
from spillover.live.engine.moving import Moving

UNREAD_S = 60.0
"""Who has read nothing of an answer for so long has gone: the answer must not be held for it."""


class UnreadAnswers(HttpToolsProtocol):
    """uvicorn's protocol, which by itself keeps what is not read for ever. Only what is too much
    for the transport at once is looked at, so that small answers cost nothing."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self.moving: Moving = getattr(self.app, "moving", None) or Moving(
            self.loop, Held(), lambda _: None
        )
        """The node's own, where the app is one."""
        self._unread_bytes = 0
        self._unread_timer: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._count_unread(0)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._count_unread(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        self._count_unread(0)

    def _count_unread(self, size_bytes: int) -> None:
        self.moving.add(size_bytes - self._unread_bytes)
        self._unread_bytes = size_bytes
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None
        if size_bytes:
            self._unread_timer = self.loop.call_later(UNREAD_S, self._look_at_unread)

    def _look_at_unread(self) -> None:
        left_bytes = self.transport.get_write_buffer_size()
        if left_bytes < self._unread_bytes:
            self._count_unread(left_bytes)
        else:
            self.transport.abort()
