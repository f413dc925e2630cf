"""One HTTP/1.1 connection seen from the client: a request goes out, its answer is read.

Here lives the protocol that carries one exchange at a time. Bytes become answers in `answer_flow`;
what an answer is to whoever asked is in `outgoing`. Opening, pooling and choosing connections are
not here: they are in `client`, which also decides what is sent again where a connection ended
before any of an answer had come.
"""

from __future__ import annotations

import asyncio
import os
import select
import time
from contextlib import suppress
from typing import Protocol, cast

from spillover.live.engine.moving import Moving
from spillover.live.engine.write_batch import WriteBatch
from spillover.live.http1.acknowledged import told_of
from spillover.live.http1.answer_flow import AnswerFlow, Came, Switched
from spillover.live.http1.framing import ByLength, Chunked
from spillover.live.http1.heads import AnswerHead
from spillover.live.http1.known_heads import KnownAnswer, KnownHeads
from spillover.live.http1.large_bodies import LARGE_BYTES, LargeBody
from spillover.live.http1.outgoing import OutgoingExchange, Parts, SwitchingRequest
from spillover.live.http1.rules import Malformed
from spillover.live.http1.small_reads import read_in_parts
from spillover.model.passed import Fields

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

READ_BYTES = 65_536


class ConnectionOwner(Protocol):
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
        self, connection: Connection, exchange: OutgoingExchange, what: str, *, is_unread: bool
    ) -> None:
        """It has ended before any of an answer had come, which may be sent again on another one;
        if `is_unread`, the other end surely has not read any of it."""


