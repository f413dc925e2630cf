"""A connection to a service: requests are given to the app by ASGI, in a task each; those that it
names in `Edge.direct` without a task, once they have come whole. A task, its scope and its event
cost more than the decision where a request should run.

How requests are read, and what bounds a connection, is in `live.http1.server_connection`. How large
a body may be, and all that a whole request means, are the app's business.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import unquote

from spillover.apps.http.asgi import Address, AsgiCall
from spillover.apps.http.exchange import (
    DISCARD_LIMIT_BYTES,
    Exchange,
    Switched,
    unread,
)
from spillover.apps.http.known_requests import KEY
from spillover.apps.http.problems import Problem
from spillover.apps.http.service import HttpService, Serve
from spillover.live.http1.heads import RequestHead
from spillover.live.http1.known_heads import whole_message, without_key
from spillover.live.http1.large_bodies import LargeBody
from spillover.live.http1.lingering import Lingering
from spillover.live.http1.server_connection import AHEAD_MAX_BYTES, ServerConnection
from spillover.live.http1.written import CLOSE, STATUS_LINE, answer_head, head_lines
from spillover.live.process.logs import OncePerPeriod
from spillover.live.tls.certified import PeerCertificate, certificate_of
from spillover.model.addresses import of_socket

DIRECT_BODY_BYTES = 262_144
"""A body for `Edge.direct` that is longer and has not come whole is read in a task."""

DIRECT_WITHIN_S = 0.02
"""A body for `Edge.direct` that takes longer than this is read in a task too. One that comes in a
few segments takes microseconds."""

_OF_PAGES = frozenset({b"origin", b"sec-fetch-site", b"sec-fetch-mode"})
"""Headers that tell that a browser asks for a page."""

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class HttpConnection(ServerConnection):
    """One connection."""

    __slots__ = (
        "_discarded_bytes", "_here", "_large", "_may_write", "_put_off",
        "_put_off_timer", "_serve", "_service", "_unread_bytes", "certificate", "exchange",
        "moving", "on_flow", "on_gone", "peer", "shown", "unread", "writes"
    )  # fmt: skip

    _here: Address | None
    certificate: PeerCertificate | None
    peer: Any
    shown: Any
    on_flow: Callable[[bool], None] | None
    _put_off_timer: asyncio.TimerHandle | None

    def __init__(self, service: HttpService) -> None:
        super().__init__(service)
        self._service = service
        self.writes = service.writes
        self.moving = service.edge.moving
        self.peer = self.shown = self.on_flow = None
        self.exchange: Exchange | None = None
        """The newest request; None before the first head."""
        self._put_off: Exchange | None = None
        """The request that the service is given once its body is collected."""
        self._serve: Serve | None = None
        """The function that is given `_put_off` then."""
        self._put_off_timer = None
        self.on_gone: Callable[[], None] | None = None
        self.unread: tuple[Exchange, Callable[[], None]] | None = None
        self._discarded_bytes = 0
        """The bytes of a body that came after the answer."""
        self._large: LargeBody | None = None
        """What reads the body, where that is large."""
        self._unread_bytes = 0
        """What is written and too much for the transport: it counts as moving."""
        self._may_write: asyncio.Event | None = None

    # --- what the loop tells ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._here = of_socket(transport.get_extra_info("sockname"))
        self.certificate = certificate_of(transport)
        self.bound_exchange()
        self._service.swept.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._service.swept.connections.discard(self)
        self.on_flow = None
        if self.unread is not None:
            self._tell_reset(exc)
        self._put_off = self._large = None
        if self._put_off_timer is not None:
            self._put_off_timer.cancel()
        exchange = self.exchange
        if exchange is not None:
            exchange.disconnected |= not exchange.response_complete
            if exchange.news is not None:
                exchange.news.set()
        self._count_unread(0)
        self._write_on()
        if self.on_gone is not None:
            on_gone, self.on_gone = self.on_gone, None
            on_gone()
        # It holds this: the body that it holds must not wait for a full garbage collection.
        self.exchange = None

    def _tell_reset(self, exc: Exception | None) -> None:
        assert self.unread is not None  # noqa: S101 - looked at before
        (exchange, on_reset), self.unread = self.unread, None
        if exc is not None and exchange is self.exchange:
            on_reset()

    def data_received(self, data: bytes) -> None:
        service = self._service
        if service.bounds.exchange_s is not None:
            self.bound_exchange()
        whole = None
        if not (self.is_busy or self._ahead or self._head_bytes.held or self.write_paused):
            whole = None if self._body or self.transport.is_closing() else whole_message(data)
        known = key = None
        if whole is not None:
            known = service.known.meanings.get(whole[0])
            if known is None and (keyless := without_key(whole[0])) is not None:
                known, key = service.known.meanings.get(keyless[0]), keyless[1]
        is_known = known is not None and known.is_keyed == (key is not None)
        if whole is None or known is None or not is_known or (known.of_peers and not self.peer):
            super().data_received(data)
            return
        _, length, body = whole
        headers = [*known.headers, (b"content-length", length)]
        if key is not None:
            headers.append((KEY, key))
        stays = service.leaving_idle_s == math.inf
        self.exchange = exchange = Exchange(
            self, known.method, known.path, known.query, headers, stays
        )
        exchange.more_body = False
        self.is_busy = True
        self.due_s = math.inf
        known.serve(exchange, body)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._count_unread(self.transport.get_write_buffer_size())
        self._unsent_bytes = self._unread_bytes
        self.due_s = min(self.due_s, self._service.clock() + self._service.bounds.unread_s)
        if self.on_flow is not None:
            self.on_flow(self.write_paused)

    def resume_writing(self) -> None:
        self._count_unread(0)
        self._bound_anew()
        super().resume_writing()
        if self.on_flow is not None:
            self.on_flow(self.write_paused)
        self._write_on()

    def _bound_anew(self) -> None:
        """It is not written that it waits for."""
        bounds, now_s = self._service.bounds, self._service.clock()
        if self._body is not None:
            self.due_s = now_s + bounds.body_s
        elif self._head_bytes.held:
            self.due_s = now_s + bounds.head_s
        else:
            self.await_request()
            if self.is_busy:
                self.due_s = math.inf

    def _count_unread(self, size_bytes: int) -> None:
        if self.moving is not None and size_bytes != self._unread_bytes:
            self.moving.add(size_bytes - self._unread_bytes)
        self._unread_bytes = size_bytes

    def _write_on(self) -> None:
        if self._may_write is not None:
            self._may_write.set()
            self._may_write = None

    async def drained(self) -> None:
        if self.write_paused:
            if self._may_write is None:
                self._may_write = asyncio.Event()
            await self._may_write.wait()

    # --- what the server tells ----------------------------------------------------------------

    def shutdown(self) -> None:
        """End it, once what is under way is answered."""
        if isinstance(self.transport, Lingering):
            self.transport.end()
        elif self.exchange is None or self.exchange.response_complete:
            self.close()
        else:
            self.exchange.keep_alive = False

    # --- reading ------------------------------------------------------------------------------

    def begin(self, head: RequestHead) -> None:
        service, names = self._service, head.names
        direct, method, target = service.edge.direct, head.method, head.target
        serve: Serve | None = None
        post = None if direct is None or method != "POST" else direct.posts.get(target)
        if post is not None:
            path, query = post.path, b""
            serve = None if post.of_peers and self.peer is None else post.serve
        else:
            told, _, query = target.partition(b"?")
            path = told.decode("latin-1")
            if "%" in path:
                path = unquote(path)
            if direct is not None and method == "GET" and path.startswith(direct.get_below):
                serve = direct.get
        headers = [(name, field[1]) for name, field in zip(names, head.fields, strict=True)]
        keep_alive = head.keep_alive and service.leaving_idle_s == math.inf
        self.exchange = exchange = Exchange(self, method, path, query, headers, keep_alive)
        exchange.is_old = head.is_old
        exchange.awaits_continue = head.awaits_continue
        exchange.is_of_page = not _OF_PAGES.isdisjoint(names)
        exchange.more_body = head.size_bytes != 0
        self.is_busy = True
        self._discarded_bytes = 0
        if self.half_closed and not self._ahead:
            self.begin_answer()
        if serve is not None and not (exchange.awaits_continue or exchange.is_of_page):
            self._put_off, self._serve = exchange, serve
        else:
            self._call(exchange)

    def whole(self, head: RequestHead, body: bytes, data: bytes) -> None:  # noqa: ARG002 - see base
        exchange, serve = self.exchange, self._serve
        assert exchange is not None  # noqa: S101 - its head has come
        if exchange is not self._put_off or serve is None:
            if body:
                self.take(body, is_last=True)
            return
        exchange.pieces = [body]
        exchange.more_body = False
        self._put_off = None
        if data and (told := whole_message(data)) is not None:
            self._service.known.learn_from(exchange, *told, serve=serve)
        serve(exchange, exchange.take())

    def await_body(self, head: RequestHead) -> None:  # noqa: ARG002 - see base
        if self._put_off is not None:
            self._try_put_off(self._put_off)

    def take(self, piece: bytes, *, is_last: bool) -> None:
        exchange = self.exchange
        assert exchange is not None  # noqa: S101 - its head has come
        exchange.more_body = not is_last
        if exchange.response_complete:
            self._discarded_bytes += len(piece)
            if self._discarded_bytes > DISCARD_LIMIT_BYTES and not is_last:
                self.end_now()
            return
        if piece:
            exchange.pieces.append(piece)
            exchange.size_bytes += len(piece)
        if exchange.news is not None:
            exchange.news.set()
            if exchange.size_bytes > AHEAD_MAX_BYTES and not is_last:
                self.pause_reading()
        elif self._put_off is not None:
            self._try_put_off(self._put_off)

    def switch(
        self, exchange: Exchange, head: bytes, make: Callable[[asyncio.Transport], Switched]
    ) -> bool:
        is_alone = exchange is self.exchange and self.is_busy and not self._ahead
        if not is_alone or self._body is not None or self.half_closed or self.is_over:
            return False
        exchange.response_started = exchange.response_complete = True
        self.writes.flush()
        self.transport.write(head)
        swept, other = self._service.swept, make(self.transport)
        other.on_end = partial(swept.connections.discard, other)
        swept.connections.discard(self)
        swept.add(other)
        other.take_over()
        self.exchange = None  # it holds this
        return True

    def read_large(self, exchange: Exchange, size_bytes: int) -> None:
        if self.transport.is_closing() or self._body is None:
            return
        assert exchange.news is not None  # noqa: S101 - only tasks wait
        begun = exchange.take()
        exchange.news.clear()
        self._read_paused = False
        self._large = LargeBody(self, self.transport, begun, size_bytes, self._on_large_body)

    def _on_large_body(self, body: bytes) -> None:
        self._large = None
        self.end_body()
        self.take(body, is_last=True)

    # --- having requests answered -------------------------------------------------------------

    def _try_put_off(self, exchange: Exchange) -> None:
        """Serve it directly if all of it is here, let it wait a little, or give it a task."""
        if not exchange.more_body:
            self._put_off = None
            self._serve(exchange, exchange.take())  # type: ignore[misc] # it is there with that
        elif exchange.size_bytes > DIRECT_BODY_BYTES:
            self._give_task(exchange)
        elif exchange.begun_s is None:
            exchange.begun_s = self._service.clock()
            if self._put_off_timer is None:
                self._set_put_off_timer(DIRECT_WITHIN_S)

    def _set_put_off_timer(self, delay_s: float) -> None:
        self._put_off_timer = self._service.loop.call_later(delay_s, self._on_put_off_timeout)

    def _on_put_off_timeout(self) -> None:
        """It was set for a request that may have been served since."""
        self._put_off_timer = None
        exchange = self._put_off
        if exchange is None:
            return
        rest_s = (exchange.begun_s or 0.0) + DIRECT_WITHIN_S - self._service.clock()
        if rest_s > 0:
            self._set_put_off_timer(rest_s)
        else:
            self._give_task(exchange)

    def _give_task(self, exchange: Exchange) -> None:
        self._put_off = None
        self._call(exchange)

    def _call(self, exchange: Exchange) -> None:
        service, connections_max = self._service, self._service.bounds.connections_max
        if connections_max is not None and len(service.swept.connections) > connections_max:
            detail = f"expected at most {connections_max} connections at a time"
            exchange.refuse(Problem("not_ready", detail, headers=[CLOSE]))
            return
        call = AsgiCall(self, exchange)
        task = service.loop.create_task(call.run(service.app, self.client, self._here))
        task.add_done_callback(service.tasks.discard)
        service.tasks.add(task)

    def be_the_last(self) -> None:
        exchange = self.exchange
        if exchange is not None and not exchange.response_started:
            exchange.keep_alive = False

    def waits_half_closed(self) -> bool:
        """Returns whether the answer has not begun. Who means a recall by closing its half has one
        at once."""
        exchange, below = self.exchange, self._service.edge.recalled_below
        if exchange is None or exchange.response_started:
            return False
        if below is not None and exchange.path.startswith(below):
            return False
        self.begin_answer()
        return True

    def begin_answer(self) -> None:
        self.writes.flush()  # the answer before it
        super().begin_answer()

    # --- bounds -------------------------------------------------------------------------------

    def lift_bound(self) -> None:
        self.cut_s = math.inf

    def too_late(self, now_s: float) -> None:
        if self._large is not None:
            self._came_bytes = self._large.came_bytes()
        if self._unread_bytes:
            self._count_unread(self.transport.get_write_buffer_size())
        super().too_late(now_s)

    def refuse(self, error: Exception) -> None:
        """Answer, where an answer is due and would not be taken for one to another request."""
        problem = unread(error)
        problem.headers = [field for field in problem.headers if field != CLOSE]
        exchange, is_of_body = self.exchange, self._body is not None
        self._is_last = True
        if is_of_body and exchange is not None:
            self._put_off = None
            if not exchange.response_started:
                exchange.keep_alive = False
                exchange.refuse(problem)
            else:
                self.end_now()
            exchange.disconnected = True  # whoever reads or answers it need not go on
            if exchange.news is not None:
                exchange.news.set()
            return
        body = problem.body()
        told = STATUS_LINE[problem.status], head_lines(problem.all_headers()), len(body)
        self.writes.flush()
        self.transport.write(answer_head(*told, keep_alive=False, is_old=False) + body)
        self.end_now()
