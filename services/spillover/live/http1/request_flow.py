"""What comes of a client on one connection: bytes and times in; requests out, one after another,
and what has taken too long. Pure; whoever has the connection does as it says.

Bytes become heads and bodies by `framing` and `heads`. What a request means is not known here.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import NamedTuple, TypeAlias

from spillover.live.http1.bounds import Bounds
from spillover.live.http1.framing import Body, HeadBytes
from spillover.live.http1.heads import RequestHead, read_request
from spillover.live.http1.rules import Malformed


class Begun(NamedTuple):
    """A head has come, and not all of the body."""

    head: RequestHead


class AwaitsBody(NamedTuple):
    """Nothing has come of the body of a request that has begun."""

    head: RequestHead


class Whole(NamedTuple):
    """A request that is there at once. `data` is all of it as it came, nothing if it came in
    parts."""

    head: RequestHead
    body: bytes
    data: bytes


class Piece(NamedTuple):
    """More of the body, perhaps with nothing in it at its end."""

    data: bytes
    is_last: bool


class Refused(NamedTuple):
    """What has come is not read on."""

    error: Malformed


Event: TypeAlias = Begun | AwaitsBody | Whole | Piece | Refused


class Late(Enum):
    """What to do about a connection on which something has taken too long."""

    ABORT, CLOSE, HEAD, BODY = range(4)
    """The last two: refuse a head that is not whole, a body that comes too slowly."""


class RequestFlow:
    """The requests of one connection. Whoever has it says when one is answered: it `is_busy` until
    then, and what comes behind the request waits in `_ahead`."""

    __slots__ = (
        "_ahead", "_body", "_bounds", "_came_bytes", "_head_bytes", "_is_last", "_read_paused",
        "_unsent_bytes", "cut_s", "due_s", "half_closed", "is_busy", "received_s", "write_paused",
    )  # fmt: skip

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._head_bytes = HeadBytes()
        self._body: Body | None = None
        """The body of a request, while it is read."""
        self._came_bytes = 0
        """How much of it has come since it was last checked that it does not come too slowly."""
        self._ahead = b""
        """What has come behind a request that is under way."""
        self.received_s = 0.0
        """When the last head had come."""
        self.is_busy = False
        self._is_last = False
        """What is answered now is the last answer; all that comes behind it is thrown away."""
        self._read_paused = False
        self.write_paused = False
        self.half_closed = False
        """The client sends nothing more, and waits for answers, or is gone."""
        self._unsent_bytes = 0
        self.due_s = self.cut_s = math.inf

    @property
    def is_between(self) -> bool:
        """Returns whether it has neither a request nor the beginning of one."""
        return not (self.is_busy or self._body or self._head_bytes.held or self._ahead)

    def receive(self, data: bytes, now_s: float) -> list[Event]:
        """Returns what this means, behind what waited, up to the end of one request: what follows
        waits until that one is answered. Nothing where all of it waits."""
        if self._ahead:
            data, self._ahead = self._ahead + data, b""
        events: list[Event] = []
        if not data or self._is_last:
            return events
        if self._body is None and (self.is_busy or self.write_paused):
            self._ahead = data
            return events
        try:
            if self._body is None:
                data = self._read_head(data, now_s, events)
            if self._body is not None and data:
                data = self._read_body(self._body, data, events)
        except Malformed as error:
            # Without the frames that it went through, of which one has these events.
            events.append(Refused(error.with_traceback(None)))
            data = b""
        self._ahead = data
        return events

    def _read_head(self, data: bytes, now_s: float, events: list[Event]) -> bytes:
        """Read up to the end of a head, and of its body if that is there. Returns what follows."""
        is_new = not self._head_bytes.held
        if is_new:
            data = data.lstrip(b"\r\n") if data[:1] in (b"\r", b"\n") else data
            if not data:
                return b""
        found = self._head_bytes.feed(data)
        self.received_s = now_s
        if found is None:
            self.due_s = now_s + self._bounds.head_s if is_new else self.due_s
            return b""
        self.due_s = math.inf
        lines, rest = found
        head = read_request(lines)
        if head.size_bytes in (0, len(rest)):  # at once, as it mostly comes
            body, rest = (rest, b"") if head.size_bytes else (b"", rest)
            events.append(Whole(head, body, data if is_new else b""))
            return rest
        events.append(Begun(head))
        self._body, self._came_bytes = head.body(), 0
        self.due_s = now_s + self._bounds.body_s
        if not rest:
            events.append(AwaitsBody(head))
        return rest

    def _read_body(self, body: Body, data: bytes, events: list[Event]) -> bytes:
        """Read up to the end of the body. Returns what follows."""
        piece = body.feed(data)
        self._came_bytes += len(piece)
        if body.done:
            self._body, self.due_s = None, math.inf
            events.append(Piece(piece, is_last=True))
            return body.rest
        if piece:
            events.append(Piece(piece, is_last=False))
        return b""

    def late(self, now_s: float, unsent_bytes: int, *, is_closing: bool) -> Late | None:
        """Returns what to do now that `due_s` or `cut_s` has passed, with so much written that has
        not left; None if it may go on."""
        if self.cut_s <= now_s:
            return Late.ABORT
        if unsent_bytes and unsent_bytes != self._unsent_bytes:  # it is read, slowly
            self._unsent_bytes = unsent_bytes
            self.due_s = now_s + self._bounds.unread_s
            return None
        if is_closing or unsent_bytes:
            return Late.ABORT
        if self._body is None:
            nothing = None if self.is_busy else Late.CLOSE
            return Late.HEAD if self._head_bytes.held else nothing
        came_bytes, self._came_bytes = self._came_bytes, 0
        if self._bounds.is_too_slow(came_bytes) and not self._read_paused:
            return Late.BODY
        self.due_s = now_s + self._bounds.body_s
        return None
