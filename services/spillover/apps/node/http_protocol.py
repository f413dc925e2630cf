"""What is bounded of a connection whatever the app does: a request's head in size and time, its
body in time, and what is thrown away of a body that nobody wants any more.

How large a body may be, and all that a whole request means, are the app's business.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, ClassVar

import httptools
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    RequestResponseCycle,
)

from spillover.apps.node.direct_exchange import DirectExchange
from spillover.apps.node.direct_path import DIRECT_PATH, EXCHANGE
from spillover.apps.node.exchange import CLOSE, DISCARD_LIMIT_BYTES, Exchange, body_too_slow
from spillover.apps.node.half_closed import HalfClosed, KeepsHalfClosed
from spillover.apps.node.problems import Problem
from spillover.live.engine.write_batch import WriteBatch

HEAD_LIMIT_BYTES = 65_536
"""Of a request's head. Trailers, and what else comes without being body, are held to it too; a
head that begins right behind another request may be longer by what came with that one."""

_SEEN_HERE = frozenset(
    {b"host", b"expect", b"transfer-encoding", b"origin", b"sec-fetch-site", b"sec-fetch-mode"}
)
"""Headers that mean something to the connection, or tell that a browser asks for a page."""

_LENGTH = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: *([0-9]{1,15})")


class BoundedProtocol(KeepsHalfClosed):
    """uvicorn's protocol, which by itself takes a head of any size and waits for it forever.

    Every scope carries its `Exchange` under EXCHANGE, to be taken out by whoever answers.

    A timer runs only while a head is awaited that has begun, or while a body is: a request that
    arrives in one piece never sets one. A connection that has not said anything yet is idle like
    one between two requests, and closed as late: neighbors open some ahead of need, and the first
    request on one must not meet its end.
    """

    head_timeout_s: ClassVar[float] = 10.0

    body_timeout_s: ClassVar[float] = 60.0
    """For all of a body from the end of its head on, whatever becomes of its request. For one in
    a pipeline, whose body may not be read before, from its turn on."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self._head_bytes = 0
        """Received since the last end of a head, piece of a body or end of a request."""
        self._head_begun = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._idle_since_s = 0.0
        """By the loop's clock: when the last request was answered, or the connection made."""
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
        self._hosts = 0
        """`Host` lines of the head that is read."""
        self._why_malformed: str | None = None
        """What is wrong with that head although it is HTTP."""
        self.on_gone: Callable[[], None] | None = None
        """Called once when the connection is lost; whoever answers sets it back."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._idle_since_s = self.loop.time()
        self._set_idle_timer(self.timeout_keep_alive)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unset_timer()
        self._unset_body_timer()
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
        if isinstance(self.transport, HalfClosed):
            self.transport.stop()
        super().connection_lost(exc)
        if self.on_gone is not None:
            on_gone, self.on_gone = self.on_gone, None
            on_gone()
        # Each holds this: the bodies they hold must not wait for a full garbage collection.
        self.cycle = None
        self.pipeline.clear()

    def data_received(self, data: bytes) -> None:
        if self._head_bytes + len(data) <= HEAD_LIMIT_BYTES or self._is_one_request(data):
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
        """What uvicorn makes besides is made where it is needed, see `_make_scope`."""
        self._head_begun = True
        self.url = b""
        self.expect_100_continue = False
        self.is_of_page = False
        self.headers = []
        self._hosts = 0
        self._why_malformed = None

    def on_header(self, name: bytes, value: bytes) -> None:
        """As uvicorn's, which looks for `Expect` alone. Called for trailers too, which are not
        looked at any more."""
        name = name.lower()
        if name in _SEEN_HERE:
            if name == b"host":
                self._hosts += 1
            elif name == b"expect":
                self.expect_100_continue |= value.lower() == b"100-continue"
            elif name != b"transfer-encoding":
                self.is_of_page = True
            elif value.strip().lower() != b"chunked" or self.parser.get_http_version() == "1.0":
                self._why_malformed = "Transfer-Encoding: expected chunked alone, in HTTP/1.1"
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._head_begun = False
        self._head_bytes = 0
        self._unset_timer()
        parser = self.parser
        if self._hosts != 1 or self._why_malformed is not None:
            self._check_head(parser.get_http_version())
        if parser.should_upgrade():
            self._same_without_upgrade = self._written_anew()
            return
        self._in_body = True
        self._discarded_bytes = 0
        if not self._puts_off():
            self._start_with_cycle()

    def _check_head(self, version: str) -> None:
        """Refuse what others on the way may have read differently (RFC 9112, sections 3.2 and 6).
        A body of two lengths is no HTTP already to the parser. Raises HttpParserError."""
        if self._why_malformed is None and self._hosts != 1 and (self._hosts or version != "1.0"):
            self._why_malformed = f"Host: expected once, got it {self._hosts} times"
        if self._why_malformed is not None:
            raise httptools.HttpParserError(self._why_malformed)

    def _start_with_cycle(self) -> None:
        """As uvicorn does. The app's task, if it was made, runs later."""
        self.scope = self._make_scope(self.headers)
        self._in_head = True
        super().on_headers_complete()
        self._in_head = False
        cycle = self.cycle
        assert isinstance(cycle, RequestResponseCycle)  # noqa: S101 - it was made just now
        exchange = Exchange(self, cycle)
        exchange.is_of_page = self.is_of_page
        cycle.scope[EXCHANGE] = exchange  # type: ignore[literal-required]
        if self.expect_100_continue and cycle.scope["path"] != DIRECT_PATH:
            # Answered before it is asked for, the body may come or not: what follows means nothing.
            cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        cycle = self.cycle
        if isinstance(cycle, DirectExchange):
            if cycle.more_body and not cycle.response_complete:
                cycle.pieces.append(body)
                cycle.size_bytes += len(body)
                return
        else:
            super().on_body(body)
        if cycle is not None and cycle.response_complete:
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
        cycle = self.cycle
        if isinstance(cycle, DirectExchange):
            cycle.more_body = False
        else:
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
        if self._head_begun or not (cycle is None or cycle.response_complete):
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

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if self.transport.is_closing():
            cycle.disconnected = True
            return
        if not self._in_head and self._body_timer is not None:  # from a pipeline: now it is read
            self._unset_body_timer()
            self._set_body_timer()
        if self._half_closed and not self.pipeline:
            if cycle.more_body:  # which never comes
                cycle.disconnected = True
                self._close()
                return
            self._begin_answer(cycle)
        super()._start_asgi_task(cycle, app)

    def _watch_body(self) -> None:
        if self._body_timer is None and not self.transport.is_closing():
            self._set_body_timer()

    def _feed(self, data: bytes | memoryview) -> None:
        self._head_bytes += len(data)  # the parser's calls set it back where there is progress
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self.send_400_response(self._why_malformed or "expected HTTP/1.1")

    def _is_one_request(self, data: bytes) -> bool:
        """Whether all that follows a head of allowed size is its body, which is not worth being
        cut. Only about pieces: what it means is the parser's business."""
        if self._head_bytes or self._in_body:
            return False
        end = data.find(b"\r\n\r\n", 0, HEAD_LIMIT_BYTES)
        told = _LENGTH.search(data, 0, end) if end >= 0 else None
        return told is not None and len(data) <= end + 4 + int(told[1])

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

    def _refuse_body(self, cycle: RequestResponseCycle | DirectExchange, problem: Problem) -> None:
        """Answer a request whose body is not read to its end."""
        exchange = cycle if isinstance(cycle, DirectExchange) else Exchange(self, cycle)
        exchange.refuse(problem)
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
            started = self._head_begun or self.pipeline or cycle.response_started
            unanswered = cycle.more_body and not started  # what came whole is under way
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
