"""A client that has closed its half of the connection behind its request: does it wait for the
answer, or is it gone? To the machine that it was connected to both look the same, until something
is sent: a client that is gone answers with a reset, and the next write fails.

So the answer is begun early, a byte at a time: what every answer begins with is known before it is.
A client that waits gets the answer that it would have got, to the byte (decision 0033).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from spillover.live.engine.write_batch import Buffer

BEGINNING = b"HTTP/1.1 "
"""The beginning of every answer, interim ones too."""

BEGUN_AT_S = (0.0, 0.0, 0.002, 0.02, 0.2, 1.0, 4.0, 15.0, 45.0)
"""When each byte of it is sent, from the client's end on, each in another turn of the loop. Who is
gone by one of them is found out by the next, or by the one after that if the way there and back
takes longer. The first are close together, since most who are gone are gone from the start: on the
same machine a reset is there before the next turn."""


class _Bytewise:
    """Writes something a byte at a time, until it is stopped."""

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, whole: bytes
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._whole = whole
        self._begun_s = loop.time()
        self._sent = 0
        self._timer: asyncio.TimerHandle | None = None
        self._send_next()

    def stop(self) -> None:
        """Send nothing more by itself."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send_next(self) -> None:
        self._timer = None
        if self._transport.is_closing():
            return
        sent = self._sent
        self._transport.write(self._whole[sent : sent + 1])
        self._sent = sent + 1
        if self._sent < len(BEGUN_AT_S):
            due_s = self._begun_s + BEGUN_AT_S[self._sent]
            self._timer = self._loop.call_at(due_s, self._send_next)


class HalfClosed(_Bytewise):
    """Stands in for the transport of such a connection, from when it has one answer left to give.

    It fails as the transport does: whoever answers is told by `connection_lost`.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(transport, loop, BEGINNING)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: Buffer) -> None:
        """The answer, or the first part of it, and then what follows."""
        self._transport.write(self._rest_of(data))

    def writelines(self, parts: Iterable[Buffer]) -> None:
        """Write as `write` does; the first part is at least the status line."""
        first, *others = parts
        self._transport.writelines((self._rest_of(first), *others))

    def _rest_of(self, data: Buffer) -> Buffer:
        self.stop()
        sent, self._sent = self._sent, 0
        return data[sent:]


class BetweenChunks(_Bytewise):
    """Finds out the same where a body in chunks is under way, of which perhaps nothing more comes
    for long: zeros are sent, with which the length of the next chunk may begin. It is stopped when
    something else follows than a chunk."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(transport, loop, b"0" * len(BEGUN_AT_S))
