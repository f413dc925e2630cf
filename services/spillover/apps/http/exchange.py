"""One request on a connection, for whoever reads it and for whoever answers it: its body within its
limits, whether the client has gone, and the answer in one write.

Most requests have no task: whoever answers is called back. ASGI's own `receive` and `send`, which
`asgi` makes of an exchange, cost twice as much. Where requests come from is in `connection`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from spillover.apps.http.problems import BUG, Problem
from spillover.live.engine.moving import Moving
from spillover.live.engine.write_batch import Buffer, WriteBatch
from spillover.live.http1.large_bodies import LARGE_BYTES
from spillover.live.http1.rules import Malformed, Rule
from spillover.live.http1.server_connection import TooSlow
from spillover.live.http1.written import (
    CLOSE,
    CONTINUE,
    STATUS_LINE,
    USUAL,
    answer_head,
    head_lines,
)
from spillover.live.process.logs import Message, OncePerPeriod
from spillover.live.tls.certified import PeerCertificate

EXCHANGE = "spillover.exchange"
"""Where an ASGI scope carries the Exchange of its request."""

DISCARD_LIMIT_BYTES = 16 * 1024 * 1024
"""What is read and thrown away of a body that is too large, so that its sender, who may not look
up before all is sent, gets to read why. Beyond that it is answered, and the rest of the body is
read for a while (`lingering`)."""

NO_ROOM = "the cluster holds as many bytes of requests and answers as it may (held_limit_bytes)"
NO_ROOM_S = 1.0
"""When to try again what was not even read."""

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())

_NO_PIECES: list[bytes] = []
"""Nothing is added where no more of a body comes."""


class ClientGone(Exception):
    """The client went away before its request was read."""


class Switched(Protocol):
    """What a connection becomes that is no longer HTTP. It takes over when it is told to, and has
    `due_s`, `leave`, `shutdown`, `certificate` and `peer` like any other."""

    on_end: Callable[[], None] | None

    def take_over(self) -> None: ...


class Line(Protocol):
    """What an exchange needs of its connection."""

    transport: asyncio.Transport
    writes: WriteBatch
    moving: Moving | None
    write_paused: bool
    on_gone: Callable[[], None] | None
    """Called once when the connection is lost; whoever answers sets it back."""
    on_flow: Callable[[bool], None] | None
    """Is called with True when more is written than the other side reads, and with False when it
    has caught up."""
    unread: tuple[Exchange, Callable[[], None]] | None
    """The newest exchange if its answer may not have been read, and what to call if the other side
    resets the connection before anything else comes: who has read all of it closes in order."""
    peer: Any
    """Who is at the other end, once the app has settled that; None before."""
    certificate: PeerCertificate | None
    """That it has shown; None without one, or if that holds no more."""
    shown: Any
    """The API token that was shown last, for `access`; None before."""

    def read_on(self) -> None:
        """Go on reading, if that was paused."""

    def read_large(self, exchange: Exchange, size_bytes: int) -> None:
        """Read a body of that length to where it stays: its next part is all of it."""

    def switch(
        self, exchange: Exchange, head: bytes, make: Callable[[asyncio.Transport], Switched]
    ) -> bool:
        """Answer with this head, after which the connection is what is made for its transport.
        Returns whether that was done: only if nothing else is on it."""

    def answered(self, *, keep_alive: bool) -> None:
        """The answer is written. Without `keep_alive` it was the last one."""

    def lift_bound(self) -> None:
        """The time for an exchange ends here."""

    async def drained(self) -> None:
        """Return when the other side has read enough of what was written."""


@dataclass(slots=True, eq=False)
class Exchange:
    """One request. What says how far it has come is kept by its connection and by `asgi`, for
    everybody else to read."""

    connection: Line
    """It came on this one, with others before and after it."""
    method: str
    path: str
    query: bytes
    headers: list[tuple[bytes, bytes]]
    keep_alive: bool
    """Whether another request may follow on the connection."""
    is_old: bool = False
    """HTTP/1.0: a client of that is told if the connection stays."""
    awaits_continue: bool = False
    """The client waits to be asked for the body."""
    asked_as: bytes = b""
    """How another node of the site passes it on, whose client has asked; empty of a client's
    own."""
    is_of_page: bool = False
    """Whether its head tells that a browser sends it."""
    header_lines: bytes = b""
    """They go with the answer, whatever it is."""
    begun_s: float | None = None
    """When its head had come, by the loop's clock, if its body has been waited for."""
    pieces: list[bytes] = field(default_factory=list)
    """This much of the body has come and was not taken."""
    size_bytes: int = 0
    """The length of the pieces."""
    more_body: bool = True
    disconnected: bool = False
    """Whether nobody is there any more, or nobody who is owed an answer."""
    response_started: bool = False
    response_complete: bool = False
    news: asyncio.Event | None = None
    """Where it has a task: set when there is more of the body, and at the end of either side's
    part."""
    has_left_task: bool = False
    """Whether its answer goes on although its task has ended."""

    @property
    def length_bytes(self) -> int:
        """Returns how long the body is by its head; 0 also where that is not told."""
        return next((int(value) for name, value in self.headers if name == b"content-length"), 0)

    def take(self) -> bytes:
        """Returns what has come of the body since this was called last."""
        pieces = self.pieces
        self.pieces = [] if self.more_body else _NO_PIECES  # one copy is enough to wait with
        self.size_bytes = 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def next_part(self) -> bytes | None:
        """Returns what comes next of the body; nothing at its end, None if nobody waits for an
        answer any more."""
        if self.awaits_continue and not self.connection.transport.is_closing():
            self.connection.transport.write(CONTINUE)
            self.awaits_continue = False
        if not (self.disconnected or self.response_complete):
            self.connection.read_on()
            assert self.news is not None  # noqa: S101 - only tasks wait
            await self.news.wait()
            self.news.clear()
        return None if self.disconnected or self.response_complete else self.take()

    async def read_body(self, limit_bytes: int, timeout_s: float) -> bytes:
        """Returns the whole body. Raises Problem `too_large` or `deadline_exceeded`; ClientGone
        also where the connection has refused a body that comes too slowly.

        A client that has not read the last answer is waited for: answers must not pile up.
        """
        if self._is_here(limit_bytes) and not self.connection.write_paused:
            return self.take()  # as most come: a timer costs more than all else here
        try:
            async with asyncio.timeout(timeout_s):
                await self.connection.drained()
                return self.take() if self._is_here(limit_bytes) else await self._read(limit_bytes)
        except TimeoutError:
            detail = "the deadline passed before the request was read"
            raise Problem(
                "deadline_exceeded", detail, headers=[CLOSE], surely_not_run=True
            ) from None

    def _is_here(self, limit_bytes: int) -> bool:
        whole = not (self.more_body or self.awaits_continue)
        return whole and self.size_bytes <= limit_bytes

    async def _read(self, limit_bytes: int) -> bytes:
        if self.awaits_continue and self.length_bytes > limit_bytes:
            raise too_large(limit_bytes, whole=False)
        line, length_bytes = self.connection, self.length_bytes
        is_large = self.size_bytes + LARGE_BYTES < length_bytes <= limit_bytes
        if is_large and line.moving is None and self.keep_alive:  # else what follows means nothing
            line.read_large(self, length_bytes)
        parts = _Parts(line.moving)
        size = 0
        more = True
        try:
            while more and size <= limit_bytes + DISCARD_LIMIT_BYTES:
                part = await self.next_part()
                if part is None:
                    raise ClientGone
                more = self.more_body
                size += len(part)
                if size <= limit_bytes:
                    parts.add(part)
                else:
                    parts.clear()
            if size > limit_bytes:
                raise too_large(limit_bytes, whole=not more)
            return parts.joined()
        finally:
            parts.clear()

    def watch(self, on_gone: Callable[[], None]) -> None:
        """Have it called if the other side disconnects before the answer; at once if it has."""
        if self.disconnected:
            on_gone()
        elif not self.response_complete:
            self.connection.on_gone = on_gone

    def watch_reset(self, on_reset: Callable[[], None]) -> None:
        """Have it called if the other side, which has been sent the answer, throws it away."""
        self.connection.unread = (self, on_reset)

    def unwatch(self) -> None:
        self.connection.on_gone = None

    @property
    def is_gone(self) -> bool:
        """Returns whether nothing that is written now can arrive."""
        return self.disconnected or self.connection.transport.is_closing()

    async def answered(self) -> None:
        """Return when it has been answered, or the other side has gone."""
        assert self.news is not None  # noqa: S101 - only tasks wait
        while not (self.response_complete or self.disconnected):
            self.news.clear()
            await self.news.wait()

    def answer_raw(
        self, status: int, header_lines: bytes, body: bytes, *, close: bool = False
    ) -> None:
        """The whole answer, in one write at the end of the loop's turn, with the lines of the
        header as they are sent; the body's length is added here. Does nothing if the other side
        has gone."""
        # Not asked for, the body may come or not: what follows would mean nothing.
        keeps = self.keep_alive and not (close or self.awaits_continue)
        self.awaits_continue = False
        lines = header_lines + self.header_lines
        told = STATUS_LINE[status], lines, len(body)
        is_usual = keeps and not self.is_old
        head = (
            USUAL % told if is_usual else answer_head(*told, keep_alive=keeps, is_old=self.is_old)
        )
        line = self.connection
        line.on_gone = None
        if self.disconnected:
            return
        self.response_started = self.response_complete = True
        line.writes.write(line.transport, head, b"" if self.method == "HEAD" else body)
        if self.news is not None:
            self.news.set()
        line.answered(keep_alive=keeps)

    def answer(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """Answer as `answer_raw` does, with the header taken apart."""
        try:
            lines = head_lines([field for field in headers if field != CLOSE])
        except ValueError:
            _log.exception(Message("bug: a head that cannot be sent", path=self.path))
            self.refuse(Problem("internal", BUG))
            return
        self.answer_raw(status, lines, body, close=CLOSE in headers)

    def refuse(self, problem: Problem) -> None:
        self.answer(problem.status, problem.all_headers(), problem.body())

    def begin(self, head: bytes, on_flow: Callable[[bool], None]) -> None:
        """Begin an answer that comes in parts, all as they are sent: `head` is the first, `write`
        the others, `end` the last. `on_flow` is told True while the other side does not keep up.
        Does nothing if it has gone, as neither do the others."""
        if not self.disconnected:
            self.response_started = True
            self.connection.on_flow = on_flow
            self.connection.writes.flush()
            self.write(head)

    def leave_task(self) -> None:
        """The answer that has begun goes on without the task, which would take more memory than all
        else of a stream."""
        self.has_left_task, self.news = True, None

    def write(self, part: Buffer, *rest: Buffer) -> None:
        """More of an answer that has begun. It is written at once: what is not sent must be known
        before more of it is read."""
        transport = self.connection.transport
        if self.disconnected or transport.is_closing():
            return
        if rest:
            transport.writelines((part, *rest))
        else:
            transport.write(part)

    def end(self, *, close: bool = False) -> None:
        """The answer is whole."""
        line = self.connection
        line.on_gone = line.on_flow = None
        if self.disconnected:
            return
        self.response_complete = True
        if self.news is not None:
            self.news.set()
        line.answered(keep_alive=self.keep_alive and not close)

    def write_piece(self, piece: bytes) -> bool:
        """One more piece of an answer that was begun through ASGI without a length. It is left out
        while the other side does not read, and before the answer has begun. Returns whether it was
        written."""
        line = self.connection
        if not self.response_started or line.write_paused or line.transport.is_closing():
            return False
        line.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        return True

    def break_off(self) -> None:
        """Close the connection without an answer, or in the midst of one."""
        self.connection.on_gone = self.connection.on_flow = None
        self.disconnected = True
        self.connection.transport.abort()

    def take_over(self) -> Callable[[], None]:
        """Whoever calls this bounds the exchange from now on. Returns what breaks it off."""
        self.connection.lift_bound()
        return self.break_off


class _Parts:
    """The parts of a body that comes slowly. They count as moving; what there is no room for is not
    kept, but read to its end, so that its sender gets to read why."""

    __slots__ = ("_is_kept", "_moving", "_parts", "_size_bytes")

    def __init__(self, moving: Moving | None) -> None:
        self._moving = moving
        self._parts: list[bytes] = []
        self._size_bytes = 0
        self._is_kept = True

    def add(self, part: bytes) -> None:
        if not self._is_kept:
            return
        self._parts.append(part)
        self._count(len(part))
        if self._moving is not None and self._moving.is_too_much:
            self._is_kept = False
            self.clear()

    def clear(self) -> None:
        self._parts.clear()
        self._count(-self._size_bytes)

    def joined(self) -> bytes:
        """Returns the body. Raises Problem `queue_full` where it was not kept."""
        if not self._is_kept:
            raise Problem("queue_full", NO_ROOM, retry_after_s=NO_ROOM_S)
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    def _count(self, size_bytes: int) -> None:
        self._size_bytes += size_bytes
        if self._moving is not None:
            self._moving.add(size_bytes)


def body_too_slow(within_s: float, bytes_per_s: float | None = None) -> Problem:
    """Returns why the rest of a body is not awaited: it is not whole within this time, or comes
    with less than so many bytes a second over it. It may still come, so nothing else can."""
    detail = f"expected the whole body of a request within {within_s:g} s"
    if bytes_per_s is not None:
        detail += f", or at least {bytes_per_s:g} bytes/s of it over each {within_s:g} s"
    return Problem("body_too_slow", detail, headers=[CLOSE])


def unread(error: Exception) -> Problem:
    """Returns why what has come is not read on, which a bug may have kept from being read. It is
    the last on its connection."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, TooSlow):
        head_too_slow = Problem("head_too_slow", str(error))
        return body_too_slow(error.within_s, error.bytes_per_s) if error.of_body else head_too_slow
    if not isinstance(error, Malformed):
        _log.error(Message("internal error", what="a request"), exc_info=error)
        return Problem("internal", BUG)
    status = error.status
    if status == 501:
        return Problem("not_passed", str(error))
    if error.rule is Rule.LONG:
        return Problem("head_too_large", str(error))
    return Problem("malformed", str(error), own_status=None if status == 400 else status)


def too_large(limit_bytes: int, *, whole: bool, name: str | None = None) -> Problem:
    """Returns why a body is not taken. Where not the `whole` of it was read, the connection cannot
    be used again."""
    detail = f"expected a body of at most {limit_bytes} bytes"
    return Problem("too_large", detail, id=name, headers=[] if whole else [CLOSE])
