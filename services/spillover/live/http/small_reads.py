"""Connections to a server whose answers are handed on as they come: read in small parts, so that no
more than one of them is there when whoever gets them has to wait.

A loop reads up to 256 KiB at once. An answer that nobody reads would have as much in memory at each
hop, besides what is unsent.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Final

from spillover.live.http.connection import Connection

READ_BYTES: Final = 65_536


class _Buffers(threading.local):
    """One for each thread that has a loop: what is read is taken out before anything else is."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(READ_BYTES))


_buffers = _Buffers()


class SmallReads(asyncio.BufferedProtocol):
    """Stands in for the protocol of a connection for good, and tells it all."""

    __slots__ = ("_owner", "_view")

    def __init__(self, owner: asyncio.Protocol) -> None:
        self._owner = owner
        self._view = _buffers.view

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint  # of what the loop would read
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        self._owner.data_received(bytes(self._view[:nbytes]))

    def eof_received(self) -> bool | None:
        return self._owner.eof_received()

    def pause_writing(self) -> None:
        self._owner.pause_writing()

    def resume_writing(self) -> None:
        self._owner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.connection_lost(exc)


class SmallReadsConnection(Connection):
    """A connection that is read so."""

    __slots__ = ()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._transport.set_protocol(SmallReads(self))
