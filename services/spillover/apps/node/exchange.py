"""One request on a connection as the hot paths see it: reading the body within its limits, knowing
when the client has gone, and answering with one write.

ASGI's own `receive` and `send` would do, at twice the cost: a task for each request that waits, one
more to be told of a disconnect, and half a dozen calls to answer. What uvicorn keeps of a request
(its cycle) is touched here and in `http_protocol`, nowhere else.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from spillover.apps.node.problems import Problem
from spillover.live.engine.moving import Moving
from spillover.live.engine.write_batch import write_parts

if TYPE_CHECKING:
    from spillover.apps.node.direct_path import DirectPath

DISCARD_LIMIT_BYTES = 16 * 1024 * 1024
"""What is read and thrown away of a body that is too large, so that its sender, who may not look
up before all is sent, gets to read why. Beyond that the connection is simply closed."""

NO_ROOM = "the cluster holds as many bytes of requests and answers as it may (held_limit_bytes)"
NO_ROOM_S = 1.0
"""When to try again what was not even read."""

CLOSE = (b"connection", b"close")


class ClientGone(Exception):
    """The client went away before its request was read."""


@dataclass(slots=True)
class Framing:
    """What the headers tell of the body."""

    length_bytes: int = 0
    """0 also where it is not told."""
    awaits_continue: bool = False
    """The client sends the body only once it is asked to."""

    @classmethod
    def of(cls, headers: Mapping[bytes, bytes]) -> Framing:
        awaits_continue = headers.get(b"expect", b"").lower() == b"100-continue"
        return cls(int(headers.get(b"content-length", 0)), awaits_continue)


class ReplyTo(ABC):
    """A request that is being answered, as whoever answers it sees it."""

    __slots__ = ()

    method: str
    path: str
    headers: list[tuple[bytes, bytes]]
    begun_s: float | None
    """When its head had come, by the loop's clock, if its body has been waited for."""

    @abstractmethod
    def take_body(self, limit_bytes: int) -> bytes | None:
        """Returns the body, if all of it is here and it is not too large."""

    @abstractmethod
    def watch(self, on_gone: Callable[[], None]) -> None:
        """Be told if the other side disconnects before `answer`; at once if it has."""

    @abstractmethod
    def answer_raw(
        self, status: int, header_lines: bytes, body: bytes, *, close: bool = False
    ) -> None:
        """The whole answer, in one write at the end of the loop's turn, with the lines of the
        header as they are sent; the body's length is added here. Does nothing if the other side
        has gone."""

    def answer(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """As `answer_raw`, with the header taken apart."""
        lines = b"".join([b"%b: %b\r\n" % header for header in headers])
        self.answer_raw(status, lines, body, close=CLOSE in headers)

    def refuse(self, problem: Problem) -> None:
        """Answer with a problem."""
        self.answer(problem.status, problem.all_headers(), problem.body())


class Exchange(ReplyTo):
    """One that has a task. Made by the protocol, taken out of the scope once."""

    __slots__ = (
        "_cycle",
        "_protocol",
        "begun_s",
        "header_lines",
        "headers",
        "is_of_page",
        "method",
        "path",
        "scope",
    )

    def __init__(self, protocol: DirectPath, cycle: RequestResponseCycle) -> None:
        self._protocol = protocol
        self._cycle = cycle
        self.scope = cycle.scope
        self.method = cycle.scope["method"]
        self.path = cycle.scope["path"]
        self.headers: list[tuple[bytes, bytes]] = cycle.scope["headers"]  # type: ignore[assignment]
        self.begun_s: float | None = None
        self.is_of_page = False
        """Whether its head tells that a browser sends it."""
        self.header_lines = b""
        """That go with the answer, whatever it is."""

    @property
    def came_whole(self) -> bool:
        """Returns whether all of the body is here."""
        return not (self._cycle.more_body or self._cycle.waiting_for_100_continue)

    def take_body(self, limit_bytes: int) -> bytes | None:
        cycle = self._cycle
        if not self.came_whole or len(cycle.body) > limit_bytes:
            return None
        body = bytes(cycle.body)
        cycle.body = bytearray()  # one copy is enough to wait with
        return body

    async def read_body(self, framing: Framing, limit_bytes: int, timeout_s: float) -> bytes:
        """Returns the whole body. Raises Problem `too_large`, `deadline_exceeded` or
        `body_too_slow`, and ClientGone.

        A client that has not read the last answer is waited for: answers must not pile up.
        """
        cap_s = self._protocol.body_timeout_s
        try:
            async with asyncio.timeout(min(timeout_s, cap_s)):
                await self._cycle.flow.drain()
                body = self.take_body(limit_bytes)
                return body if body is not None else await self._read(framing, limit_bytes)
        except TimeoutError:
            if cap_s < timeout_s:
                raise body_too_slow(cap_s) from None
            detail = "the deadline passed before the request was read"
            raise Problem("deadline_exceeded", detail, headers=[CLOSE]) from None

    async def _read(self, framing: Framing, limit_bytes: int) -> bytes:
        if framing.length_bytes > limit_bytes and framing.awaits_continue:
            raise too_large(limit_bytes, whole=False)
        parts = _Parts(self._protocol.moving)
        size = 0
        more = True
        try:
            while more and size <= limit_bytes + DISCARD_LIMIT_BYTES:
                message = cast("dict[str, Any]", await self._cycle.receive())
                if message["type"] == "http.disconnect":
                    raise ClientGone
                part: bytes = message.get("body", b"")
                more = message.get("more_body", False)
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
        if self._cycle.disconnected:
            on_gone()
        else:
            self._protocol.on_gone = on_gone

    def unwatch(self) -> None:
        self._protocol.on_gone = None

    @property
    def is_gone(self) -> bool:
        """Returns whether nothing that is written now can arrive. uvicorn tells only the newest
        request of a connection that the other side has gone.
        """
        return self._cycle.disconnected or self._cycle.transport.is_closing()

    async def answered(self) -> None:
        """Return when it has been answered, or the other side has gone."""
        cycle = self._cycle
        while not (cycle.response_complete or cycle.disconnected):
            cycle.message_event.clear()
            await cycle.message_event.wait()

    def answer_raw(
        self, status: int, header_lines: bytes, body: bytes, *, close: bool = False
    ) -> None:
        cycle = self._cycle
        self._protocol.on_gone = None
        if cycle.disconnected:
            return
        cycle.response_started = cycle.response_complete = True
        if not close and (cycle.waiting_for_100_continue or not cycle.keep_alive):
            # Not asked for, the body may come or not: what follows would mean nothing.
            close = True
            header_lines += b"connection: close\r\n"
        cycle.waiting_for_100_continue = False
        header_lines += self.header_lines
        head = b"%b%bcontent-length: %d\r\n\r\n" % (STATUS_LINE[status], header_lines, len(body))
        if self.method == "HEAD":
            body = b""
        if close:
            self._protocol.writes.flush()
            write_parts(cycle.transport, head, body)
            cycle.transport.close()
        else:
            self._protocol.writes.write(cycle.transport, head, body)
        cycle.message_event.set()
        cycle.on_response()

    def write_piece(self, piece: bytes) -> None:
        """One more piece of an answer that was begun through ASGI without a length. It is left out
        while the other side does not read, and before the answer has begun."""
        cycle = self._cycle
        transport = cycle.transport
        if cycle.response_started and not (cycle.flow.write_paused or transport.is_closing()):
            transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))

    def break_off(self) -> None:
        """Close the connection without an answer."""
        self._protocol.on_gone = None
        self._cycle.disconnected = True
        self._cycle.transport.abort()


