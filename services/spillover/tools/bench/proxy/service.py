"""The service behind the doors: as cheap as can be, in a process of its own. Its answers are
streams of events, each of which says when it was written.

Nothing is bounded or checked here: who asks is ours.
"""

from __future__ import annotations

import asyncio
import gc
import re
import time
from heapq import heappop, heappush
from multiprocessing.connection import Connection
from typing import cast

import uvloop

from spillover.live.process.listening import bind_socket
from spillover.tools.bench.servers import HOST

TICK_S = 0.001
MARK = b"data: "
TIME_DIGITS = 20
END = b"~"
"""At the end of each event, and nowhere else in an answer."""

PART = bytes(65_536)
"""Of a large answer."""

_TARGET = re.compile(rb"GET /(stream|large)/([0-9]+)(?:/([0-9]+)/([0-9]+)/([0-9]+))? HTTP")
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *([0-9]+)")
_EVENTS = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
_LARGE = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
_SMALL = (
    b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{"ok":true}'
)
_LAST = b"0\r\n\r\n"


def stream_target(number: int, *, period_ms: float, count: int, size_bytes: int) -> str:
    """Returns where so many events of this size come, the first at once, one each `period_ms`.
    `number` names the stream."""
    return f"/stream/{number}/{round(period_ms * 1e3)}/{count}/{size_bytes}"


def large_target(size_bytes: int) -> str:
    """Returns where an answer of this length comes, as fast as it is read."""
    return f"/large/{size_bytes}"


def serve_service(connection: Connection) -> None:
    """What the process does, until the benchmark ends it: tells its port, and each time that it is
    asked, when the connections were lost on which streams were, by number."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(connection))


async def _serve(connection: Connection) -> None:
    ticker = _Ticker(asyncio.get_running_loop())
    with bind_socket(HOST, 0) as listening:
        server = await asyncio.get_running_loop().create_server(
            lambda: _Served(ticker), sock=listening
        )
        async with server:
            gc.collect()
            gc.freeze()
            connection.send(listening.getsockname()[1])
            while True:
                await asyncio.to_thread(connection.recv)
                lost, ticker.lost = ticker.lost, {}
                connection.send(lost)


class _Ticker:
    """Looks each millisecond which streams are due: one timer for all."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due: list[tuple[float, int, _Served, int]] = []
        self._order = 0
        self._ticks = False
        self.lost: dict[int, int] = {}

    def at(self, due_s: float, served: _Served, turn: int) -> None:
        self._order += 1
        heappush(self._due, (due_s, self._order, served, turn))
        if not self._ticks:
            self._ticks = True
            self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        due, now_s = self._due, time.monotonic()
        while due and due[0][0] <= now_s:
            due_s, _, served, turn = heappop(due)
            served.next_event(due_s, turn)
        self._ticks = bool(due)
        if self._ticks:
            self._loop.call_later(TICK_S, self._tick)


class _Served(asyncio.Protocol):
    """A connection: one answer after the other."""

    def __init__(self, ticker: _Ticker) -> None:
        self._ticker = ticker
        self._transport = cast("asyncio.Transport", None)
        self._received = b""
        self._number: int | None = None
        """Of the stream that is under way."""
        self._turn = 0
        """Of the answer, so that what is due of the one before comes to nothing."""
        self._period_s = 0.0
        self._left = 0
        self._size_bytes = 0
        self._large_bytes = 0
        self._is_behind = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, _: Exception | None) -> None:
        self._turn += 1
        if self._number is not None:
            self._ticker.lost[self._number] = time.monotonic_ns()

    def pause_writing(self) -> None:
        self._is_behind = True

    def resume_writing(self) -> None:
        self._is_behind = False
        self._write_large()

    def data_received(self, data: bytes) -> None:
        received = self._received + data
        end = received.find(b"\r\n\r\n") + 4
        if end < 4:
            self._received = received
            return
        length = _LENGTH.search(received, 0, end)
        if length is not None and len(received) < end + int(length[1]):
            self._received = received
            return
        self._received = b""
        target = _TARGET.match(received)
        if target is None:
            self._transport.write(_SMALL)
        elif target[1] == b"large":
            self._large_bytes = int(target[2])
            self._transport.write(_LARGE % self._large_bytes)
            self._write_large()
        else:
            self._begin(*map(int, target.groups()[1:]))

    def _begin(self, number: int, period_us: int, count: int, size_bytes: int) -> None:
        self._turn += 1
        self._number = number
        self._period_s, self._left, self._size_bytes = period_us / 1e6, count, size_bytes
        self._transport.write(_EVENTS)
        self.next_event(time.monotonic(), self._turn)

    def next_event(self, due_s: float, turn: int) -> None:
        """Write one, unless the client reads more slowly than they come."""
        if turn != self._turn:
            return
        if not self._is_behind:
            told = b"%b%0*d" % (MARK, TIME_DIGITS, time.monotonic_ns())
            event = told.ljust(self._size_bytes - 1, b".") + END
            self._left -= 1
            last = b"" if self._left else _LAST
            self._transport.write(b"%x\r\n%b\r\n%b" % (len(event), event, last))
        if self._left:
            self._ticker.at(due_s + self._period_s, self, turn)
        else:
            self._number = None

    def _write_large(self) -> None:
        while self._large_bytes and not self._is_behind:
            part = PART[: self._large_bytes]
            self._large_bytes -= len(part)
            self._transport.write(part)
