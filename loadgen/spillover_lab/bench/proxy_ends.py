"""Both ends of what passes through: the service behind the doors, as cheap as can be, and the
clients that open streams, note what comes of them and when, and leave them. Each is a process.

The service's answers are streams of events, each of which says when it was written. Nothing is
bounded or checked there: who asks is ours. What the figures mean is not known here.
"""

from __future__ import annotations

import asyncio
import gc
import re
import socket
import time
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from multiprocessing.connection import Connection
from typing import Any, cast
from urllib.parse import urlsplit

from spillover.live.process.listening import bind_socket
from spillover.model.errors import RunError
from spillover.model.statistics import percentile
from spillover_lab.bench.servers import HOST
from spillover_lab.processes.child import Worker

# --- the service ----------------------------------------------------------------------------------


TICK_S = 0.001
MARK = b"data: "
TIME_DIGITS = 20
END = b"~"
"""At the end of each event, and nowhere else in an answer."""

PART = bytes(65_536)
"""A part of a large answer."""

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


async def serve_service(connection: Connection) -> None:
    """Runs until the benchmark ends it: tells its port, and each time that it is asked, when the
    connections were lost on which streams were, by number."""
    loop = asyncio.get_running_loop()
    ticker = _Ticker(loop)
    with bind_socket(HOST, 0) as listening:
        async with await loop.create_server(lambda: _Served(ticker), sock=listening):
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
        """The number of the stream that is under way."""
        self._turn = 0
        """The turn of the answer, so that what is due of the one before comes to nothing."""
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


# --- the clients ----------------------------------------------------------------------------------


ANSWER_WITHIN_S = 20.0
JOB_EXTRA_S = 60.0
LONG = 1_000_000_000
"""Events of a stream that outlasts every benchmark."""
RECEIVE_BYTES = 65_536
"""In the kernel, of a client that does not read: so that little is there."""
OPENED_AT_ONCE = 50
SPREAD_S = 0.02
"""Within which streams of a longer period begin, too."""

_HEAD = b"GET %b HTTP/1.1\r\nHost: service\r\n\r\n"


class Kept:
    """The process keeps what its jobs leave open."""

    def __init__(self) -> None:
        gc.freeze()
        self.streams: dict[int, _Reader] = {}
        self.unread: list[_Reader] = []
        self.idle: dict[str, list[_Reader]] = {}
        self.numbers = count(1)
        self.delays_ns: list[int] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """So many more streams at `url`, each with an event every `period_ms`, one after another in
    such a way that they do not come all at once. Gives nothing, once each has its first event."""

    url: str
    streams: int
    period_ms: float
    size_bytes: int

    async def run(self, kept: Kept) -> None:
        begun_s = time.monotonic()
        limit = asyncio.Semaphore(OPENED_AT_ONCE)

        async def begin(place: int) -> None:
            async with limit:
                reader = await _connected(self.url, kept.delays_ns)
                await asyncio.sleep(self.begins_in_s(place, time.monotonic() - begun_s))
                number = next(kept.numbers)
                target = stream_target(
                    number, period_ms=self.period_ms, count=LONG, size_bytes=self.size_bytes
                )
                await reader.first(target)
                kept.streams[number] = reader

        await asyncio.gather(*(begin(place) for place in range(self.streams)))

    def begins_in_s(self, place: int, passed_s: float) -> float:
        """Returns for how long the stream at this place still waits, so long after opening began:
        until its place in the period comes, in this period or the next."""
        within_s = min(self.period_ms / 1e3, SPREAD_S)
        return (place * within_s / self.streams - passed_s) % within_s


