"""A connection to a service: requests are read from it one after another, and what is bounded of it
is bounded whatever the app does: a request's head in size and time, its body in time, what is
thrown away of a body that nobody wants any more, and answers that nobody reads.

How large a body may be, and all that a whole request means, are the app's business. An app takes
its requests by ASGI, in a task each; those that it names in `Edge.direct` are handed to it without
a task, once they have come whole. A task, its scope and its event cost more than the decision where
a request should run.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias, cast
from urllib.parse import unquote

import httptools

from spillover.apps.http.asgi import Address, AsgiCall
from spillover.apps.http.exchange import (
    CLOSE,
    DISCARD_LIMIT_BYTES,
    STATUS_LINE,
    Exchange,
    Switched,
    body_too_slow,
)
from spillover.apps.http.problems import Problem
from spillover.apps.http.service import Serve, Service
from spillover.live.engine.write_batch import WriteBatch
from spillover.live.http1.framing import head_lines
from spillover.live.http1.half_closed import HalfClosed
from spillover.live.http1.known_heads import whole_message
from spillover.live.http1.large_bodies import LargeBody
from spillover.live.http1.lingering import Lingering
from spillover.live.http1.unread import UnreadAnswers
from spillover.live.tls.certified import PeerCertificate, certificate_of
from spillover.model.addresses import of_socket

HEAD_LIMIT_BYTES = 65_536
"""The largest head of a request. Trailers, and what else comes without being body, are held to it
too; a head that begins right behind another request may be longer by what came with that one."""

AHEAD_LIMIT_BYTES = 65_536
"""A connection is not read on while more of a body than this has come that its task has not
taken."""

DIRECT_BODY_BYTES = 262_144
"""A body for `Edge.direct` that is longer and has not come whole is read in a task."""

DIRECT_WITHIN_S = 0.02
"""A body for `Edge.direct` that takes longer than this is read in a task too. One that comes in a
few segments takes microseconds."""

_SEEN_HERE = frozenset(
    {b"host", b"expect", b"transfer-encoding", b"origin", b"sec-fetch-site", b"sec-fetch-mode"}
)
"""Headers that mean something to the connection, or tell that a browser asks for a page."""

_LENGTH = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: *([0-9]{1,15})")


Timer: TypeAlias = asyncio.TimerHandle | None


class HttpConnection(asyncio.Protocol):
    """One connection. What the parser finds it tells in `on_...`.

    A timer runs only while a head is awaited that has begun, or while a body is: a request that
    arrives in one piece never sets one.
    """

    __slots__ = (
        "_awaits_continue", "_body_bytes", "_body_timer", "_bounds", "_direct", "_discarded_bytes",
        "_exchange_timer", "_half_closed", "_head_begun", "_head_bytes", "_head_timer",
        "_headers", "_here", "_hosts", "_idle_since_s", "_idle_timer", "_in_body",
        "_is_of_page", "_loop", "_may_write", "_parser", "_put_off",
        "_put_off_timer", "_read_paused", "_running", "_same_without_upgrade", "_serve", "_service",
        "_unread", "_url", "_why_malformed", "certificate", "client", "exchange", "is_leaving",
        "moving", "on_flow", "on_gone", "peer", "pipeline", "shown", "transport", "unread",
        "write_paused", "writes"
    )  # fmt: skip

    transport: asyncio.Transport
    client: Address | None
    _here: Address | None
    certificate: PeerCertificate | None
    peer: Any
    shown: Any
    on_flow: Callable[[bool], None] | None
    _idle_since_s: float
    """The instant, by the loop's clock, at which the last request was answered or the connection
    made."""
    _idle_timer: Timer
    _head_timer: Timer
    _body_timer: Timer
    _put_off_timer: Timer
    _exchange_timer: Timer

    def __init__(self, service: Service) -> None:
        self._service, self._bounds = service, service.bounds
        self.is_leaving = service.leaving_idle_s is not None
        self._direct = service.edge.direct
        self._loop = service.loop
        self.writes = service.edge.writes or WriteBatch(service.loop)
        self.moving = service.edge.moving
        self.peer = self.shown = self.on_flow = None
        self._unread: UnreadAnswers | None = None
        self._parser = _new_parser(self)
        # Requests.
        self.exchange: Exchange | None = None
        """The newest request, which is read; None before the first head."""
        self._running: Exchange | None = None
        """The request that is being answered."""
        self.pipeline: deque[Exchange] | None = None
        """The requests that wait for the answers before theirs; None if there never were any."""
        self._put_off: Exchange | None = None
        """The request that the service is given once its body is collected."""
        self._serve: Serve | None = None
        """The function that is given `_put_off` then."""
        self.on_gone: Callable[[], None] | None = None
        self.unread: tuple[Exchange, Callable[[], None]] | None = None
        # The head that is read.
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._hosts = 0
        """`Host` lines."""
        self._awaits_continue = False
        self._is_of_page = False
        self._why_malformed: str | None = None
        """What is wrong with it although it is HTTP."""
        self._head_begun = False
        self._head_bytes = 0
        """Received since the last end of a head, piece of a body or end of a request."""
        self._same_without_upgrade: bytes | None = None
        """A head that asked for another protocol, without that."""
        # The body that is read.
        self._in_body = False
        """Whether a head has ended whose request has not."""
        self._body_bytes = self._discarded_bytes = 0
        """The bytes of this body that came since its timer was set, and those of one that came
        after the answer."""
        # How far the other side goes along.
        self._half_closed = False
        """It sends nothing more, and waits for answers, or is gone."""
        self._read_paused = False
        self.write_paused = False
        self._may_write: asyncio.Event | None = None
        self._idle_timer = self._head_timer = self._body_timer = None
        self._put_off_timer = self._exchange_timer = None

    # --- what the loop tells ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.client = of_socket(transport.get_extra_info("peername"))
        self._here = of_socket(transport.get_extra_info("sockname"))
        self.certificate = certificate_of(transport)
        self._service.connections.add(self)
        self._idle_since_s = self._loop.time()
        self._set_idle_timer(self._service.idle_s)
        if self._bounds.exchange_s is not None:
            self._bound_exchange(self._bounds.exchange_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._service.connections.discard(self)
        self.on_flow = None
        if self.unread is not None:
            self._tell_reset(exc)
        self._put_off = None
        self._end_timers()
        if isinstance(self.transport, HalfClosed):
            self.transport.stop()
        if self._unread is not None:
            self._unread.count(0)
        for exchange in (self._running, self.exchange):
            if exchange is not None:
                exchange.disconnected |= not exchange.response_complete
                if exchange.news is not None:
                    exchange.news.set()
        self.resume_writing()
        if self.on_gone is not None:
            on_gone, self.on_gone = self.on_gone, None
            on_gone()
        # Each holds this: the bodies they hold must not wait for a full garbage collection.
        self._running = self.exchange = None
        self.pipeline = None
        self._parser = None

    def _tell_reset(self, exc: Exception | None) -> None:
        assert self.unread is not None  # noqa: S101 - looked at before
        (exchange, on_reset), self.unread = self.unread, None
        if exc is not None and exchange is self.exchange:
            on_reset()

    def data_received(self, data: bytes) -> None:
        before, whole = self.exchange, None
        is_between = not (self._head_bytes or self._head_begun or self._in_body)
        if is_between and self._direct is not None and (before is None or before.response_complete):
            whole = whole_message(data)
            known = None if whole is None else self._service.known.meanings.get(whole[0])
            may_serve = not (self.write_paused or self.transport.is_closing())
            if whole and known and may_serve and not (known.of_peers and self.peer is None):
                # The parser stands between two requests, and still does then.
                _, length, body = whole
                headers = [*known.headers, (b"content-length", length)]
                asked = known.method, known.path, known.query, headers, not self.is_leaving
                self.exchange = self._running = exchange = Exchange(self, *asked)
                exchange.more_body = False
                self._discarded_bytes = 0
                known.serve(exchange, body)
                return
        self._read(data, whole)

    def _read(self, data: bytes, whole: tuple[bytes, bytes, bytes] | None) -> None:
        """Have the parser read it; `whole` is a request that it may be, taken apart."""
        if self._head_bytes + len(data) <= HEAD_LIMIT_BYTES or self._is_one_request(data):
            self._feed(data)
        else:
            self._feed_by_pieces(data)
        if self._put_off is not None:
            if whole is not None and self._serve is not None and not self._head_begun:
                self._service.known.learn_from(self._put_off, *whole, serve=self._serve)
            self._try_put_off(self._put_off)
        if self._in_body:
            if self._put_off is None:
                self._watch_body()
        elif self._idle_timer is None:
            self._await_next()
        if self._head_timer is None and (self._head_begun or self._head_bytes):
            self._head_timer = self._loop.call_later(self._bounds.head_s, self._on_head_timeout)
        exchange_s = self._bounds.exchange_s
        if exchange_s is not None and self._exchange_timer is None:
            self._bound_exchange(exchange_s)

    def eof_received(self) -> bool:
        """Returns whether to keep the connection although the other side sends nothing more: for
        answers to whole requests that have not begun. Who means a recall by that has one at once.
        """
        self.writes.flush()  # what closes now takes nothing along that is answered
        exchange = self.exchange
        if exchange is None or self.transport.get_extra_info("ssl_object") is not None:
            return False  # TLS has no half-closed connections
        if not self.pipeline:
            below = self._service.edge.recalled_below
            is_recall = below is not None and exchange.path.startswith(below)
            if exchange.more_body or exchange.response_started or is_recall:
                return False
            self._begin_answer()
        self._half_closed = True
        exchange.keep_alive = False  # the last one; those before it are behind each other as ever
        return True

    def pause_writing(self) -> None:
        self.write_paused = True
        if self._unread is None:
            self._unread = UnreadAnswers(self.transport, self.moving, self._bounds.unread_s)
        self._unread.count(self.transport.get_write_buffer_size())
        if self.on_flow is not None:
            self.on_flow(self.write_paused)

    def resume_writing(self) -> None:
        self.write_paused = False
        if self._unread is not None:
            self._unread.count(0)
        if self.on_flow is not None:
            self.on_flow(self.write_paused)
        if self._may_write is not None:
            self._may_write.set()
            self._may_write = None

    # --- what the server tells ----------------------------------------------------------------

    def leave(self, *, is_leaving: bool) -> None:
        """Have the client go elsewhere, as long as that is so: an answer that has not begun says
        that it is the last one, and who asks nothing is not kept for long."""
        self.is_leaving, exchange = is_leaving, self.exchange
        if is_leaving and exchange is not None and not exchange.response_started:
            exchange.keep_alive = False
        self._idle_since_s = self._loop.time()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._set_idle_timer(self._service.idle_s)

    def shutdown(self) -> None:
        """End it, once what is under way is answered."""
        self.writes.flush()
        if isinstance(self.transport, Lingering):
            self.transport.end()
        elif self.exchange is None or self.exchange.response_complete:
            self.transport.close()
        else:
            self.exchange.keep_alive = False

    # --- reading ------------------------------------------------------------------------------

    def _feed(self, data: bytes | memoryview) -> None:
        """Have it read as if nobody ever asked for another protocol (RFC 9110, section 7.8, lets a
        server ignore that): the parser takes whatever follows such a head for the other protocol,
        so another one gets it behind the same head without the question."""
        self._head_bytes += len(data)  # the parser's calls set it back where there is progress
        while True:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                head, self._same_without_upgrade = self._same_without_upgrade or b"", None
                self._parser = _new_parser(self)
                data = head + bytes(data[upgrade.args[0] :])
            except httptools.HttpParserError:
                self._refuse_bytes(self._why_malformed or "expected HTTP/1.1")
                return
            else:
                return

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

    def on_message_begin(self) -> None:
        self._head_begun = True
        self._url = b""
        self._headers = []
        self._hosts = 0
        self._awaits_continue = self._is_of_page = False
        self._why_malformed = None

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called for trailers too, which are not looked at any more."""
        name = name.lower()
        if name in _SEEN_HERE:
            if name == b"host":
                self._hosts += 1
            elif name == b"expect":
                self._awaits_continue |= value.lower() == b"100-continue"
            elif name != b"transfer-encoding":
                self._is_of_page = True
            elif value.strip().lower() != b"chunked" or self._parser.get_http_version() == "1.0":
                self._why_malformed = "Transfer-Encoding: expected chunked alone, in HTTP/1.1"
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._head_begun = False
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        parser = self._parser
        version: str = parser.get_http_version()
        if self._hosts != 1 or self._why_malformed is not None:
            self._check_head(version)
        if parser.should_upgrade():
            self._same_without_upgrade = self._written_anew(version)
            return
        self._in_body = True
        self._discarded_bytes = 0
        before, direct, url = self.exchange, self._direct, self._url
        method: str = parser.get_method().decode("ascii")
        keep_alive = parser.should_keep_alive() and not self.is_leaving
        serve: Serve | None = None
        post = None if direct is None or method != "POST" else direct.posts.get(url)
        if post is not None:
            path, query = post.path, b""
            serve = None if post.of_peers and self.peer is None else post.serve
        else:
            parsed = httptools.parse_url(url)
            path, query = parsed.path.decode("ascii"), parsed.query or b""
            if "%" in path:
                path = unquote(path)
            if direct is not None and method == "GET" and path.startswith(direct.get_below):
                serve = direct.get
        exchange = Exchange(self, method, path, query, self._headers, keep_alive)
        if version == "1.0":
            exchange.is_old = True
        self.exchange = exchange
        self._headers = []  # trailers are no headers
        exchange.awaits_continue = self._awaits_continue
        exchange.is_of_page = self._is_of_page
        if before is not None and not before.response_complete:
            self._pause_reading()
            self.pipeline = self.pipeline or deque()
            self.pipeline.append(exchange)
        elif serve is not None and not (self._awaits_continue or self._is_of_page):
            self._put_off, self._serve = exchange, serve
        else:
            self._call(exchange)

    def _check_head(self, version: str) -> None:
        """Refuse what others on the way may have read differently (RFC 9112, sections 3.2 and 6).
        A body of two lengths is no HTTP already to the parser. Raises HttpParserError."""
        if self._why_malformed is None and self._hosts != 1 and (self._hosts or version != "1.0"):
            self._why_malformed = f"Host: expected once, got it {self._hosts} times"
        if self._why_malformed is not None:
            raise httptools.HttpParserError(self._why_malformed)

    def _written_anew(self, version: str) -> bytes:
        """The head that was just read, without `Upgrade`. Raises HttpParserError for CONNECT, which
        is an upgrade by itself."""
        method = self._parser.get_method()
        if method == b"CONNECT":
            raise httptools.HttpParserInvalidMethodError
        lines = [b"%b: %b\r\n" % header for header in self._headers if header[0] != b"upgrade"]
        start = b"%b %b HTTP/%b\r\n" % (method, self._url, version.encode())
        return b"%b%b\r\n" % (start, b"".join(lines))

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        self._body_bytes += len(body)
        exchange = self.exchange
        assert exchange is not None  # noqa: S101 - its head has come
        if exchange.response_complete:
            self._discarded_bytes += len(body)
            if self._discarded_bytes > DISCARD_LIMIT_BYTES:
                self._linger()
            return
        exchange.pieces.append(body)
        exchange.size_bytes += len(body)
        if exchange.news is not None:
            exchange.news.set()
            if exchange.size_bytes > AHEAD_LIMIT_BYTES:
                self._pause_reading()

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        if self._same_without_upgrade is not None:
            return  # the parser's idea of it: its body is still to come
        self._in_body = False
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None
        exchange = self.exchange
        assert exchange is not None  # noqa: S101 - its head has come
        exchange.more_body = False
        if exchange.news is not None:
            exchange.news.set()

    def switch(
        self, exchange: Exchange, head: bytes, make: Callable[[asyncio.Transport], Switched]
    ) -> bool:
        is_alone = exchange is self.exchange is self._running and not self.pipeline
        if not is_alone or exchange.more_body or self._half_closed or self.transport.is_closing():
            return False
        exchange.response_started = exchange.response_complete = True
        self._end_timers()
        self.writes.flush()
        self.transport.write(head)
        connections, other = self._service.connections, make(self.transport)
        other.on_end = partial(connections.discard, other)
        connections.discard(self)
        connections.add(other)
        other.take_over()
        self._running = self.exchange = self._parser = None  # each holds this
        return True

    def _end_timers(self) -> None:
        for timer in (
            *(self._idle_timer, self._head_timer, self._body_timer),
            *(self._put_off_timer, self._exchange_timer),
        ):
            if timer is not None:
                timer.cancel()

    def _pause_reading(self) -> None:
        if not self._read_paused:
            self._read_paused = True
            self.transport.pause_reading()

    def read_on(self) -> None:
        if self._read_paused:
            self._read_paused = False
            self.transport.resume_reading()

    def read_large(self, exchange: Exchange, size_bytes: int) -> None:
        if self.transport.is_closing():
            return
        assert exchange.news is not None  # noqa: S101 - only tasks wait
        begun = exchange.take()
        exchange.news.clear()
        self._read_paused = False
        LargeBody(self, self.transport, begun, size_bytes, self._on_large_body)

    def _on_large_body(self, body: bytes) -> None:
        """It was read without the parser, of which the next request gets a new one."""
        exchange = self.exchange
        assert exchange is not None  # noqa: S101 - it is read
        exchange.pieces, exchange.size_bytes = [body], len(body)
        self._parser = _new_parser(self)
        self.on_message_complete()

    # --- having requests answered -------------------------------------------------------------

    def _try_put_off(self, exchange: Exchange) -> None:
        """Serve it directly if all of it is here, let it wait a little, or give it a task."""
        if self.transport.is_closing():  # for what came behind it
            exchange.disconnected = True
            self._put_off = None
        elif self.write_paused:  # an answer would go onto a pile
            self._give_task(exchange)
        elif not exchange.more_body:
            self._put_off = None
            self._running = exchange
            self._serve(exchange, exchange.take())  # type: ignore[misc] # it is there with that
        elif exchange.size_bytes > DIRECT_BODY_BYTES:
            self._give_task(exchange)
        elif exchange.begun_s is None:
            exchange.begun_s = self._loop.time()
            if self._put_off_timer is None:
                self._set_put_off_timer(DIRECT_WITHIN_S)

    def _set_put_off_timer(self, delay_s: float) -> None:
        self._put_off_timer = self._loop.call_later(delay_s, self._on_put_off_timeout)

    def _on_put_off_timeout(self) -> None:
        """It was set for a request that may have been served since."""
        self._put_off_timer = None
        exchange = self._put_off
        if exchange is None:
            return
        rest_s = (exchange.begun_s or 0.0) + DIRECT_WITHIN_S - self._loop.time()
        if rest_s > 0:
            self._set_put_off_timer(rest_s)
        else:
            self._give_task(exchange)
            self._watch_body()

    def _give_task(self, exchange: Exchange) -> None:
        self._put_off = None
        self._call(exchange)

    def _call(self, exchange: Exchange) -> None:
        """Have the app answer it, in a task."""
        if self.transport.is_closing():
            exchange.disconnected = True
            return
        if self._half_closed and not self.pipeline:
            if exchange.more_body:  # which never comes
                exchange.disconnected = True
                self._close()
                return
            self._begin_answer()
        self._running = exchange
        service, bounds = self._service, self._bounds
        if bounds.connections_max is not None and len(service.connections) > bounds.connections_max:
            detail = f"expected at most {bounds.connections_max} connections at a time"
            exchange.refuse(Problem("not_ready", detail, headers=[CLOSE]))
            return
        call = AsgiCall(self, exchange)
        task = self._loop.create_task(call.run(service.app, self.client, self._here))
        task.add_done_callback(service.tasks.discard)
        service.tasks.add(task)

    def _begin_answer(self) -> None:
        """The last one on this connection, to see whether anybody is there to read it."""
        self.writes.flush()  # the answer before it
        self.transport = cast("asyncio.Transport", HalfClosed(self.transport, self._loop))

    async def drained(self) -> None:
        if self.write_paused:
            if self._may_write is None:
                self._may_write = asyncio.Event()
            await self._may_write.wait()

    def answered(self) -> None:
        if self._exchange_timer is not None:
            self.lift_bound()
            if self.pipeline or self.transport.is_closing():  # who knows whether it is read
                self._bound_exchange(self._bounds.exchange_s or 0.0)
        if self.transport.is_closing():
            return
        if self._read_paused:
            self.read_on()
        if not self.pipeline:
            # The timer is left to itself: to set one after each answer costs more than its JSON.
            self._idle_since_s = self._loop.time()
            if self._idle_timer is None:
                self._await_next()
            return
        if self._body_timer is not None:  # now it is read
            self._body_timer.cancel()
            self._set_body_timer()
        self._call(self.pipeline.popleft())

    # --- bounds -------------------------------------------------------------------------------

    def _await_next(self) -> None:
        """Have an idle connection closed in time: one that waits for nothing but another request,
        since its answer, or since the rest of a body came that was not wanted any more."""
        exchange = self.exchange
        if exchange is None or self._head_begun or not exchange.response_complete:
            return
        if not self.transport.is_closing():
            self._idle_since_s = self._loop.time()
            self._set_idle_timer(self._service.idle_s)

    def _set_idle_timer(self, delay_s: float) -> None:
        self._idle_timer = self._loop.call_later(delay_s, self._on_idle_timeout)

    def _on_idle_timeout(self) -> None:
        """The connection may have been in use since the timer was set."""
        self._idle_timer = None
        exchange = self.exchange
        if self._head_begun or not (exchange is None or exchange.response_complete):
            return  # busy; the next answer sets it again
        rest_s = self._idle_since_s + self._service.idle_s - self._loop.time()
        if rest_s > 0:
            self._set_idle_timer(rest_s)
        else:
            self._close()

    def _bound_exchange(self, exchange_s: float) -> None:
        self._exchange_timer = self._loop.call_later(exchange_s, self.transport.abort)

    def lift_bound(self) -> None:
        if self._exchange_timer is not None:
            self._exchange_timer.cancel()
            self._exchange_timer = None

    def _watch_body(self) -> None:
        if self._body_timer is None and not self.transport.is_closing():
            self._set_body_timer()

    def _set_body_timer(self) -> None:
        self._body_bytes = 0
        self._body_timer = self._loop.call_later(self._bounds.body_s, self._on_body_timeout)

    def _on_body_timeout(self) -> None:
        self._body_timer = None
        exchange = self.exchange
        bounds = self._bounds
        if self.transport.is_closing():
            return
        # It comes well, or its turn has not come: others would go along.
        if self.pipeline or exchange is None or not bounds.is_too_slow(self._body_bytes):
            self._set_body_timer()
            return
        if not exchange.response_started:
            self._refuse_body(exchange, body_too_slow(bounds.body_s, bounds.body_bytes_per_s))
        self._close()

    def _refuse_body(self, exchange: Exchange, problem: Problem) -> None:
        """Answer a request whose body is not read to its end."""
        exchange.refuse(problem)
        exchange.disconnected = True  # whoever reads or answers it need not go on

    def _refuse_bytes(self, why: str) -> None:
        """Those that are no HTTP. They are in the place of a request, or in the body of one, which
        may be answered already or have to wait for others' answers."""
        exchange = self.exchange
        if not self._in_body:
            if exchange is None or exchange.response_complete:
                self._answer(Problem("malformed", why))
                return
        elif exchange is not None and not (self.pipeline or exchange.response_started):
            self._refuse_body(exchange, Problem("malformed", why, headers=[CLOSE]))
        self._close()

    def _on_head_timeout(self) -> None:
        self._head_timer = None
        if self.transport.is_closing():
            return
        if self.exchange is not None and not self.exchange.response_complete:
            # Until that one is answered, reading may be paused, and closing would take it along.
            if self._head_begun:
                self._head_timer = self._loop.call_later(self._bounds.head_s, self._on_head_timeout)
            return
        if self._head_begun:
            detail = f"expected the whole head of a request within {self._bounds.head_s:g} s"
            self._answer(Problem("head_too_slow", detail))
        else:
            self._close()

    def _refuse_head(self) -> None:
        """Answer, unless that would be taken for the answer to another request, and close."""
        exchange = self.exchange
        if exchange is None or (self._head_begun and exchange.response_complete):
            unanswered = True
        else:  # its trailers are too large, or a request ahead of this one is not answered yet
            started = self._head_begun or self.pipeline or exchange.response_started
            unanswered = exchange.more_body and not started  # what came whole is under way
            exchange.disconnected = True
        if unanswered:
            detail = f"expected the head of a request to have at most {HEAD_LIMIT_BYTES} bytes"
            self._answer(Problem("head_too_large", detail))
        else:
            self._close()

    def _answer(self, problem: Problem) -> None:
        """Where no request is to be answered. It is the last one."""
        body = problem.body()
        length = (b"content-length", b"%d" % len(body))
        lines = head_lines([*problem.all_headers(), length, CLOSE])
        self.writes.flush()
        self.transport.write(b"".join([STATUS_LINE[problem.status], lines, b"\r\n", body]))
        self._linger()

    def close_behind(self, exchange: Exchange) -> None:
        if exchange.more_body:
            self._linger()
        else:
            self.transport.close()

    def _linger(self) -> None:
        """Close it once the client has had the time to read the last answer, though it may look up
        only once all is sent."""
        if self._half_closed or self.transport.is_closing():
            self._close()
            return
        self.writes.flush()
        lingering = Lingering(self, self.transport, self._loop)
        self.transport = cast("asyncio.Transport", lingering)
        if self._bounds.exchange_s is not None and self._exchange_timer is None:
            self._bound_exchange(self._bounds.exchange_s)

    def _close(self) -> None:
        """Close behind what was answered in this turn of the loop."""
        self.writes.flush()
        self.transport.close()
        if self._bounds.exchange_s is not None and self._exchange_timer is None:
            self._bound_exchange(self._bounds.exchange_s)


def _new_parser(connection: HttpConnection) -> Any:
    parser = httptools.HttpRequestParser(connection)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser
