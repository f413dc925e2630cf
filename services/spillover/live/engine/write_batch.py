"""Writes of one turn of the event loop, done together at its end.

A write wakes whoever reads at the other end, and that costs the writer more than all else about a
small request. Where several answers or forwards of one turn go to one process, it wakes once if
they come together. Measured with twelve requests in flight from one process: 80 us of CPU time for
each without this, 52 us with it.
"""

from __future__ import annotations

import asyncio
from typing import TypeAlias

Buffer: TypeAlias = bytes | memoryview

JOIN_LIMIT_BYTES = 16_384
"""Up to here copying two parts into one is cheaper than a vectored write."""

RECORD_BYTES = 16_384
"""The largest record of TLS. Each costs both ends two to three microseconds, however little is in
it."""


class WriteBatch:
    """Joins the writes of one loop. What goes to one connection goes in order, and later by less
    than a turn."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.waiting: list[tuple[asyncio.WriteTransport, tuple[Buffer, ...]]] = []
        """What has not left yet."""

    def write(self, transport: asyncio.WriteTransport, *parts: Buffer) -> None:
        """Write all parts at the end of this turn, unless the connection is closed by then."""
        if not self.waiting:
            self._loop.call_soon(self.flush)
        self.waiting.append((transport, parts))

    def holds(self, transport: asyncio.WriteTransport) -> bool:
        """Returns whether anything for this connection has not left yet."""
        return any(one is transport for one, _ in self.waiting)

    def flush(self) -> None:
        """Write all of it now. Comes before anything that is written without this."""
        writes, self.waiting = self.waiting, []
        for transport, parts in writes:
            if transport.is_closing():
                continue
            if len(parts) == 1:
                transport.write(parts[0])
            elif len(parts) == 2 and len(parts[1]) <= JOIN_LIMIT_BYTES:
                transport.write(b"".join(parts))
            elif transport.get_extra_info("ssl_object") is None:
                transport.writelines([part for part in parts if part])  # asyncio minds empty ones
            else:
                transport.writelines(filling_records(parts))


def filling_records(parts: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
    """Returns the same bytes, the short parts joined with the beginning of the last: loops have
    each part encrypted by itself."""
    *before, last = parts
    begun = b"".join(before)
    room = RECORD_BYTES - len(begun) % RECORD_BYTES
    first = b"".join((begun, memoryview(last)[:room]))
    return (first, memoryview(last)[room:]) if len(last) > room else (first,)
