"""The bytes that leave one end of a shared connection, and their order. There is no socket here:
its owner asks what is `due`.

Small messages leave in the order in which they were given. Large ones, and bodies for which a
reader has not asked yet, wait in chunks of which each request has one in its turn: so nobody waits
for another's body longer than for a chunk of it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from spillover.live.engine.write_batch import Buffer
from spillover.live.overflow.frames.frame import (
    CHUNK_BYTES,
    FRAME,
    LENGTH,
    MESSAGE,
    MORE,
    MORE_MAX_BYTES,
    BadFrame,
)

WINDOW_BYTES: Final = 65_536
"""The bytes of a body that passes through that may be sent before its reader asks for more."""


@dataclass(slots=True, eq=False)
class RequestFrames:
    """One request on a connection, as one of the two ends sees it."""

    number: int

    # What is sent.
    waiting: deque[memoryview] | None = None
    """The parts of a message or a body that have not left."""
    waiting_bytes: int = 0
    window_bytes: int = 0
    """The bytes of a body that may leave. Messages need none: they are as long as was told."""
    last: bytes | None = None
    """The frame that leaves behind all that waits of the request."""
    on_flow: Callable[[bool], None] | None = None
    """Called with True when a body begins to wait, and with False when nothing of it waits."""
    ends_at_bytes: float = math.inf
    """The bytes that have left the connection once all of the request has."""

    # What is received.
    kind: int = 0
    """The kind of message that has begun to come; 0 if none has."""
    told: list[bytes] = field(default_factory=list)
    """The parts of that message."""
    left_bytes: int = 0
    """The bytes of it that are still to come."""
    since_s: float = 0.0
    """The time when it began to come."""
    allowed_bytes: int = WINDOW_BYTES
    """The bytes of a body that may still come unasked."""
    wide_bytes: int = WINDOW_BYTES
    """The bytes that are to be allowed at most."""
    paused: bool = False
    is_held: bool = False
    """Whether the other end was told to send nothing more of the body, and has not said how much it
    held."""
    anew_bytes: int = 0
    """The bytes of `allowed_bytes` that were asked for since, and are not held back."""

    @property
    def whole_bytes(self) -> int:
        """Returns how long the message is that has begun to come."""
        return sum(map(len, self.told)) + self.left_bytes

    def begin(self, kind: int, told: bytes, now_s: float) -> bytes | None:
        """Begin to receive a message, with the frame that begins it. Returns the whole message if
        that is all. Raises BadFrame."""
        (size_bytes,) = LENGTH.unpack_from(told)
        self.left_bytes = size_bytes - len(told) + LENGTH.size
        if not self.left_bytes:
            return told[LENGTH.size :]
        if self.left_bytes < 0:
            raise BadFrame(f"expected a message of {size_bytes} bytes, got more")
        self.kind, self.since_s = kind, now_s
        first = told[LENGTH.size :]
        self.told = [first] if first else []  # a message of one frame is not copied again
        return None

    def go_on(self, data: bytes) -> bytes | None:
        """Receive more of the message. Returns the whole message if that was the rest. Raises
        BadFrame."""
        if not self.kind or len(data) > self.left_bytes:
            raise BadFrame(f"expected {self.left_bytes} bytes more, got {len(data)}")
        self.told.append(data)
        self.left_bytes -= len(data)
        if self.left_bytes:
            return None
        message, self.told = b"".join(self.told), []
        return message


class Outgoing:
    """The bytes that are to leave one connection."""

    def __init__(self) -> None:
        self._soon: list[Buffer] = []
        self.soon_bytes = 0
        """The bytes that leave in order, of all requests."""
        self._ready: deque[RequestFrames] = deque()
        """The requests of which a chunk may leave."""
        self.waiting_bytes = 0
        """The bytes that leave in chunks, of all requests."""
        self.written_bytes = 0
        """The number of bytes that `due` has ever given out."""
        self.frames = 0
        """The number of frames that have left."""
        self.is_blocked = False
        """Whether the connection takes nothing now, so that bodies wait."""

    @property
    def unsent_bytes(self) -> int:
        """Returns how many bytes have not been given out."""
        return self.soon_bytes + self.waiting_bytes

    @property
    def is_due(self) -> bool:
        """Returns whether anything may leave."""
        return bool(self._soon or self._ready)

    def frame(self, kind: int, number: int, told: bytes = b"") -> None:
        """Send a frame behind the others that are short."""
        self._soon.append(FRAME.pack(len(told), number, kind) + told)
        self.soon_bytes += FRAME.size + len(told)
        self.frames += 1

    def message(self, stream: RequestFrames, kind: int, parts: tuple[Buffer, ...]) -> None:
        """Send a message, the parts of which follow each other."""
        size_bytes = 0
        for part in parts:
            size_bytes += len(part)
        self.frames += 1
        if size_bytes <= CHUNK_BYTES:
            head = MESSAGE.pack(size_bytes + LENGTH.size, stream.number, kind, size_bytes)
            self._soon += (head, *parts)
            self.soon_bytes += MESSAGE.size + size_bytes
            stream.ends_at_bytes = self.written_bytes + self.soon_bytes
            return
        self._soon.append(MESSAGE.pack(LENGTH.size, stream.number, kind, size_bytes))
        self.soon_bytes += MESSAGE.size
        stream.window_bytes = size_bytes
        for part in parts:
            self._wait(stream, part)

    def piece(self, stream: RequestFrames, data: bytes) -> None:
        """Send a piece of a body, as far as its reader has asked for."""
        size_bytes = len(data)
        if not size_bytes:
            return
        may_leave = size_bytes <= stream.window_bytes and not (
            stream.waiting_bytes or self.is_blocked
        )
        if may_leave and size_bytes <= CHUNK_BYTES:
            self._soon += (FRAME.pack(size_bytes, stream.number, MORE), data)
            self.soon_bytes += FRAME.size + size_bytes
            self.frames += 1
            stream.window_bytes -= size_bytes
        else:
            is_first = not stream.waiting_bytes
            self._wait(stream, data)
            if is_first and stream.on_flow is not None:
                stream.on_flow(stream.waiting_bytes > 0)

    def behind(self, stream: RequestFrames, kind: int, told: bytes) -> None:
        """Send a frame behind all that waits of the same request."""
        if stream.waiting_bytes:
            stream.last = FRAME.pack(len(told), stream.number, kind) + told
        else:
            self.frame(kind, stream.number, told)

    def widen(self, stream: RequestFrames, more_bytes: int) -> None:
        """Let so many more bytes of a body leave: its reader has asked for them."""
        had_none = stream.window_bytes <= 0
        stream.window_bytes += more_bytes
        if had_none and stream.waiting_bytes and stream.window_bytes > 0:
            self._ready.append(stream)

    def hold(self, stream: RequestFrames) -> int:
        """Let nothing more of a body leave until its reader asks for more again. Returns how many
        bytes it had asked for."""
        if stream.waiting_bytes and stream.window_bytes > 0:
            self._ready.remove(stream)
        held_bytes, stream.window_bytes = stream.window_bytes, 0
        return held_bytes

    def forget(self, stream: RequestFrames) -> None:
        """Send nothing more of a request; frames that have begun to leave are not taken back."""
        self.waiting_bytes -= stream.waiting_bytes
        stream.waiting, stream.waiting_bytes = None, 0
        stream.last = stream.on_flow = None

    def due(self, room_bytes: int) -> list[Buffer]:
        """Returns what leaves now: all that is short, and as much of the rest as there is room for,
        a chunk of each request in its turn."""
        parts, self._soon = self._soon, []
        size_bytes, self.soon_bytes = self.soon_bytes, 0
        ready = self._ready
        while ready and size_bytes < room_bytes:
            stream = ready.popleft()
            if not stream.waiting_bytes:
                continue  # the request was forgotten
            most_bytes = CHUNK_BYTES
            if not ready:  # with no other ready, it would have one chunk after the other
                most_bytes = min(max(CHUNK_BYTES, room_bytes - size_bytes), MORE_MAX_BYTES)
            chunk_bytes = min(most_bytes, stream.waiting_bytes, stream.window_bytes)
            parts.append(FRAME.pack(chunk_bytes, stream.number, MORE))
            _take(stream, chunk_bytes, parts)
            self.waiting_bytes -= chunk_bytes
            size_bytes += FRAME.size + chunk_bytes
            self.frames += 1
            if not stream.waiting_bytes:
                size_bytes += self._left(stream, parts)
                stream.ends_at_bytes = self.written_bytes + size_bytes
            elif stream.window_bytes > 0:
                ready.append(stream)
        self.written_bytes += size_bytes
        return parts

    def _left(self, stream: RequestFrames, parts: list[Buffer]) -> int:
        """Note that nothing of a request waits any more. Returns the length of the frame behind
        it."""
        last, stream.last, stream.waiting = stream.last, None, None
        if last is not None:
            parts.append(last)
            self.frames += 1
        if stream.on_flow is not None:
            stream.on_flow(stream.waiting_bytes > 0)
        return 0 if last is None else len(last)

    def _wait(self, stream: RequestFrames, data: Buffer) -> None:
        if not stream.waiting_bytes:
            stream.waiting = deque()
            if stream.window_bytes > 0:
                self._ready.append(stream)
        assert stream.waiting is not None  # noqa: S101 - what waits is there
        stream.waiting.append(memoryview(data))
        stream.waiting_bytes += len(data)
        self.waiting_bytes += len(data)


def _take(stream: RequestFrames, size_bytes: int, parts: list[Buffer]) -> None:
    """Take so many bytes of what waits."""
    assert stream.waiting is not None  # noqa: S101 - as above
    stream.waiting_bytes -= size_bytes
    stream.window_bytes -= size_bytes
    while size_bytes:
        part = stream.waiting.popleft()
        if len(part) > size_bytes:
            stream.waiting.appendleft(part[size_bytes:])
            part = part[:size_bytes]
        parts.append(part)
        size_bytes -= len(part)
