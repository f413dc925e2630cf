"""What is bounded of a connection whatever the app does: a request's head in size and time, its
body in time, and what is thrown away of a body that nobody wants any more.

How large a body may be, and all that a whole request means, are the app's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

import httptools
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from spillover.apps.node.exchange import CLOSE, DISCARD_LIMIT_BYTES, Exchange, body_too_slow
from spillover.apps.node.problems import Problem
from spillover.apps.node.put_off import PutOff
from spillover.live.write_batch import WriteBatch

EXCHANGE = "spillover.exchange"

DIRECT_PATH = "/requests"
"""Requests to it are given to the app's `direct`, if it has one, where they need no waiting for."""

HEAD_LIMIT_BYTES = 65_536
"""Of a request's head. Trailers, and what else comes without being body, are held to it too; a
head that begins right behind another request may be longer by what came with that one."""

DIRECT_BODY_BYTES = 262_144
"""A body for the direct path that is longer and has not come whole is read by the app."""

DIRECT_WITHIN_S = 0.02
"""So is one that takes longer. What comes in a few segments takes microseconds."""


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which by itself takes a head of any size and waits for it forever.

    Every scope carries its `Exchange` under EXCHANGE, to be taken out by whoever answers.

    A timer runs only while a head is awaited that has begun, or the first one of a connection, or
    while a body is: a request that arrives in one piece on a connection in use never sets one.
    """

    head_timeout_s: ClassVar[float] = 10.0

    body_timeout_s: ClassVar[float] = 60.0
    """For all of a body from the end of its head on, whatever becomes of its request. For one in
    a pipeline, whose body may not be read before, from its turn on."""

    cycle: RequestResponseCycle | None  # type: ignore[assignment]  # None before the first head

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self._head_bytes = 0
        """Received since the last end of a head, piece of a body or end of a request."""
        self._head_begun = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._idle_since_s = 0.0
        """By the loop's clock: when the last request was answered."""
        self._in_body = False
        """Whether a head has ended whose request has not."""
        self._body_timer: asyncio.TimerHandle | None = None
        self._discarded_bytes = 0
        """Of a body that came after the answer."""
        self._same_without_upgrade: bytes | None = None
        """A head that asked for another protocol, without that."""
        self.writes: WriteBatch = getattr(self.app, "writes", None) or WriteBatch(self.loop)
        """The node's own, since it is what all its connections have in common that counts."""
        self._in_head = False
        """Whether the parser is at the end of a head, so that a request is started now."""
        self._put_off: PutOff | None = None
        self._put_off_timer: asyncio.TimerHandle | None = None
        self.on_gone: Callable[[], None] | None = None
        """Called once when the connection is lost; whoever answers sets it back."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._set_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unset_timer()
        self._unset_body_timer()
        for timer in (self.timeout_keep_alive_task, self._put_off_timer):
            if timer is not None:
                timer.cancel()
        if self._put_off is not None:  # nobody has heard of it yet
            self._drop_put_off(self._put_off)
        super().connection_lost(exc)
        if self.on_gone is not None:
            on_gone, self.on_gone = self.on_gone, None
            on_gone()

    def data_received(self, data: bytes) -> None:
        if self._head_bytes + len(data) <= HEAD_LIMIT_BYTES:
            self._feed(data)
        else:
            self._feed_by_pieces(data)
        if self._put_off is not None:
            self._try_put_off(self._put_off)
        if self._in_body:
            if self._put_off is None:
                self._watch_body()
        elif self.timeout_keep_alive_task is None:
            self._await_next()
        if self._head_timer is None and (self._head_begun or self._head_bytes):
            self._set_timer()

    def on_message_begin(self) -> None:
        self._head_begun = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head_begun = False
        self._head_bytes = 0
        self._unset_timer()
        if self.parser.should_upgrade():
            self._same_without_upgrade = self._written_anew()
            return
        self._in_head = True
        super().on_headers_complete()
        self._in_head = False
        self._in_body = True
        self._discarded_bytes = 0
        # The app's task, if it was made, runs later.
        assert self.cycle is not None  # noqa: S101 - for the type checker: it was made just now
        self.scope[EXCHANGE] = Exchange(self, self.cycle)  # type: ignore[literal-required]
        if self.expect_100_continue and not self._is_direct(self.cycle):
            # Answered before it is asked for, the body may come or not: what follows means nothing.
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        put_off = self._put_off
        if put_off is not None and put_off.cycle is self.cycle and put_off.cycle.more_body:
            put_off.pieces.append(body)
            put_off.size_bytes += len(body)
            return
        super().on_body(body)
        if self.cycle is not None and self.cycle.response_complete:
            self._discarded_bytes += len(body)
            if self._discarded_bytes > DISCARD_LIMIT_BYTES:
                self._close()

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        self._unset_timer()
        if self._same_without_upgrade is not None:
            return  # the parser's idea of it: its body is still to come
        self._in_body = False
        self._unset_body_timer()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """As uvicorn's, but for the timer of an idle connection: it sets a new one after every
        answer, which costs more than the answer's JSON."""
        if self.pipeline or self.transport.is_closing():
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        self.flow.resume_reading()
        self._await_next()

    def timeout_keep_alive_handler(self) -> None:
        """The connection may have been in use since the timer was set."""
        self.timeout_keep_alive_task = None
        cycle = self.cycle
        if cycle is None or not cycle.response_complete or self._head_begun:
            return  # busy; the next answer sets it again
        rest_s = self._idle_since_s + self.timeout_keep_alive - self.loop.time()
        if rest_s > 0:
            self._set_idle_timer(rest_s)
        else:
            super().timeout_keep_alive_handler()

    def _unset_keepalive_if_required(self) -> None:
        """Left to itself: when it rings it looks whether the connection is idle."""

    def shutdown(self) -> None:
        self.writes.flush()
        super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """What uvicorn does about bytes that are no HTTP. They are in the place of a request, or in
        the body of one, which may be answered already or have to wait for others' answers."""
        cycle = self.cycle
        if not self._in_body:
            if cycle is None or cycle.response_complete:
                self._answer(Problem("malformed", msg))
        elif cycle is not None and not (self.pipeline or cycle.response_started):
            self._refuse_body(cycle, Problem("malformed", msg, headers=[CLOSE]))
        self._close()

    def _is_direct(self, cycle: RequestResponseCycle) -> bool:
        return cycle.scope["path"] == DIRECT_PATH and hasattr(self.app, "direct")

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """A request on the direct path waits until the data at hand is read: if it has come whole
        then, it is served without a task. One that was in a pipeline gets its task."""
        if self.transport.is_closing():
            cycle.disconnected = True
        elif not self._in_head:
            if self._body_timer is not None:  # only now is its body read
                self._unset_body_timer()
                self._set_body_timer()
            super()._start_asgi_task(cycle, app)
        elif cycle.scope["path"] == DIRECT_PATH and hasattr(app, "direct"):
            self._put_off = PutOff(cycle, app)
        else:
            super()._start_asgi_task(cycle, app)

    def _try_put_off(self, put_off: PutOff) -> None:
        """Serve it directly if all of it is here, let it wait a little, or give it a task."""
        cycle = put_off.cycle
        if self.transport.is_closing():  # for what came behind it
            cycle.disconnected = True
            self._drop_put_off(put_off)
            return
        exchange: Exchange = cycle.scope[EXCHANGE]  # type: ignore[literal-required]
        if not exchange.is_open or cycle.waiting_for_100_continue:
            self._give_task(put_off)
        elif exchange.came_whole:
            self._put_off = None
            put_off.give_body()
            cycle.scope.pop(EXCHANGE)  # type: ignore[misc]
            put_off.app.direct(exchange)
        elif put_off.size_bytes > DIRECT_BODY_BYTES:
            self._give_task(put_off)
        elif exchange.begun_s is None:
            exchange.begun_s = self.loop.time()
            if self._put_off_timer is None:
                self._set_put_off_timer(DIRECT_WITHIN_S)

    def _set_put_off_timer(self, delay_s: float) -> None:
        self._put_off_timer = self.loop.call_later(delay_s, self._on_put_off_timeout)

    def _on_put_off_timeout(self) -> None:
        """It was set for a request that may have been served since."""
        self._put_off_timer = None
        put_off = self._put_off
        if put_off is None:
            return
        exchange: Exchange = put_off.cycle.scope[EXCHANGE]  # type: ignore[literal-required]
        begun_s = exchange.begun_s or 0.0
        rest_s = begun_s + DIRECT_WITHIN_S - self.loop.time()
        if rest_s > 0:
            self._set_put_off_timer(rest_s)
        else:
            self._give_task(put_off)
            self._watch_body()

    def _give_task(self, put_off: PutOff) -> None:
        self._put_off = None
        put_off.give_body()
        super()._start_asgi_task(put_off.cycle, put_off.app)

    def _drop_put_off(self, put_off: PutOff) -> None:
        self._put_off = None
        put_off.cycle.scope.pop(EXCHANGE)  # type: ignore[misc]

    def _watch_body(self) -> None:
        if self._body_timer is None and not self.transport.is_closing():
            self._set_body_timer()

    def _feed(self, data: bytes | memoryview) -> None:
        self._head_bytes += len(data)  # the parser's calls set it back where there is progress
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self.send_400_response("expected HTTP/1.1")

    def _feed_by_pieces(self, data: bytes) -> None:
        """No more at a time than may still belong to a head."""
        start, view = 0, memoryview(data)
        while start < len(data) and not self.transport.is_closing():
            room_bytes = HEAD_LIMIT_BYTES - self._head_bytes
            if room_bytes == 0:
                self._refuse_head()
                return
            self._feed(view[start : start + room_bytes])
            start += room_bytes
            if self._put_off is not None and not self._in_body:
                self._try_put_off(self._put_off)  # whole; what comes behind may be refused

    def _parse(self, data: bytes | memoryview) -> None:
        """Have it read as if nobody ever asked for another protocol (RFC 9110, section 7.8, lets a
        server ignore that): the parser takes whatever follows such a head for the other protocol,
        so another one gets it behind the same head without the question."""
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                head = self._same_without_upgrade or b""
                self._same_without_upgrade = None
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
                data = head + bytes(data[upgrade.args[0] :])
            else:
                return

    def _written_anew(self) -> bytes:
        """The head that was just read, without `Upgrade`. Raises HttpParserError for CONNECT, which
        is an upgrade by itself."""
        method = self.parser.get_method()
        if method == b"CONNECT":
            raise httptools.HttpParserInvalidMethodError
        lines = [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        version = self.parser.get_http_version().encode()
        return b"%b %b HTTP/%b\r\n%b\r\n" % (method, self.url, version, b"".join(lines))

    def _await_next(self) -> None:
        """Have an idle connection closed in time. uvicorn does that when it has answered; here, for
        what came after the answer and was no request: the rest of a body."""
        cycle = self.cycle
        if cycle is None or self._head_begun or not cycle.response_complete:
            return
        if not self.transport.is_closing():
            self._idle_since_s = self.loop.time()
            if self.timeout_keep_alive_task is None:
                self._set_idle_timer(self.timeout_keep_alive)

    def _set_idle_timer(self, delay_s: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(
            delay_s, self.timeout_keep_alive_handler
        )

    def _set_timer(self) -> None:
        self._head_timer = self.loop.call_later(self.head_timeout_s, self._on_head_timeout)

    def _unset_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _set_body_timer(self) -> None:
        self._body_timer = self.loop.call_later(self.body_timeout_s, self._on_body_timeout)

    def _unset_body_timer(self) -> None:
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None

    def _on_body_timeout(self) -> None:
        self._body_timer = None
        cycle = self.cycle
        if self.pipeline or cycle is None:  # its turn has not come; closing would take others along
            self._set_body_timer()
            return
        if not cycle.response_started:
            self._refuse_body(cycle, body_too_slow(self.body_timeout_s))
        self._close()

    def _refuse_body(self, cycle: RequestResponseCycle, problem: Problem) -> None:
        """Answer a request whose body is not read to its end."""
        Exchange(self, cycle).refuse(problem)
        cycle.disconnected = True  # whoever reads or answers it need not go on

    def _on_head_timeout(self) -> None:
        self._head_timer = None
        if self.cycle is not None and not self.cycle.response_complete:
            # Until that one is answered, reading may be paused, and closing would take it along.
            if self._head_begun:
                self._set_timer()
            return
        if self._head_begun:
            detail = f"expected the whole head of a request within {self.head_timeout_s:g} s"
            self._answer(Problem("head_too_slow", detail))
        self._close()

    def _refuse_head(self) -> None:
        """Answer, unless that would be taken for the answer to another request, and close."""
        cycle = self.cycle
        if cycle is None or (self._head_begun and cycle.response_complete):
            unanswered = True
        else:  # its trailers are too large, or a request ahead of this one is not answered yet
            unanswered = not (self._head_begun or self.pipeline or cycle.response_started)
            cycle.disconnected = True
        if unanswered:
            detail = f"expected the head of a request to have at most {HEAD_LIMIT_BYTES} bytes"
            self._answer(Problem("head_too_large", detail))
        self._close()

    def _answer(self, problem: Problem) -> None:
        body = problem.body()
        length = (b"content-length", b"%d" % len(body))
        lines = [b"%b: %b\r\n" % header for header in [*problem.all_headers(), length, CLOSE]]
        self.writes.flush()
        self.transport.write(b"".join([STATUS_LINE[problem.status], *lines, b"\r\n", body]))

    def _close(self) -> None:
        """After what was answered in this turn of the loop."""
        self.writes.flush()
        self.transport.close()
