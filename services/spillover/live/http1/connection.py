"""One HTTP/1.1 connection seen from the client: a request goes out, its answer is parsed.

Here lives the protocol that carries one exchange at a time. What is carried is in `outgoing`.
Opening, pooling and choosing connections are not here: they are in `client`, which also decides
what is sent again where a connection ended before any of an answer had come.
"""

from __future__ import annotations

import asyncio
import os
import select
import time
from typing import Any, Protocol, TypeAlias, cast

import httptools

from spillover.live.engine.moving import Moving
from spillover.live.engine.write_batch import WriteBatch
from spillover.live.http1.acknowledged import told_of
from spillover.live.http1.kept_for import read_keep_alive_s
from spillover.live.http1.known_heads import KnownHeads, whole_message
from spillover.live.http1.large_bodies import LARGE_BYTES, LargeBody
from spillover.live.http1.outgoing import (
    IDEMPOTENT,
    SENDINGS_MAX,
    Again,
    Body,
    OnBody,
    OnEnd,
    OnHead,
    OutgoingRequest,
    Response,
    StreamRefused,
)

__all__ = [
    "IDEMPOTENT",
    "SENDINGS_MAX",
    "Again",
    "Body",
    "Connection",
    "OnBody",
    "OnEnd",
    "OnHead",
    "OutgoingRequest",
    "Pool",
    "Response",
    "StreamRefused",
]

OVERHEAD_LIMIT_BYTES = 65_536
"""What may arrive in a row without any body in it: a head, interim answers, trailers, framing.
Looked at after each segment read from the socket, so up to one segment more can get in."""

_BODYLESS_STATUSES = (204, 304)

UPLOAD_BYTES = 4096
"""A request longer than this, with its head, need not have been read by whoever answers it. Servers
close after such an answer, or read the rest as the next request, and some do not say so."""

UNREAD_BYTES = 32_768
"""Less than a kernel takes in for who does not read: of less, nothing can be seen from here."""

REFUSES_FROM = 400
"""Statuses by which a server may say that a body is not worth reading."""

KINDS = 3
PLAIN, PIECEWISE, UPLOADED = range(KINDS)
"""Kinds of answers, after which a server may treat the connection in different ways: of known
length, in chunks, and to an upload."""

_WATCHED = getattr(select, "POLLIN", 0) | getattr(select, "POLLRDHUP", 0)
_ENDS = getattr(select, "POLLRDHUP", 0)

Heads: TypeAlias = KnownHeads[tuple[int, dict[bytes, bytes]]]
"""Status and headers of answers that are read whole, but for the length."""