class Connection(AnswerFlow, asyncio.Protocol):
    """A connection that carries one exchange at a time. With `moving`, bodies count there while
    they come; with `heads`, answers are known by heads that have come before; one that
    `reads_small` is read in small parts, as answers have to be that are handed on."""

    __slots__ = (
        "_heads", "_is_encrypted", "_is_paused", "_reads_small", "_size_bytes", "_status",
        "_transport", "_watch", "_writes", "_written_bytes", "exchange", "has_answered",
        "idle_since_s", "keep_s", "kind", "moving", "pool", "retires_s", "uses_left",
    )  # fmt: skip

    def __init__(
        self,
        pool: ConnectionOwner,
        writes: WriteBatch | None = None,
        moving: Moving | None = None,
        heads: KnownHeads[KnownAnswer] | None = None,
        *,
        reads_small: bool = False,
    ) -> None:
        super().__init__()
        self.pool = pool
        """Its owner's, who may put another one in its place."""
        self._writes = writes
        self.moving = moving
        self._heads = heads
        self._reads_small = reads_small
        self.exchange: OutgoingExchange | None = None
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
        self._is_encrypted = self._is_paused = False
        self._watch: select.poll | None = None
        self._status = 0
        """The status of the last answer."""

    @property
    def transport(self) -> asyncio.Transport:
        """Returns the transport, for whom the connection is switched to."""
        return self._transport

    @property
    def usable(self) -> bool:
        return not self._transport.is_closing()

    def is_quiet(self) -> bool:
        """Returns whether it is open and the other end has neither closed it nor said anything,
        as the system knows it now: the loop may not have looked since the last answer."""
        if self._transport.is_closing():  # its socket may be another connection's by now
            return False
        return self._watch is None or not self._watch.poll(0)

    def send(self, exchange: OutgoingExchange, head: bytes, body: Parts) -> None:
        """Write a request; it ends with the answer or with OutcomeUnknown."""
        self.exchange = exchange
        exchange.connection = self
        exchange.sendings += 1
        exchange.sent_s = time.monotonic()
        self.asked, self.at_once_max_bytes = exchange.method, exchange.body_limit_bytes
        self.known = self._heads if exchange.takes_whole else None
        self.may_switch = type(exchange) is SwitchingRequest
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
        if not (self._is_paused or self._transport.is_closing()):
            self._is_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if self._is_paused and not self._transport.is_closing():
            self._is_paused = False
            self._transport.resume_reading()

    def close(self) -> None:
        """Close at once, whatever is under way. Does nothing the second time."""
        self.exchange = self.asked = self._body = None
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

    # --- what the loop tells ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._is_encrypted = transport.get_extra_info("ssl_object") is not None
        opened = transport.get_extra_info("socket")
        # What comes encrypted may be about the encryption.
        watched = _ENDS if self._is_encrypted else _WATCHED
        if opened is not None and watched:
            self._watch = select.poll()
            self._watch.register(opened.fileno(), watched)
        if self._reads_small:
            read_in_parts(self._transport, self)

    def data_received(self, data: bytes) -> None:
        exchange, writes = self.exchange, self._writes if self._body is None else None
        if writes is not None and writes.waiting and writes.holds(self._transport):
            came = None  # before the request has left: it would be taken for the answer to it
        else:
            came = self.receive(data)
        if exchange is None:
            self.pool.abandoned(self)
            self.close()
        elif type(came) is bytes:
            if came:
                exchange.take(came)
        elif type(came) is not tuple:
            self._ended(exchange, "the server spoke unasked", by_both=False)
        elif type(head := came[1]) is KnownAnswer and not head.is_chunked:
            exchange.at_once = head.meaning, came[2]
            self.kind, self.keep_s, self._status = PLAIN, head.keep_s, head.status
            self._end(exchange, (), is_reusable=head.keep_alive)
        else:
            self._obey(exchange, came)

    def eof_received(self) -> None:
        exchange = self.exchange
        if exchange is None:
            self.pool.abandoned(self)
        elif self.ends_whole:
            self._end(exchange, (), is_reusable=False)
        else:
            what = "the server closed the connection before the answer was whole"
            self._ended(exchange, what, by_both=True)
        self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.exchange is not None and isinstance(exc, ConnectionError):
            self._read_what_had_come()
        exchange = self.exchange
        if exchange is not None:
            self.broke(exchange, exc)
        self.pool.lost(self)

    def _read_what_had_come(self) -> None:
        """Read what the system has. A server may answer a request without reading all of it, and
        close the connection: then the loop may find that nothing can be written before it has read
        the answer, and reads no more."""
        opened = self._transport.get_extra_info("socket")
        if opened is None or self._is_encrypted:
            return
        with suppress(OSError):
            while self.exchange is not None:
                if data := os.read(opened.fileno(), READ_BYTES):
                    self.data_received(data)
                elif self.ends_whole:
                    self.eof_received()
                else:
                    break

    def broke(self, exchange: OutgoingExchange, error: Exception | None) -> None:
        """It has been reset, or could not be written to."""
        what = f"the connection broke before the answer was whole: {error}"
        self._ended(exchange, what, by_both=False)

    # --- reading ------------------------------------------------------------------------------

    def _obey(self, exchange: OutgoingExchange, came: Came) -> None:
        """Tell what has come, for as long as anybody wants to hear it."""
        interim, head, piece, end = came
        for one in interim:
            exchange.interim(one)
        if exchange.connection is not self:
            return
        if type(head) is AnswerHead:
            self._begin(exchange, head, piece)
        elif type(head) is KnownAnswer:
            exchange.message = None
            self.kind, self.keep_s, self._status = PIECEWISE, head.keep_s, head.status
            exchange.begin_known(head.meaning, piece, is_whole=end is not None)
        elif piece:
            exchange.take(piece)
        if end is None or exchange.connection is not self:
            return
        if type(end) is tuple:
            self._end(exchange, end[0], is_reusable=end[1])
        elif isinstance(end, Malformed):
            exchange.cannot_read(f"the answer is not valid HTTP: {end}")
        elif isinstance(end, Switched) and isinstance(exchange, SwitchingRequest):
            exchange.switch(self, end.fields, end.data)

    def _begin(self, exchange: OutgoingExchange, head: AnswerHead, piece: bytes) -> None:
        body = head.body
        exchange.message = None
        self.kind = PIECEWISE if isinstance(body, Chunked) else PLAIN
        self.keep_s, self._status = head.keep_s, head.status
        if self.known_as:
            self._learn(exchange, head)
        exchange.begin(head, piece)
        if (
            type(body) is ByLength
            and body.left_bytes >= LARGE_BYTES
            and self.moving is None
            and exchange.connection is self
            and exchange.takes_large
        ):
            begun = exchange.take_begun()
            size_bytes = len(begun) + body.left_bytes
            LargeBody(self, self._transport, begun, size_bytes, self._large_body_whole)

    def _learn(self, exchange: OutgoingExchange, head: AnswerHead) -> None:
        """Keep what a head means to exchanges of this kind."""
        heads, is_chunked = self.known, self.kind == PIECEWISE
        name, self.known_as = self.known_as, b""  # a connection lives on, and it may be secret
        if heads is None or (is_chunked and not heads.comes_again(name)):
            return
        meaning_of = exchange.meaning_of_stream if is_chunked else exchange.meaning_of
        if (meaning := meaning_of(head)) is not None:
            kept = head.status, head.keep_alive, head.keep_s, meaning, is_chunked
            (heads.keep if is_chunked else heads.learn)(name, KnownAnswer(*kept))

    def _large_body_whole(self, body: bytes) -> None:
        exchange, reads = self.exchange, self._body
        if exchange is not None and reads is not None:
            _, is_reusable = self._end_of(reads)  # which this has not gone through
            exchange.take(body)
            self._end(exchange, (), is_reusable=is_reusable)

    def cut_short(self, exchange: OutgoingExchange) -> None:
        """Enough of its body has come; the rest may never end."""
        self._end(exchange, (), is_reusable=False)

    def _end(self, exchange: OutgoingExchange, trailers: Fields, *, is_reusable: bool) -> None:
        """The answer is whole. What came behind it is for nobody."""
        self.exchange = exchange.connection = None
        if self._size_bytes > UPLOAD_BYTES:
            is_reusable = is_reusable and self._is_kept_after_upload(self._status)
        self.idle_since_s = time.monotonic()
        transport = self._transport
        # An answer can come before the whole request has left: the rest must not follow later.
        if is_reusable and not (transport.is_closing() or transport.get_write_buffer_size()):
            if self._is_paused:
                self.resume_reading()
            self.has_answered = True
            self.pool.released(self)
        else:
            self.close()
        exchange.whole(trailers, self.idle_since_s)

    def _is_kept_after_upload(self, status: int) -> bool:
        """Returns whether the other end may have read all of the request that it has answered."""
        self.kind = UPLOADED
        if status >= REFUSES_FROM:
            return False
        if self._is_encrypted or self._size_bytes <= UNREAD_BYTES:
            return True
        told = told_of(self._transport)
        return told is None or told.acknowledged >= self._written_bytes

    def _ended(self, exchange: OutgoingExchange, what: str, *, by_both: bool) -> None:
        """The other end has ended it while an answer was awaited: if `by_both`, by closing it, so
        that it has told what it had received."""
        if self.has_begun:
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
