"""Connections on which nothing more is read for what it says: the client has been told why, and may
look up only once it has sent all of a body that nobody wants.

A connection that is closed while something of it is unread is reset, which can overtake the answer.
So this end closes its half, and what still comes is thrown away, as nginx does (`lingering_close`):
as much as there is, for a time. What was answered is not known here.
"""

from __future__ import annotations

import asyncio

from spillover.live.engine.reads import StandIn, take_over

LINGER_S = 30.0
"""In all."""

QUIET_S = 5.0
"""For which nothing may come."""

READ_BYTES = 262_144


class Lingering(StandIn):
    """Stands in for the protocol of a connection whose last answer is written, up to its end."""

    __slots__ = ("_loop", "_over_s", "_size_bytes", "_timer", "_transport", "_view")

    def __init__(
        self, owner: asyncio.Protocol, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(owner)
        self._transport = transport
        self._loop = loop
        self._view = memoryview(bytearray(READ_BYTES))
        self._over_s = loop.time() + LINGER_S
        self._size_bytes = 0
        """Since it was looked at last."""
        self._timer = loop.call_later(QUIET_S, self._look)
        take_over(transport, self)
        if transport.can_write_eof():
            transport.write_eof()

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint  # nothing of it is kept
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        self._size_bytes += nbytes

    def eof_received(self) -> bool:
        return False  # it has sent all; what it has not read yet is sent before the end

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        size_bytes, self._size_bytes = self._size_bytes, 0
        now_s = self._loop.time()
        if not size_bytes or now_s >= self._over_s:
            self._transport.abort()
        else:
            due_s = min(now_s + QUIET_S, self._over_s)
            self._timer = self._loop.call_at(due_s, self._look)
