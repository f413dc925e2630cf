"""One HTTP/1.1 connection seen from the client: a request goes out, its answer is parsed.

Here live the values of one exchange and the protocol that carries it. Opening, pooling and
choosing connections do not: they are in `client`. Nothing is ever sent twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast

import httptools

from spillover.live.engine.moving import Moving
from spillover.live.engine.write_batch import Buffer, WriteBatch
from spillover.live.http.known_heads import KnownHeads, whole_message
from spillover.live.http.large_bodies import LARGE_BYTES, LargeBody
from spillover.model.errors import NotDelivered, OutcomeUnknown, PeerError

OVERHEAD_LIMIT_BYTES = 65_536
"""What may arrive in a row without any body in it: a head, interim answers, trailers, framing.
Looked at after each segment read from the socket, so up to one segment more can get in."""

_BODYLESS_STATUSES = (204, 304)

Body: TypeAlias = tuple[Buffer, ...]
"""Of a request, in parts that follow each other: what is large need not be copied."""


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


class StreamRefused(PeerError):
    """In place of a stream there was an answer of another status; its headers, lower-case."""

    def __init__(self, name: str, status: int, headers: dict[bytes, bytes]) -> None:
        super().__init__(f"{name}: expected status 200, got {status}")
        self.status = status
        self.headers = headers


Heads: TypeAlias = KnownHeads[tuple[int, dict[bytes, bytes]]]
"""Status and headers of answers that are read whole, but for the length."""

OnEnd: TypeAlias = Callable[[Response | BaseException], None]
"""Told once what an exchange came to: its answer, or why there is none. It may be called from
within the call that sends the request. What it raises closes the connection."""


OnBody: TypeAlias = Callable[[bytes | bytearray], None]
"""Takes a body piece by piece as it comes. What it raises ends the exchange."""

OnHead: TypeAlias = Callable[[int, dict[bytes, bytes]], OnBody | None]
"""Told the status and the header of an answer without a length; returns what takes its body, or
None to have it whole. It must not raise."""


@dataclass(slots=True, eq=False)
class OutgoingRequest:
    """One request on its way to an answer, and what has to end when it ends."""

    method: str
    url: str
    on_end: OnEnd | None
    """None once it has ended."""
    body_limit_bytes: int
    excerpt_bytes: int | None = None
    """Of the body of an answer that is not 2xx; None for all of it."""
    on_body: OnBody | None = None
    """Without it the answer carries the body."""
    on_head: OnHead | None = None
    connection: Connection | None = None
    """Set from the moment the request is written until the answer is complete."""
    opening: asyncio.Task[Connection] | None = None
    timer: asyncio.TimerHandle | None = None
    sent_s: float = 0.0

    def break_off(self, what: str) -> None:
        """Fail with the error that tells whether anything of the request had been written."""
        error = NotDelivered if self.connection is None else OutcomeUnknown
        self.fail(error(f"{self.method} {self.url}: {what}"))

    def fail(self, error: BaseException) -> None:
        """End without an answer. The connection closes: what it would carry next is unknown."""
        self._abandon()
        self.end(error)

    def cancel(self) -> None:
        """Nobody wants to know any more. The connection closes."""
        self.on_end = None
        self._unset_timer()
        self._abandon()

    def pause(self) -> None:
        """Read nothing of the answer for now. What was read may still come."""
        if self.connection is not None:
            self.connection.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self.connection is not None:
            self.connection.resume_reading()

    def expire(self, timeout_s: float) -> None:
        where = "no connection" if self.connection is None else "no complete answer"
        self.break_off(f"{where} within {timeout_s:g} s")

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

    def _abandon(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()
        opening, self.opening = self.opening, None
        if opening is not None:
            opening.cancel()


class Pool(Protocol):
    """What a connection tells its owner."""

    def released(self, connection: Connection) -> None:
        """It carried a whole exchange and can carry another, from `idle_since_s` on."""

    def dropped(self, connection: Connection) -> None:
        """It must not be used again and is about to close."""

    def lost(self, connection: Connection) -> None:
        """Its socket is closed."""


class Connection(asyncio.Protocol):
    """A connection that carries one exchange at a time.

    The lower half, `on_*`, is called by the parser from within `data_received`. It only takes
    notes: an exception raised there would reach us as a parser error.

    The parser and the connection hold each other, from the first moment of the connection to its
    last: else both, and the answer with them, would stay until the next full garbage collection.
    """

    __slots__ = (
        "_answer",
        "_body",
        "_fault",
        "_head_complete",
        "_headers",
        "_heads",
        "_large_bytes",
        "_moving",
        "_overhead_bytes",
        "_parser",
        "_reusable",
        "_transport",
        "_until_eof",
        "_writes",
        "exchange",
        "idle_since_s",
        "pool",
    )

    def __init__(
        self,
        pool: Pool,
        writes: WriteBatch | None = None,
        moving: Moving | None = None,
        heads: Heads | None = None,
    ) -> None:
        self.pool = pool
        """Its owner's, who may put another one in its place."""
        self._writes = writes
        self._moving = moving
        self._heads = heads
        """Of answers that have come before; None to know of none."""
        self._body: bytes | bytearray = b""
        self.exchange: OutgoingRequest | None = None
        self.idle_since_s = 0.0
        self._await_answer()

    def _await_answer(self) -> None:
        """Forget the last answer: an idle connection must hold none."""
        self._headers: dict[bytes, bytes] = {}
        if type(self._body) is bytearray:
            self._count(-len(self._body))
        self._body = b""
        self._answer: Response | None = None
        self._fault: str | None = None
        self._head_complete = False
        self._until_eof = False
        self._reusable = False
        self._overhead_bytes = 0
        self._large_bytes = 0
        """How long a body is that need not be counted, cut or handed on piece by piece."""

    @property
    def usable(self) -> bool:
        return not self._transport.is_closing()

    def send(self, exchange: OutgoingRequest, head: bytes, body: Body) -> None:
        """Write a request; it ends with the answer or with OutcomeUnknown."""
        self.exchange = exchange
        exchange.connection = self
        exchange.sent_s = time.monotonic()
        if self._writes is not None:
            self._writes.write(self._transport, head, *body)
        else:
            self._transport.writelines((head, *body))

    def pause_reading(self) -> None:
        """Leave what comes to the kernel."""
        if self._transport.is_reading():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if not (self._transport.is_reading() or self._transport.is_closing()):
            self._transport.resume_reading()

    def close(self) -> None:
        """Close at once, whatever is under way. Does nothing the second time."""
        self.exchange = None
        self._await_answer()
        self.pool.dropped(self)
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._parser = _new_parser(self)

    def data_received(self, data: bytes) -> None:
        exchange = self.exchange
        if exchange is None:
            # Nobody asked: it must not be taken for the answer to the next request.
            self.close()
            return
        whole = None
        if self._heads is not None and not (self._overhead_bytes or self._head_complete):
            whole = whole_message(data)
            if whole is not None and self._take_known(exchange, self._heads, *whole):
                return
        self._read(exchange, data, whole)

    def _read(
        self, exchange: OutgoingRequest, data: bytes, whole: tuple[bytes, bytes, bytes] | None
    ) -> None:
        """Have the parser read it; `whole` is an answer that it may be, taken apart."""
        self._overhead_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._reusable = False
            self._fault = f"the answer is not valid HTTP: {error}"
        except httptools.HttpParserUpgrade:
            self._fault = "the server switched to another protocol without being asked"
        if self._overhead_bytes > OVERHEAD_LIMIT_BYTES:
            self._fault = f"head or framing of the answer exceeds {OVERHEAD_LIMIT_BYTES} bytes"
        if exchange.on_body is not None and self._head_complete:
            self._stream(exchange, exchange.on_body)
        if (answer := self._answer) is not None:
            if whole is not None and self._heads is not None and self._reusable:
                status, headers, is_all = answer.status, answer.headers, answer.body == whole[2]
                if is_all and headers.get(b"content-length") == whole[1] and 200 <= status <= 299:
                    self._heads.learn(whole[0], (status, dict(headers)))
            self._finish(exchange, answer)
        elif self._fault is not None:
            exchange.break_off(self._fault)
        elif self._large_bytes and exchange.connection is self:
            self._read_large(self._large_bytes)

    def _take_known(
        self, exchange: OutgoingRequest, heads: Heads, head: bytes, length: bytes, body: bytes
    ) -> bool:
        """End with an answer without the parser, if it is known what a head like that means. The
        parser stands between two answers, and still does then."""
        known = heads.meanings.get(head)
        if known is None or exchange.on_body is not None or len(body) > exchange.body_limit_bytes:
            return False
        status, headers = known
        told = {**headers, b"content-length": length}
        self._reusable = True
        self._finish(exchange, Response(status, told, body, exchange.sent_s, time.monotonic()))
        return True

    def _read_large(self, size_bytes: int) -> None:
        """Read the rest of a body without the parser; the next answer gets a new one."""
        self._large_bytes = 0
        if size_bytes - len(self._body) >= LARGE_BYTES:
            LargeBody(self, self._transport, self._take_body(), size_bytes, self._large_body_whole)

    def _large_body_whole(self, body: bytes) -> None:
        exchange = self.exchange
        if exchange is None:
            return
        self._body = body
        self._end_answer(exchange, reusable=self._parser.should_keep_alive())
        self._parser = _new_parser(self)
        self._finish(exchange, cast("Response", self._answer))

    def eof_received(self) -> None:
        exchange = self.exchange
        if exchange is not None:
            if self._until_eof:
                self.on_message_complete()
                self._reusable = False
            if self._answer is not None:
                self._finish(exchange, self._answer)
            else:
                exchange.break_off("the server closed the connection before the answer was whole")
        self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.pool.lost(self)
        if self.exchange is not None:
            self.exchange.break_off(f"the connection broke before the answer was whole: {exc}")
        del self._parser

    def _stream(self, exchange: OutgoingRequest, on_body: OnBody) -> None:
        status = self._parser.get_status_code()
        if status != 200:
            name = f"{exchange.method} {exchange.url}"
            exchange.fail(StreamRefused(name, status, self._headers))
            return
        piece = self._take_body()
        if not piece:
            return
        try:
            on_body(piece)
        except Exception as error:  # noqa: BLE001  it belongs to whoever reads the stream
            exchange.fail(error)

    def _finish(self, exchange: OutgoingRequest, answer: Response) -> None:
        if exchange.connection is not self:
            return
        self.exchange = None
        exchange.connection = None
        reusable = self._reusable
        self._await_answer()
        # An answer can come before the whole request has left: the rest must not follow later.
        transport = self._transport
        if reusable and not (transport.is_closing() or transport.get_write_buffer_size()):
            if exchange.on_body is not None:
                self.resume_reading()
            self.idle_since_s = answer.received_s
            self.pool.released(self)
        else:
            self.close()
        exchange.end(answer)

    def _take_body(self) -> bytes | bytearray:
        body, self._body = self._body, b""
        if isinstance(body, bytearray):
            self._count(-len(body))
        return body

    def _count(self, size_bytes: int) -> None:
        """What came in one piece is handed over at once, and not counted."""
        if self._moving is not None:
            self._moving.add(size_bytes)

    def on_message_begin(self) -> None:
        if self._answer is not None:
            self._reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        # What comes later are trailers, or what follows the answer.
        if not self._head_complete:
            self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        if self._head_complete:
            return
        status = self._parser.get_status_code()
        if status < 200:
            return
        self._head_complete = True
        coding = self._headers.get(b"transfer-encoding")
        length = self._headers.get(b"content-length")
        if coding is not None:
            self._until_eof = not coding.rstrip().lower().endswith(b"chunked")
            if (exchange := self.exchange) is not None and exchange.on_head is not None:
                exchange.on_body = exchange.on_head(status, self._headers)
                if exchange.on_body is not None:
                    self._headers = {}
        elif length is None:
            self._until_eof = status not in _BODYLESS_STATUSES
        elif (
            (exchange := self.exchange) is not None
            and int(length) > exchange.body_limit_bytes
            and status not in _BODYLESS_STATUSES
            and not self._is_excerpt(exchange)
        ):
            self._fault = _too_long(exchange)  # not worth reading up to there
        elif self._moving is None and int(length) > LARGE_BYTES and self._is_kept_whole(status):
            self._large_bytes = int(length)

    def on_body(self, piece: bytes) -> None:
        self._overhead_bytes = 0
        exchange = self.exchange
        if exchange is None or self._answer is not None or self._fault is not None:
            return
        size_bytes = len(self._body) + len(piece)
        if exchange.excerpt_bytes is not None and self._is_excerpt(exchange):
            self._body = bytes(self._body) + piece[: exchange.excerpt_bytes - len(self._body)]
            if size_bytes > exchange.excerpt_bytes:
                self._end_answer(exchange, reusable=False)  # the rest may never end
        elif size_bytes > exchange.body_limit_bytes:
            self._fault = _too_long(exchange)
        elif not self._body:
            self._body = piece
        else:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
                self._count(len(self._body))
            self._body += piece
            self._count(len(piece))

    def on_message_complete(self) -> None:
        if not self._head_complete:
            self._headers = {}  # of an interim answer, such as 100 or 103
        elif self._answer is None and self._fault is None and self.exchange is not None:
            self._end_answer(self.exchange, reusable=self._parser.should_keep_alive())

    def _is_kept_whole(self, status: int) -> bool:
        """Whether an answer has a body of which nothing is left out or handed on before its end."""
        exchange = self.exchange
        if exchange is None or status in _BODYLESS_STATUSES:
            return False
        return exchange.on_body is None and not self._is_excerpt(exchange)

    def _is_excerpt(self, exchange: OutgoingRequest) -> bool:
        """Whether the beginning of this answer's body is enough."""
        refuses = not 200 <= self._parser.get_status_code() <= 299
        return refuses and exchange.excerpt_bytes is not None and exchange.on_body is None

    def _end_answer(self, exchange: OutgoingRequest, *, reusable: bool) -> None:
        self._reusable = reusable
        status, body = self._parser.get_status_code(), bytes(self._body)
        self._answer = Response(status, self._headers, body, exchange.sent_s, time.monotonic())


def _new_parser(connection: Connection) -> Any:
    """It bears lines that end with LF alone and blanks behind a chunk's length, as the reader of
    answers that pass through does (docs/http.md)."""
    parser = httptools.HttpResponseParser(connection)
    parser.set_dangerous_leniencies(
        lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
    )
    return parser


def _too_long(exchange: OutgoingRequest) -> str:
    return f"the body of the answer exceeds {exchange.body_limit_bytes} bytes"
