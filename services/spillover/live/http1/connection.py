"""One HTTP/1.1 connection seen from the client: a request goes out, its answer is read.

Here lives the protocol that carries one exchange at a time; what an answer is to whoever asked is
in `outgoing`. Opening, pooling and choosing connections are not here: they are in `client`, which
also decides what is sent again where a connection ended before any of an answer had come.
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
from spillover.live.http1.framing import Body, ByLength, Chunked, HeadBytes, ToTheEnd
from spillover.live.http1.heads import AnswerHead, read_answer
from spillover.live.http1.known_heads import (
    HEAD_BYTES_MAX,
    KnownAnswer,
    KnownHeads,
    whole_message,
)
from spillover.live.http1.large_bodies import LARGE_BYTES, LargeBody
from spillover.live.http1.outgoing import OutgoingExchange, Parts, SwitchingRequest
from spillover.live.http1.rules import INTERIM_MAX, Malformed, Rule
from spillover.live.http1.small_reads import read_in_parts
from spillover.model.passed import Fields

SWITCHED = b"HTTP/1.1 101 "
"""How the answer begins by which a connection becomes another protocol's that was asked to."""

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


class Connection(asyncio.Protocol):
    """A connection that carries one exchange at a time. With `moving`, bodies count there while
    they come; with `heads`, answers are known by heads that have come before; one that
    `reads_small` is read in small parts, as answers have to be that are handed on."""

    __slots__ = (
        "_body",
        "_head_bytes",
        "_heads",
        "_interim",
        "_is_encrypted",
        "_is_paused",
        "_keep_alive",
        "_reads_small",
        "_size_bytes",
        "_status",
        "_transport",
        "_watch",
        "_writes",
        "_written_bytes",
        "exchange",
        "has_answered",
        "idle_since_s",
        "keep_s",
        "kind",
        "moving",
        "pool",
        "retires_s",
        "uses_left",
    )

    def __init__(
        self,
        pool: ConnectionOwner,
        writes: WriteBatch | None = None,
        moving: Moving | None = None,
        heads: KnownHeads[KnownAnswer] | None = None,
        *,
        reads_small: bool = False,
    ) -> None:
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
        # The answer that is read.
        self._head_bytes = HeadBytes(of_answer=True)
        self._interim = 0
        self._body: Body | None = None
        """The body of the answer that has begun; None before."""
        self._status = 0
        self._keep_alive = False

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
        self.exchange = self._body = None
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
        exchange = self.exchange
        if exchange is None:
            # Nobody asked: it must not be taken for the answer to the next request.
            self.pool.abandoned(self)
            self.close()
            return
        body = self._body
        if body is not None:
            try:
                piece = body.feed(data)
            except Malformed as error:
                exchange.cannot_read(f"the answer is not valid HTTP: {error}")
                return
            if piece:
                exchange.take(piece)
            if body.done and exchange.connection is self:
                self._end(exchange, body.trailers, is_reusable=self._keep_alive and not body.rest)
            return
        writes = self._writes
        if writes is not None and writes.waiting and writes.holds(self._transport):
            # Before the request has left: it would be taken for the answer to it.
            self._ended(exchange, "the server spoke unasked", by_both=False)
            return
        # From the first byte on, whatever may be known of it.
        is_new = not (self._head_bytes.held or self._interim)
        heads = self._heads if is_new and exchange.takes_whole else None
        if heads is None or not self._take_known(exchange, heads, data):
            self._begin(exchange, data, is_new=is_new)

    def eof_received(self) -> None:
        exchange = self.exchange
        if exchange is None:
            self.pool.abandoned(self)
        elif isinstance(self._body, ToTheEnd):
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
                data = os.read(opened.fileno(), READ_BYTES)
                if not data:
                    break
                self.data_received(data)
            if isinstance(self._body, ToTheEnd):
                self.eof_received()

    def broke(self, exchange: OutgoingExchange, error: Exception | None) -> None:
        """It has been reset, or could not be written to."""
        what = f"the connection broke before the answer was whole: {error}"
        self._ended(exchange, what, by_both=False)

    # --- reading ------------------------------------------------------------------------------

    def _take_known(
        self, exchange: OutgoingExchange, heads: KnownHeads[KnownAnswer], data: bytes
    ) -> bool:
        """Returns whether a head has come that is known: with a body that is there at once, or in
        chunks, which have begun."""
        if exchange.method == "HEAD":
            return False
        whole = whole_message(data)
        known = None if whole is None else heads.meanings.get(whole[0])
        if whole is not None and known is not None:
            if len(whole[2]) > exchange.body_limit_bytes:
                return False
            exchange.at_once = known.meaning, whole[2]
            self.kind, self.keep_s, self._status = PLAIN, known.keep_s, known.status
            self._end(exchange, (), is_reusable=known.keep_alive)
            return True
        end = data.find(b"\r\n\r\n", 0, HEAD_BYTES_MAX) + 4
        known = heads.meanings.get(data[:end])
        if known is None or not known.is_chunked:
            return False
        self._begin_chunked(exchange, known, data[end:])
        return True

    def _begin_chunked(self, exchange: OutgoingExchange, known: KnownAnswer, rest: bytes) -> None:
        """Begin to read a body in chunks behind a head that is known."""
        self._body = body = Chunked(of_answer=True)
        self._status, self._keep_alive, self.keep_s = known.status, known.keep_alive, known.keep_s
        self.kind, exchange.message = PIECEWISE, None
        try:
            piece = body.feed(rest) if rest else b""
        except Malformed as error:
            exchange.cannot_read(f"the answer is not valid HTTP: {error}")
            return
        exchange.begin_known(known.meaning, piece, is_whole=body.done)
        if body.done and exchange.connection is self:
            self._end(exchange, body.trailers, is_reusable=self._keep_alive and not body.rest)

    def _begin(self, exchange: OutgoingExchange, data: bytes, *, is_new: bool) -> None:
        """Read the head, and what has come with it."""
        try:
            answer, rest = self._read_head(exchange, data)
            if answer is None:
                return
            body = answer.body
            piece = body.feed(rest) if rest else b""
        except Malformed as error:
            exchange.cannot_read(f"the answer is not valid HTTP: {error}")
            return
        self._body, self._status = body, answer.status
        self._keep_alive, self.keep_s = answer.keep_alive, answer.keep_s
        self.kind = PIECEWISE if isinstance(body, Chunked) else PLAIN
        exchange.message = None
        if is_new and self._heads is not None and not self._interim:
            self._learn(exchange, self._heads, data, answer, piece)
        exchange.begin(answer, piece)
        if exchange.connection is not self:
            return
        if body.done:
            self._end(exchange, body.trailers, is_reusable=self._keep_alive and not body.rest)
        elif (
            type(body) is ByLength
            and body.left_bytes >= LARGE_BYTES
            and self.moving is None
            and exchange.takes_large
        ):
            begun = exchange.take_begun()
            size_bytes = len(begun) + body.left_bytes
            LargeBody(self, self._transport, begun, size_bytes, self._large_body_whole)

    def _learn(
        self,
        exchange: OutgoingExchange,
        heads: KnownHeads[KnownAnswer],
        data: bytes,
        answer: AnswerHead,
        piece: bytes,
    ) -> None:
        """Keep what a head means to exchanges of this kind, where its length is that of its body,
        or that comes in chunks."""
        kept = answer.status, answer.keep_alive, answer.keep_s
        if isinstance(answer.body, Chunked):
            head = data[: data.find(b"\r\n\r\n", 0, HEAD_BYTES_MAX) + 4]
            if head and heads.comes_again(head):
                meaning = exchange.meaning_of_stream(answer)
                if meaning is not None:
                    heads.keep(head, KnownAnswer(*kept, meaning, is_chunked=True))
        elif type(answer.body) is ByLength and answer.body.done:
            whole = whole_message(data)
            if whole is None or whole[2] != piece:
                return
            meaning = exchange.meaning_of(answer)
            if meaning is not None:
                heads.learn(whole[0], KnownAnswer(*kept, meaning))

    def _read_head(
        self, exchange: OutgoingExchange, data: bytes
    ) -> tuple[AnswerHead | None, bytes]:
        """The final head, if it is there, and what follows it."""
        while (found := self._head_bytes.feed(data)) is not None:
            head, data = found
            if isinstance(exchange, SwitchingRequest) and head.startswith(SWITCHED):
                self._interim += 1
                exchange.switch(self, head, data)
                return None, b""
            answer = read_answer(head, exchange.method)
            if answer.status >= 200:
                return answer, data
            self._interim += 1
            if self._interim > INTERIM_MAX:
                raise Malformed(Rule.SWITCHED, f"more than {INTERIM_MAX} interim answers")
            exchange.interim(answer)
        return None, b""

    def _large_body_whole(self, body: bytes) -> None:
        exchange = self.exchange
        if exchange is not None:
            exchange.take(body)
            self._end(exchange, (), is_reusable=self._keep_alive)

    def cut_short(self, exchange: OutgoingExchange) -> None:
        """Enough of its body has come; the rest may never end."""
        self._end(exchange, (), is_reusable=False)

    def _end(self, exchange: OutgoingExchange, trailers: Fields, *, is_reusable: bool) -> None:
        """The answer is whole. What came behind it is for nobody."""
        self.exchange = exchange.connection = self._body = None
        self._interim = 0
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
        if self._body is not None or self._head_bytes.held or self._interim:
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
