"""One passed request on one connection to a service: it goes out whole, its answer is handed on as
it comes. Any method, interim answers, trailers, and answers that end with their connection.

Which connection, and opening it, is the business of `live.http1.client`; what the ends mean,
that of `handler`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from spillover.live.engine.write_batch import WriteBatch
from spillover.live.handlers.proxy.known import KnownAnswers
from spillover.live.handlers.proxy.onward import at_the_door, passed_head
from spillover.live.http1.connection import (
    PIECEWISE,
    PLAIN,
    UPLOAD_BYTES,
    Connection,
    OutgoingRequest,
    Pool,
    Response,
)
from spillover.live.http1.framing import (
    Body,
    Chunked,
    HeadBytes,
    Malformed,
    ToTheEnd,
)
from spillover.live.http1.heads import AnswerHead, read_answer
from spillover.live.http1.small_reads import read_in_parts
from spillover.model.passed import Fields, PassedHead

INTERIM_MAX = 32
"""Interim answers to one request: a service that sends them for ever does not answer."""


@dataclass(slots=True, eq=False, kw_only=True)
class PassedExchange(OutgoingRequest):
    """`on_begin` with each interim head and once with the final one, `on_piece` with its body as it
    comes, and `on_end` with a Response (without the body) if it came whole. Where it `takes_whole`,
    an answer that is there at once is told by `on_end` alone, as `at_once`."""

    on_begin: Callable[[PassedHead], None]
    on_piece: Callable[[bytes], None]
    sent_head: bytes = b""
    """The head with which it was asked for, until the head of the answer has come."""
    takes_whole: bool = False
    at_once: tuple[PassedHead, bytes] | None = None
    """The head, perhaps with an empty length, and the body."""
    trailers: Fields = ()
    has_begun: bool = False
    """True once the head has come."""

    @property
    def tells_at_once(self) -> bool:
        """Returns whether an answer may be known by its head: not one that has no body anyway."""
        return self.takes_whole and self.method != "HEAD"


class PassedConnection(Connection):
    """Carries one PassedExchange at a time."""

    __slots__ = ("_head", "_incoming", "_interim", "_keep_alive", "_known", "_status")

    def __init__(self, pool: Pool, writes: WriteBatch, known: KnownAnswers) -> None:
        super().__init__(pool, writes)
        self._known = known

    def _await_answer(self) -> None:
        self._incoming: Body | None = None
        """The body of the answer that has begun; None before."""
        self._interim = 0
        self._keep_alive = False
        self._status = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._head = HeadBytes(of_answer=True)
        self._observe()
        read_in_parts(self._transport, self)

    def data_received(self, data: bytes) -> None:
        exchange = self.exchange
        if exchange is None:
            self.pool.abandoned(self)
            self.close()  # nobody asked
            return
        assert isinstance(exchange, PassedExchange)  # noqa: S101 - of a client for these
        if self._incoming is not None:
            self._read_on(exchange, self._incoming, data)
        elif self._writes is not None and self._writes.holds(self._transport):
            # Before the request has left: it would be taken for the answer to it.
            self._ended(exchange, "the service spoke unasked", by_both=False)
        else:
            # From the first byte on, whatever may be known of it.
            is_new = not (self._head.has_begun or self._interim)
            if not (is_new and exchange.tells_at_once and self._take_at_once(exchange, data)):
                self._begin(exchange, data, is_new=is_new)

    def _take_at_once(self, exchange: PassedExchange, data: bytes) -> bool:
        """End with an answer that is there at once, if it is known what a head like that means."""
        found = self._known.find(data)
        if found is None:
            return False
        known, body = found
        exchange.has_begun = True
        exchange.at_once = known.head, body
        self._status = known.head.status
        self.kind = PLAIN
        self.keep_s = known.keep_s
        self._end(exchange, (), known.keep_alive)
        return True

    def _begin(self, exchange: PassedExchange, data: bytes, *, is_new: bool) -> None:
        """Read the head, and what has come with it."""
        try:
            answer, rest = self._read_head(exchange, data)
            if answer is None:
                return
            body = self._incoming = answer.body
            self._keep_alive = answer.keep_alive
            self._status = answer.status
            self.kind = PIECEWISE if isinstance(body, Chunked) else PLAIN
            self.keep_s = answer.keep_s
            piece = body.feed(rest) if rest else b""
        except Malformed as error:
            exchange.cannot_read(f"the answer is not valid HTTP: {error}")
            return
        exchange.has_begun = True
        exchange.message = None
        asked, exchange.sent_head = exchange.sent_head, b""
        head = at_the_door(passed_head(answer), exchange.url, asked)
        if exchange.takes_whole and body.done:
            exchange.at_once = head, piece
            if is_new and exchange.tells_at_once and not self._interim:
                self._known.learn_from(data, answer, passed_head(answer), piece)
            piece = b""
        else:
            exchange.on_begin(head)
        self._hand_on(exchange, body, piece)

    def _read_on(self, exchange: PassedExchange, body: Body, data: bytes) -> None:
        try:
            piece = body.feed(data)
        except Malformed as error:
            exchange.cannot_read(f"the answer is not valid HTTP: {error}")
            return
        self._hand_on(exchange, body, piece)

    def _hand_on(self, exchange: PassedExchange, body: Body, piece: bytes) -> None:
        if piece and exchange.connection is self:
            exchange.on_piece(piece)
        if body.done and exchange.connection is self:
            self._end(exchange, body.trailers, self._keep_alive and not body.rest)

    def _read_head(self, exchange: PassedExchange, data: bytes) -> tuple[AnswerHead | None, bytes]:
        """The final head, if it is there, and what follows it."""
        while (found := self._head.feed(data)) is not None:
            head, data = found
            answer = read_answer(head, exchange.method)
            if answer.status >= 200:
                return answer, data
            self._interim += 1
            if self._interim > INTERIM_MAX:
                raise Malformed(f"more than {INTERIM_MAX} interim answers")
            if answer.status != 100:  # which is for who asks to be asked: the door
                exchange.on_begin(passed_head(answer))
        return None, b""

    def eof_received(self) -> None:
        exchange = self.exchange
        if exchange is None:
            self.pool.abandoned(self)
        elif isinstance(self._incoming, ToTheEnd):
            self._end(cast("PassedExchange", exchange), (), is_reusable=False)
        else:
            what = "the service closed the connection before the answer was whole"
            self._ended(exchange, what, by_both=True)
        self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        exchange = self.exchange
        if exchange is not None:
            self.broke(exchange, exc)
        self.pool.lost(self)

    @property
    def _has_begun(self) -> bool:
        return bool(self._incoming is not None or self._head.has_begun or self._interim)

    def _end(self, exchange: PassedExchange, trailers: Fields, is_reusable: bool) -> None:  # noqa: FBT001
        """The answer is whole. What came behind it is for nobody."""
        self.exchange = exchange.connection = None
        if self._size_bytes > UPLOAD_BYTES:
            is_reusable = is_reusable and self._is_kept_after_upload(self._status)
        exchange.trailers = trailers
        response = Response(self._status, {}, b"", exchange.sent_s, time.monotonic())
        self._await_answer()
        transport = self._transport
        # An answer can come before the whole request has left: the rest must not follow later.
        if is_reusable and not (transport.is_closing() or transport.get_write_buffer_size()):
            if not transport.is_reading():
                transport.resume_reading()
            self.has_answered = True
            self.idle_since_s = response.received_s
            self.pool.released(self)
        else:
            self.close()
        exchange.end(response)
