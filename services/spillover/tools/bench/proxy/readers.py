"""The process of the clients: it opens streams, notes what comes of them and when, and leaves them.

What the figures mean is not known here.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import time
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection
from typing import Any, TypeAlias, cast
from urllib.parse import urlsplit

import uvloop

from spillover.model.errors import RunError
from spillover.model.statistics import percentile
from spillover.tools.bench.proxy.service import END, MARK, TIME_DIGITS, large_target, stream_target
from spillover.tools.processes.child import Child

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
_LAST = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """So many more streams at `url`, each with an event every `period_ms`, one after another in
    such a way that they do not come all at once. Gives nothing, once each has its first event."""

    url: str
    streams: int
    period_ms: float
    size_bytes: int

    @property
    def begins_within_s(self) -> float:
        """Returns the time over which they begin."""
        return min(self.period_ms / 1e3, SPREAD_S)

    def begins_in_s(self, place: int, passed_s: float) -> float:
        """Returns for how long the stream at this place still waits, so long after opening began:
        until its place in the period comes, in this period or the next."""
        return (place * self.begins_within_s / self.streams - passed_s) % self.begins_within_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What comes of the open streams for `duration_s`. Gives `Arrived`."""

    duration_s: float


@dataclass(frozen=True, slots=True)
class Arrived:
    """Events, and of those the delay from being written until read, in ms."""

    events: int
    took_s: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """New streams of one event each, `rate_per_s` of them, beside the open ones. Gives the times
    until the first byte in ms, in ascending order."""

    url: str
    rate_per_s: float
    duration_s: float
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """All open streams are left, one each `every_s`. Gives when, by number, in ns of
    `time.monotonic_ns`."""

    every_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """So many answers of `size_bytes` are asked for and never read. Gives nothing."""

    url: str
    answers: int
    size_bytes: int


Job: TypeAlias = Opened | Counted | Asked | Left | Unread


class Readers(Child):
    """There on entry, ended on exit, and with it all its connections."""

    def __init__(self) -> None:
        super().__init__("the process of the clients", _work)

    async def do(self, job: Job) -> Any:
        """Does the job. Raises RunError if what comes is not what was asked for."""
        self.send(job)
        return await self.receive(getattr(job, "duration_s", 0.0) + JOB_EXTRA_S)


def _work(connection: Connection) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_Worker().do_jobs(connection))


class _Worker:
    """Does the jobs, and keeps what they leave open."""

    def __init__(self) -> None:
        self._streams: dict[int, _Reader] = {}
        self._unread: list[_Reader] = []
        self._idle: dict[str, list[_Reader]] = {}
        self._numbers = count(1)
        self._delays_ns: list[int] = []

    async def do_jobs(self, connection: Connection) -> None:
        gc.freeze()
        while True:
            job: Job = await asyncio.to_thread(connection.recv)
            try:
                connection.send(await self._do(job))
            except (OSError, RunError) as error:
                connection.send(RunError(f"a client: {error}"))

    async def _do(self, job: Job) -> Any:
        match job:
            case Opened():
                return await self._open(job)
            case Counted():
                return await self._count(job)
            case Asked():
                return await self._ask(job)
            case Left():
                return await self._leave(job)
            case Unread():
                return await self._do_not_read(job)

    async def _open(self, job: Opened) -> None:
        begun_s = time.monotonic()
        limit = asyncio.Semaphore(OPENED_AT_ONCE)

        async def begin(place: int) -> None:
            async with limit:
                reader = await _connected(job.url, self._delays_ns)
                await asyncio.sleep(job.begins_in_s(place, time.monotonic() - begun_s))
                number = next(self._numbers)
                target = stream_target(
                    number, period_ms=job.period_ms, count=LONG, size_bytes=job.size_bytes
                )
                await reader.first(target)
                self._streams[number] = reader

        await asyncio.gather(*(begin(place) for place in range(job.streams)))

    async def _count(self, job: Counted) -> Arrived:
        readers = list(self._streams.values())
        before = sum(reader.events for reader in readers)
        self._delays_ns.clear()
        begun_s = time.monotonic()
        await asyncio.sleep(job.duration_s)
        took_s = time.monotonic() - begun_s
        events = sum(reader.events for reader in readers) - before
        delays_ms = [ns / 1e6 for ns in sorted(self._delays_ns)]
        if not delays_ms or any(reader.is_lost for reader in readers):
            raise RunError("a stream broke off, or none came")
        return Arrived(events, took_s, percentile(delays_ms, 0.5), percentile(delays_ms, 0.99))

    async def _ask(self, job: Asked) -> list[float]:
        idle = self._idle.setdefault(job.url, [])
        took_ms: list[float] = []

        async def ask() -> None:
            reader = idle.pop() if idle else await _connected(job.url, [])
            target = stream_target(0, period_ms=1.0, count=1, size_bytes=job.size_bytes)
            took_ms.append(await reader.first(target) / 1e6)
            await reader.whole()
            idle.append(reader)

        tasks = []
        begun_s = time.monotonic()
        for turn in range(round(job.duration_s * job.rate_per_s)):
            await asyncio.sleep(begun_s + turn / job.rate_per_s - time.monotonic())
            tasks.append(asyncio.create_task(ask()))
        await asyncio.gather(*tasks)
        return sorted(took_ms)

    async def _leave(self, job: Left) -> dict[int, int]:
        left = {}
        begun_s = time.monotonic()
        for turn, (number, reader) in enumerate(self._streams.items()):
            await asyncio.sleep(begun_s + turn * job.every_s - time.monotonic())
            left[number] = time.monotonic_ns()
            reader.leave()
        self._streams.clear()
        for reader in self._unread:
            reader.leave()
        self._unread.clear()
        return left

    async def _do_not_read(self, job: Unread) -> None:
        for _ in range(job.answers):
            reader = await _connected(job.url, [], RECEIVE_BYTES)
            reader.ask_unread(large_target(job.size_bytes))
            self._unread.append(reader)


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
        """Waits for the end of the answer."""
        async with asyncio.timeout(ANSWER_WITHIN_S):
            await self._whole

    def ask_unread(self, target: str) -> None:
        self._transport.pause_reading()
        self._transport.write(_HEAD % target.encode())

    def leave(self) -> None:
        self._transport.abort()
