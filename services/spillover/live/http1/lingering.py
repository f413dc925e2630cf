"""Connections on which nothing more is read for what it says: the client has been told why, and may
look up only once it has sent all of a body that nobody wants.

A connection that is closed while something of it is unread is reset, which can overtake the answer.
So this end closes its half, and what still comes is thrown away, as nginx does (`lingering_close`):
as much as there is, for a time. What was answered is not known here.
"""

from __future__ import annotations

import asyncio
from typing import Any

from spillover.live.engine.reads import SharedReads, take_over

LINGER_S = 30.0
"""The longest time for which a connection lingers."""

QUIET_S = 5.0
"""A connection ends when nothing has come for this long, once all that was answered is sent."""


class Lingering(SharedReads):
    """Stands in for the protocol of a connection whose last answer is written, and for its
    transport, which is as good as closed to whoever has it."""

    __slots__ = ("_loop", "_over_s", "_size_bytes", "_timer", "_transport")

    def __init__(
        self, owner: asyncio.Protocol, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(owner)
        self._transport = transport
        self._loop = loop
        self._over_s = loop.time() + LINGER_S
        self._size_bytes = 0
        """The bytes that came since it was looked at last."""
        self._timer = loop.call_later(min(QUIET_S, LINGER_S), self._look)
        take_over(transport, self)
        if transport.can_write_eof():
            transport.write_eof()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Returns whether the transport closes."""
        return True

    def close(self) -> None:
        """Close nothing: the transport closes by itself."""

    def end(self) -> None:
        """Close it now, once all is sent that was written."""
        self._transport.close()

    def buffer_updated(self, nbytes: int) -> None:
        self._size_bytes += nbytes

    def eof_received(self) -> bool:
        return False  # it has sent all; what it has not read yet is sent before the end

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)
        del self._owner  # which holds this: neither must wait for a full garbage collection

    def _look(self) -> None:
        size_bytes, self._size_bytes = self._size_bytes, 0
        now_s = self._loop.time()
        is_at_work = size_bytes or self._transport.get_write_buffer_size()
        if not is_at_work or now_s >= self._over_s:
            self._transport.abort()
        else:
            due_s = min(now_s + QUIET_S, self._over_s)
            self._timer = self._loop.call_at(due_s, self._look)