class Pool(Protocol):
    """What a connection tells its owner."""

    def released(self, connection: Connection) -> None:
        """It carried a whole exchange and can carry another, from `idle_since_s` on."""

    def dropped(self, connection: Connection) -> None:
        """It must not be used again and is about to close."""

    def lost(self, connection: Connection) -> None:
        """Its socket is closed."""

    def abandoned(self, connection: Connection) -> None:
        """The other end has closed it, or spoken unasked, while it was idle."""

    def unanswered(
        self, connection: Connection, exchange: OutgoingRequest, what: str, *, is_unread: bool
    ) -> None:
        """It has ended before any of an answer had come, which may be sent again on another one;
        if `is_unread`, the other end surely has not read any of it."""


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
        "_is_encrypted",
        "_large_bytes",
        "_moving",
        "_overhead_bytes",
        "_parser",
        "_reusable",
        "_size_bytes",
        "_transport",
        "_until_eof",
        "_watch",
        "_writes",
        "_written_bytes",
        "exchange",
        "has_answered",
        "idle_since_s",
        "keep_s",
        "kind",
        "pool",
        "retires_s",
        "uses_left",
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
        """Heads of answers that have come before; None turns that off."""
        self._body: bytes | bytearray = b""
        self.exchange: OutgoingRequest | None = None
        self.idle_since_s = 0.0
        self.has_answered = False
        """Whether it has carried a whole exchange."""
        self.retires_s, self.uses_left = 0.0, 0
        """The instant until which, and the number of requests for which, it is to be used. Its
        owner sets both."""
        self.kind = PLAIN
        """The kind of the last answer."""
        self.keep_s: float | None = None
        """How long the other end has said that it keeps idle connections."""
        self._written_bytes = 0
        """The size of all requests so far, as the transport counts them that tells what has
        left."""
        self._size_bytes = 0
        """The size of the last request."""
        self._is_encrypted = False
        self._watch: select.poll | None = None
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

    def is_quiet(self) -> bool:
        """Returns whether it is open and the other end has neither closed it nor said anything,
        as the system knows it now: the loop may not have looked since the last answer."""
        if self._transport.is_closing():  # its socket may be another connection's by now
            return False
        return self._watch is None or not self._watch.poll(0)

    def send(self, exchange: OutgoingRequest, head: bytes, body: Body) -> None:
        """Write a request; it ends with the answer or with OutcomeUnknown."""
        self.exchange = exchange
        exchange.connection = self
        exchange.sendings += 1
        exchange.sent_s = time.monotonic()
        self.uses_left -= 1
        size_bytes = len(head)
        for part in body:
            size_bytes += len(part)
        if self._is_encrypted and (told := told_of(self._transport)) is not None:
            self._written_bytes = told.left
        self._size_bytes = size_bytes
        self._written_bytes += size_bytes
        if self._writes is not None:
            self._writes.write(self._transport, head, *body)
        else:
            # Of an empty part asyncio (3.12 and later) never gets rid, and tries without end.
            self._transport.writelines([part for part in (head, *body) if part])

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

    def close_copy(self) -> None:
        """In a forked process: close its copy of the socket. Nothing is said to the other end, nor
        to the event loop, whose selector both processes share. The descriptor stays taken, so that
        whoever closes it later closes nobody else's."""
        opened = self._transport.get_extra_info("socket")
        if opened is not None and opened.fileno() >= 0:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, opened.fileno(), inheritable=False)
            os.close(nowhere)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._parser = _new_parser(self)
        self._observe()

    def _observe(self) -> None:
        """Have the system asked whether it is quiet."""
        self._is_encrypted = self._transport.get_extra_info("ssl_object") is not None
        opened = self._transport.get_extra_info("socket")
        # What comes encrypted may be about the encryption.
        watched = _ENDS if self._is_encrypted else _WATCHED
        if opened is not None and watched:
            self._watch = select.poll()
            self._watch.register(opened.fileno(), watched)

    def data_received(self, data: bytes) -> None:
        exchange = self.exchange
        if exchange is None:
            # Nobody asked: it must not be taken for the answer to the next request.
            self.pool.abandoned(self)
            self.close()
            return
        whole = None
        if self._heads is not None and not (self._overhead_bytes or self._head_complete):
            whole = whole_message(data)
            known = None if whole is None else self._heads.meanings.get(whole[0])
            if whole and known and exchange.on_body is None:
                _, length, body = whole
                if len(body) <= exchange.body_limit_bytes:
                    # The parser stands between two answers, and still does then.
                    status, headers = known[0], known[1] | {b"content-length": length}
                    told = status, headers, body, exchange.sent_s, time.monotonic()
                    self._finish(exchange, Response(*told), is_known=True)
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
            exchange.cannot_read(self._fault)
        elif self._large_bytes and exchange.connection is self:
            self._read_large(self._large_bytes)

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
                what = "the server closed the connection before the answer was whole"
                self._ended(exchange, what, by_both=True)
        else:
            self.pool.abandoned(self)
        self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        exchange = self.exchange
        if exchange is not None:
            self.broke(exchange, exc)
        self.pool.lost(self)
        del self._parser

    def broke(self, exchange: OutgoingRequest, error: Exception | None) -> None:
        """It has been reset, or could not be written to."""
        what = f"the connection broke before the answer was whole: {error}"
        self._ended(exchange, what, by_both=False)

    @property
    def _has_begun(self) -> bool:
        """Whether anything of an answer has come."""
        return bool(self._overhead_bytes or self._head_complete)

    def _ended(self, exchange: OutgoingRequest, what: str, *, by_both: bool) -> None:
        """The other end has ended it while an answer was awaited: if `by_both`, by closing it, so
        that it has told what it had received."""
        if self._has_begun:
            exchange.break_off(what)
            return
        is_unread = self._is_unread(is_told=by_both)
        self.exchange = exchange.connection = None
        self.close()
        self.pool.unanswered(self, exchange, what, is_unread=is_unread)

    def _is_unread(self, *, is_told: bool) -> bool:
        if self._writes is not None and self._writes.holds(self._transport):
            return True
        told = told_of(self._transport)
        if told is None:
            return False
        before = self._written_bytes - self._size_bytes
        return told.left <= before or (is_told and told.acknowledged <= before)

    def _is_kept_after_upload(self, status: int) -> bool:
        """Returns whether the other end may have read all of the request that it has answered."""
        self.kind = UPLOADED
        if status >= REFUSES_FROM:
            return False
        if self._is_encrypted or self._size_bytes <= UNREAD_BYTES:
            return True
        told = told_of(self._transport)
        return told is None or told.acknowledged >= self._written_bytes

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

    def _finish(
        self, exchange: OutgoingRequest, answer: Response, *, is_known: bool = False
    ) -> None:
        """Hand an answer over; one that is known has left nothing with the parser."""
        if exchange.connection is not self:
            return
        self.exchange = None
        exchange.connection = None
        headers = answer.headers
        self.kind = PIECEWISE if b"transfer-encoding" in headers else PLAIN
        reusable = is_known or self._reusable
        if self._size_bytes > UPLOAD_BYTES:
            reusable = reusable and self._is_kept_after_upload(answer.status)
        if b"keep-alive" in headers:
            self.keep_s = read_keep_alive_s(headers[b"keep-alive"])
            reusable = reusable and self.keep_s != 0.0
        if not is_known:
            self._await_answer()
        # An answer can come before the whole request has left: the rest must not follow later.
        transport = self._transport
        if reusable and not (transport.is_closing() or transport.get_write_buffer_size()):
            if exchange.on_body is not None:
                self.resume_reading()
            self.has_answered = True
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
