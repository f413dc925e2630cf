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


def read_in_parts(transport: asyncio.Transport, owner: asyncio.Protocol) -> None:
    """Have a new connection read so. With TLS, what is not read yet would be dropped when the other
    end closes: there all that has come is read at once, and while reading is paused no more than
    one part is taken from the socket, so that its end is not seen before what was sent."""
    if transport.get_extra_info("ssl_object") is None:
        transport.set_protocol(SmallReads(owner))
    else:
        transport.set_read_buffer_limits(high=1)  # type: ignore[attr-defined] # of TLS


class SmallReadsConnection(Connection):
    """A connection that is read so."""

    __slots__ = ()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        read_in_parts(self._transport, self)
