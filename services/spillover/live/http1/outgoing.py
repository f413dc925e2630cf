"""One request on its way out, and what it comes to: values, and who has to be told.

How it travels on a connection is in `connection`, when it is sent again in `client`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from spillover.live.engine.moving import Moving
from spillover.live.engine.write_batch import Buffer
from spillover.live.http1.framing import ByLength, Chunked
from spillover.live.http1.heads import NO_BODY, AnswerHead
from spillover.model.errors import NotDelivered, OutcomeUnknown, PeerError
from spillover.model.passed import Fields

if TYPE_CHECKING:
    from spillover.live.http1.connection import Connection

IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
"""Methods by which the same may be asked twice, and come to the same (RFC 9110 9.2.2)."""

UPGRADE = b"upgrade"

SENDINGS_MAX = 3
"""The most sendings of one request: one that may have been read is sent once more, one that surely
was not once more than that."""


class Again(Enum):
    """The requests that are sent again on a new connection: none, those that surely were not read,
    or once also those that may have been read where that does no harm, since they are idempotent or
    keyed."""

    NEVER = 0
    UNREAD = 1
    HARMLESS = 2


Parts: TypeAlias = tuple[Buffer, ...]
"""The body of a request, in parts that follow each other: a large one need not be copied."""


@dataclass(slots=True)
class Response:
    """A complete answer. Times are of `time.monotonic()`, in seconds."""

    status: int
    headers: dict[bytes, bytes]
    """Lower-case names; of a repeated header the last one."""
    body: bytes
    sent_s: float
    """When the request was given to be written, which is a turn of the loop later at most."""
    received_s: float
    """When the last byte of the answer was parsed."""


class NotHttp(OutcomeUnknown):
    """An answer has come that cannot be read."""


class LostThenRefused(OutcomeUnknown):
    """It may have been read once; sent again, it surely was not delivered."""


class StreamRefused(PeerError):
    """In place of a stream an answer of another status has come; its headers are here,
    lower-case."""

    def __init__(self, name: str, status: int, headers: dict[bytes, bytes]) -> None:
        super().__init__(f"{name}: expected status 200, got {status}")
        self.status = status
        self.headers = headers


OnEnd: TypeAlias = Callable[[Response | BaseException], None]
"""Is called once with what an exchange came to: its answer, or why there is none. That may be from
within the call that sends the request. What it raises closes the connection."""


OnBody: TypeAlias = Callable[[bytes | bytearray], None]
"""Takes a body piece by piece as it comes. What it raises ends the exchange."""

OnHead: TypeAlias = Callable[[int, dict[bytes, bytes]], OnBody | None]
"""Is called with the status and the header of an answer without a length; returns what takes its
body, or None to have it whole. It must not raise."""


OnSwitch: TypeAlias = "Callable[[SwitchingRequest, Connection, bytes], None]"
"""Is called when the other end has agreed to another protocol, with the connection, whose bytes
are whoever's this is from now on, and with those that have come. It must not raise."""