class _Parts:
    """Of a body that comes slowly. They count as moving; what there is no room for is not kept, but
    read to its end, so that its sender gets to read why."""

    __slots__ = ("_is_kept", "_moving", "_parts", "_size_bytes")

    def __init__(self, moving: Moving) -> None:
        self._moving = moving
        self._parts: list[bytes] = []
        self._size_bytes = 0
        self._is_kept = True

    def add(self, part: bytes) -> None:
        if not self._is_kept:
            return
        self._parts.append(part)
        self._size_bytes += len(part)
        self._moving.add(len(part))
        if self._moving.is_too_much:
            self._is_kept = False
            self.clear()

    def clear(self) -> None:
        self._parts.clear()
        self._moving.add(-self._size_bytes)
        self._size_bytes = 0

    def joined(self) -> bytes:
        """Returns the body. Raises Problem `queue_full` where it was not kept."""
        if not self._is_kept:
            raise Problem("queue_full", NO_ROOM, retry_after_s=NO_ROOM_S)
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)


def body_too_slow(timeout_s: float) -> Problem:
    """Returns the problem of a body that takes too long: what is left of it may still come, so that
    nothing else can.
    """
    detail = f"expected the whole body of a request within {timeout_s:g} s"
    return Problem("body_too_slow", detail, headers=[CLOSE])


def too_large(limit_bytes: int, *, whole: bool, name: str | None = None) -> Problem:
    """Returns the problem of a body that is too large: a connection on which not the whole of it
    was read cannot be used again.
    """
    detail = f"expected a body of at most {limit_bytes} bytes"
    return Problem("too_large", detail, id=name, headers=[] if whole else [CLOSE])