@dataclass(frozen=True, slots=True)
class Arrived:
    """Events, and of those the delay from being written until read, in ms."""

    events: int
    took_s: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What comes of the open streams for `duration_s`. Gives `Arrived`."""

    duration_s: float

    async def run(self, kept: Kept) -> Arrived:
        readers = list(kept.streams.values())
        before = sum(reader.events for reader in readers)
        kept.delays_ns.clear()
        begun_s = time.monotonic()
        await asyncio.sleep(self.duration_s)
        took_s = time.monotonic() - begun_s
        events = sum(reader.events for reader in readers) - before
        delays_ms = [ns / 1e6 for ns in sorted(kept.delays_ns)]
        if not delays_ms or any(reader.is_lost for reader in readers):
            raise RunError("a stream broke off, or none came")
        return Arrived(events, took_s, percentile(delays_ms, 0.5), percentile(delays_ms, 0.99))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """New streams of one event each, `rate_per_s` of them, beside the open ones. Gives the times
    until the first byte in ms, in ascending order."""

    url: str
    rate_per_s: float
    duration_s: float
    size_bytes: int

    async def run(self, kept: Kept) -> list[float]:
        idle = kept.idle.setdefault(self.url, [])
        took_ms: list[float] = []

        async def ask() -> None:
            reader = idle.pop() if idle else await _connected(self.url, [])
            target = stream_target(0, period_ms=1.0, count=1, size_bytes=self.size_bytes)
            took_ms.append(await reader.first(target) / 1e6)
            await reader.whole()
            idle.append(reader)

        tasks = []
        begun_s = time.monotonic()
        for turn in range(round(self.duration_s * self.rate_per_s)):
            await asyncio.sleep(begun_s + turn / self.rate_per_s - time.monotonic())
            tasks.append(asyncio.create_task(ask()))
        await asyncio.gather(*tasks)
        return sorted(took_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """All open streams are left, one each `every_s`. Gives when, by number, in ns of
    `time.monotonic_ns`."""

    every_s: float

    async def run(self, kept: Kept) -> dict[int, int]:
        left = {}
        begun_s = time.monotonic()
        for turn, (number, reader) in enumerate(kept.streams.items()):
            await asyncio.sleep(begun_s + turn * self.every_s - time.monotonic())
            left[number] = time.monotonic_ns()
            reader.leave()
        kept.streams.clear()
        for reader in kept.unread:
            reader.leave()
        kept.unread.clear()
        return left


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """So many answers of `size_bytes` are asked for and never read. Gives nothing."""

    url: str
    answers: int
    size_bytes: int

    async def run(self, kept: Kept) -> None:
        for _ in range(self.answers):
            reader = await _connected(self.url, [], RECEIVE_BYTES)
            reader.ask_unread(large_target(self.size_bytes))
            kept.unread.append(reader)


class Readers(Worker):
    """The process is there on entry and ended on exit, and with it all its connections."""

    def __init__(self) -> None:
        super().__init__("the process of the clients", Kept)

    async def ask(self, job: Opened | Counted | Asked | Left | Unread) -> Any:
        """Does the job. Raises RunError if what comes is not what was asked for."""
        return await self.do(job, getattr(job, "duration_s", 0.0) + JOB_EXTRA_S)


async def _connected(url: str, delays_ns: list[int], receive_bytes: int | None = None) -> _Reader:
    place = urlsplit(url)
    opened = socket.socket()
    opened.setblocking(False)  # noqa: FBT003 - as the system has it
    if receive_bytes is not None:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(ANSWER_WITHIN_S):
        await loop.sock_connect(opened, (place.hostname, place.port))
    _, reader = await loop.create_connection(lambda: _Reader(loop, delays_ns), sock=opened)
    return reader


class _Reader(asyncio.Protocol):
    """A client: one stream after another."""

    def __init__(self, loop: asyncio.AbstractEventLoop, delays_ns: list[int]) -> None:
        self._loop = loop
        self._delays_ns = delays_ns
        self._transport = cast("asyncio.Transport", None)
        self._first: asyncio.Future[int] | None = None
        self._whole: asyncio.Future[None] = loop.create_future()
        self._asked_ns = 0
        self.events = 0
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, _: Exception | None) -> None:
        self.is_lost = True
        for waiting in (self._first, self._whole):
            if waiting is not None and not waiting.done():
                waiting.set_exception(RunError("the connection broke"))
                waiting.exception()

    def data_received(self, data: bytes) -> None:
        now_ns = time.monotonic_ns()
        first = self._first
        if first is not None:
            self._first = None
            if data.startswith(b"HTTP/1.1 200 "):
                first.set_result(now_ns - self._asked_ns)
            else:
                first.set_exception(RunError(f"expected a stream, got {data[:300]!r}"))
        self.events += data.count(END)
        at = data.find(MARK)
        while at >= 0:
            digits = data[at + len(MARK) : at + len(MARK) + TIME_DIGITS]
            if len(digits) == TIME_DIGITS:
                self._delays_ns.append(now_ns - int(digits))
            at = data.find(MARK, at + len(MARK))
        if (data == _LAST or data.endswith(b"\r\n" + _LAST)) and not self._whole.done():
            self._whole.set_result(None)

    async def first(self, target: str) -> int:
        """Asks; returns how long the first byte took, in ns."""
        first: asyncio.Future[int] = self._loop.create_future()
        self._first = first
        self._whole = self._loop.create_future()
        self._asked_ns = time.monotonic_ns()
        self._transport.write(_HEAD % target.encode())
        async with asyncio.timeout(ANSWER_WITHIN_S):
            return await first

    async def whole(self) -> None:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            await self._whole

    def ask_unread(self, target: str) -> None:
        self._transport.pause_reading()
        self._transport.write(_HEAD % target.encode())

    def leave(self) -> None:
        self._transport.abort()
