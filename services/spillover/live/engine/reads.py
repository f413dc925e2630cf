"""Where the bytes of a connection are read to, which a protocol decides that stands in for the
connection's own. What they mean is not known here.
"""

from __future__ import annotations

import asyncio
import threading

SHARED_BYTES = 786_432
"""More than can lie decrypted: up to 256 KiB that a loop lets gather, and one read of as much."""


class StandIn(asyncio.BufferedProtocol):
    """Tells the protocol of a connection all that its transport tells, but what has been read."""

    __slots__ = ("_owner",)

    def __init__(self, owner: asyncio.Protocol) -> None:
        self._owner = owner

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._owner.connection_made(transport)

    def eof_received(self) -> bool | None:
        return self._owner.eof_received()

    def pause_writing(self) -> None:
        self._owner.pause_writing()

    def resume_writing(self) -> None:
        self._owner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.connection_lost(exc)


class _Buffers(threading.local):
    """One for each thread that has a loop: what is read is taken out before anything else is."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(SHARED_BYTES))


_buffers = _Buffers()


class SharedReads(StandIn):
    """Has at most `size_bytes` read at once, into a buffer that the thread's connections share.

    A loop would make 256 KiB for each read, and with TLS for each record of 16 KiB, and join them.
    """

    __slots__ = ("_view",)

    def __init__(self, owner: asyncio.Protocol, size_bytes: int = SHARED_BYTES) -> None:
        super().__init__(owner)
        self._view = _buffers.view[:size_bytes]

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint  # of what the loop would read
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        self._owner.data_received(bytes(self._view[:nbytes]))


def take_over(transport: asyncio.Transport, protocol: asyncio.BaseProtocol) -> None:
    """Have it read as this protocol does: uvloop looks at that only when reading begins."""
    if transport.is_reading():
        transport.pause_reading()
    transport.set_protocol(protocol)
    transport.resume_reading()