@dataclass(slots=True, eq=False)
class OutgoingExchange:
    """One request on its way to an answer, and what has to end when it ends. What its connection
    tells of the answer, kinds of exchanges take in their own ways."""

    method: str
    url: str
    on_end: OnEnd | None
    """The function to call at its end; None once it has ended."""
    body_limit_bytes: int
    takes_whole: bool = True
    """Whether an answer that is there at once may be told as such, `at_once`."""
    at_once: tuple[Any, bytes] | None = None
    """What a head that is known means to exchanges of this kind, and the body."""
    connection: Connection | None = None
    """Set from the moment the request is written until the answer is complete."""
    opening: asyncio.Task[Connection] | None = None
    timer: asyncio.TimerHandle | None = None
    sent_s: float = 0.0
    message: tuple[bytes, Parts] | None = None
    """The bytes to write, where the client may send them again. None once an answer has begun."""
    is_keyed: bool = False
    """True where the other end knows it again by its name, and does it once."""
    sendings: int = 0
    doubted: bool = False
    """True where it was sent once more although it may have been read."""
    uncertain: str | None = None
    """Set once it may have been read by an end that gave no answer: why there was none."""

    # --- what its connection tells ------------------------------------------------------------

    def interim(self, answer: AnswerHead) -> None:
        """An interim answer has come."""

    def begin(self, answer: AnswerHead, piece: bytes) -> None:
        """The head has come, and so much of the body, which is all of it if that is done."""
        raise NotImplementedError

    def begin_known(self, meaning: Any, piece: bytes, *, is_whole: bool) -> None:
        """A head has come that is known to mean this (`meaning_of_stream`), and so much of the
        body, which is all of it if that `is_whole`."""
        raise NotImplementedError

    def take(self, piece: bytes) -> None:
        """More of the body has come."""
        raise NotImplementedError

    def whole(self, trailers: Fields, received_s: float) -> None:
        """The answer is whole, and the connection free."""
        raise NotImplementedError

    def meaning_of(self, answer: AnswerHead) -> Any | None:
        """Returns what another answer with the same head, but for its length, will mean; None where
        that is not to be known."""
        raise NotImplementedError

    def meaning_of_stream(self, answer: AnswerHead) -> Any | None:  # noqa: ARG002 - of some kinds
        """Returns the same of the same head before a body in chunks."""
        return None

    @property
    def takes_large(self) -> bool:
        """Returns whether `take` may get all of a large body at once, from the beginning that
        `take_begun` gives back."""
        return False

    def take_begun(self) -> bytes:
        """Returns what has come of the body, and forgets it."""
        raise NotImplementedError

    # --- how it ends --------------------------------------------------------------------------

    def may_go_again(self, again: Again, *, is_unread: bool) -> bool:
        """Returns whether it may be sent again after a connection that ended without an answer."""
        if self.message is None or self.sendings >= SENDINGS_MAX:
            return False
        if is_unread:
            return True
        is_harmless = self.is_keyed or self.method in IDEMPOTENT
        return again is Again.HARMLESS and is_harmless and not self.doubted

    def break_off(self, what: str) -> None:
        """Fail with the error that tells whether anything of the request had been written."""
        error = NotDelivered if self.connection is None else OutcomeUnknown
        self.fail(error(f"{self.method} {self.url}: {what}"))

    def undelivered(self, error: BaseException) -> None:
        """Fail with this, unless an earlier attempt may have been read and made a difference."""
        if self.uncertain is None or self.method in IDEMPOTENT:
            self.fail(error)
        else:
            told = f"{self.method} {self.url}: {self.uncertain}; then: {error}"
            self.fail(LostThenRefused(told))

    def cannot_read(self, what: str) -> None:
        """Fail since what has come is no answer that can be read."""
        self.fail(NotHttp(f"{self.method} {self.url}: {what}"))

    def fail(self, error: BaseException) -> None:
        """End without an answer. The connection closes: what it would carry next is unknown."""
        self.abandon()
        self.end(error)

    def cancel(self) -> None:
        """Nobody wants to know any more. The connection closes."""
        self.on_end = None
        self._unset_timer()
        self.abandon()

    def pause(self) -> None:
        """Read nothing of the answer for now. What was read may still come."""
        if self.connection is not None:
            self.connection.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self.connection is not None:
            self.connection.resume_reading()

    def expire_after(self, timeout_s: float) -> None:
        """End it then, unless it has ended, which what waits for it has told it first."""
        if self.on_end is not None:
            loop = asyncio.get_running_loop()
            self.timer = loop.call_later(timeout_s, self.expire, timeout_s)

    def expire(self, timeout_s: float) -> None:
        if self.connection is not None:
            self.break_off(f"no complete answer within {timeout_s:g} s")
        else:
            told = f"{self.method} {self.url}: no connection within {timeout_s:g} s"
            self.undelivered(NotDelivered(told))

    def end(self, came_to: Response | BaseException) -> None:
        """Tell what it came to, unless it has ended before."""
        on_end, self.on_end = self.on_end, None
        if self.timer is not None:
            self._unset_timer()
        if on_end is not None:
            on_end(came_to)

    def _unset_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def abandon(self) -> None:
        """Let go of what carries it."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()
        opening, self.opening = self.opening, None
        if opening is not None:
            opening.cancel()


@dataclass(slots=True, eq=False)
class OutgoingRequest(OutgoingExchange):
    """One whose answer comes whole, within `body_limit_bytes`, or is a stream."""

    excerpt_bytes: int | None = None
    """The bytes to keep of the body of an answer that is not 2xx; None for all of it."""
    on_body: OnBody | None = None
    """Without it the answer carries the body."""
    on_head: OnHead | None = None
    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes | bytearray = b""
    """As much of it as is kept here. What came in one piece is handed over at once; while more of
    it comes, it counts as moving."""
    _moving: Moving | None = None

    @property
    def is_endless(self) -> bool:
        """Returns whether it was asked for as a stream, whatever its head."""
        return self.on_body is not None and self.on_head is None

    def begin(self, answer: AnswerHead, piece: bytes) -> None:
        self.status = answer.status
        self.headers = {name: one[1] for name, one in zip(answer.names, answer.fields, strict=True)}
        body = answer.body
        if self.on_head is not None and isinstance(body, Chunked):
            self.on_body = self.on_head(answer.status, self.headers)
            if self.on_body is not None:
                self.headers = {}
        if self.on_body is not None and answer.status != 200:
            name = f"{self.method} {self.url}"
            self.fail(StreamRefused(name, answer.status, self.headers))
        elif isinstance(body, ByLength) and self._is_too_long(len(piece) + body.left_bytes):
            self._refuse_body()  # not worth reading up to there
        elif piece:
            self.take(piece)

    def take(self, piece: bytes) -> None:
        if self.on_body is not None:
            try:
                self.on_body(piece)
            except Exception as error:  # noqa: BLE001  it belongs to whoever reads the stream
                self.fail(error)
            return
        size_bytes = len(self.body) + len(piece)
        if self._is_too_long(size_bytes):
            self._refuse_body()
            return
        connection, enough = self.connection, self.excerpt_bytes
        if enough is None or enough >= size_bytes or not self._is_excerpt:
            self._keep(piece, connection)
        else:
            self._keep(piece[: enough - len(self.body)], connection)
            if connection is not None:
                connection.cut_short(self)

    def whole(self, trailers: Fields, received_s: float) -> None:  # noqa: ARG002 - of a kind
        if self.at_once is not None:
            (status, headers), body = self.at_once
            headers = headers | {b"content-length": b"%d" % len(body)}
        else:
            status, headers, body = self.status, self.headers, bytes(self.body)
            if type(self.body) is bytearray:
                self._forget_body()
        on_end, self.on_end = self.on_end, None
        if self.timer is not None:
            self._unset_timer()
        if on_end is not None:
            on_end(Response(status, headers, body, self.sent_s, received_s))

    def meaning_of(self, answer: AnswerHead) -> Any | None:
        is_good = 200 <= answer.status <= 299 and answer.status not in NO_BODY
        if not (answer.keep_alive and self.takes_whole and is_good):
            return None
        headers = {name: one[1] for name, one in zip(answer.names, answer.fields, strict=True)}
        return answer.status, headers

    @property
    def takes_large(self) -> bool:
        return self.on_body is None and not self._is_excerpt

    def take_begun(self) -> bytes:
        begun = bytes(self.body)
        self._forget_body()
        return begun

    def abandon(self) -> None:
        self._forget_body()
        # Not `super()`: that knows not the class that `slots` makes.
        OutgoingExchange.abandon(self)

    @property
    def _is_excerpt(self) -> bool:
        """Whether the beginning of this answer's body is enough."""
        refuses = not 200 <= self.status <= 299
        return refuses and self.excerpt_bytes is not None and self.on_body is None

    def _is_too_long(self, size_bytes: int) -> bool:
        return size_bytes > self.body_limit_bytes and not self._is_excerpt

    def _refuse_body(self) -> None:
        self.cannot_read(f"the body of the answer exceeds {self.body_limit_bytes} bytes")

    def _keep(self, piece: bytes, connection: Connection | None) -> None:
        if not self.body:
            self.body = piece
            return
        if isinstance(self.body, bytes):
            self._moving = None if connection is None else connection.moving
            self.body = bytearray(self.body)
            self._count(len(self.body))
        self.body += piece
        self._count(len(piece))

    def _forget_body(self) -> None:
        if type(self.body) is bytearray:
            self._count(-len(self.body))
        self.body = b""

    def _count(self, size_bytes: int) -> None:
        if self._moving is not None:
            self._moving.add(size_bytes)


@dataclass(slots=True, eq=False)
class SwitchingRequest(OutgoingRequest):
    """One by which its connection becomes another protocol's. It ends when the connection does, or
    with another answer."""

    protocol: bytes = b""
    on_switch: OnSwitch | None = None
    on_retire: Callable[[], None] | None = None
    """The function to call when the connection should end with what is under way on it."""

    def switch(self, connection: Connection, fields: Fields, data: bytes) -> None:
        """The other end has agreed with this head, and this is what it has sent behind that."""
        told = [value.lower() for name, value in fields if name.lower() == UPGRADE]
        if told != [self.protocol]:
            self.abandon()
            self.end(Response(101, {}, b"", self.sent_s, time.monotonic()))
            return
        self._unset_timer()
        if self.on_switch is not None:
            self.on_switch(self, connection, data)
