"""What is bounded of a connection before the app hears of a request: its head, in size and time.

Bodies, and all that a whole request means, are the app's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from spillover.apps.node.exchange import Exchange
from spillover.apps.node.problems import Problem
from spillover.live.write_batch import WriteBatch

EXCHANGE = "spillover.exchange"

DIRECT_PATH = "/requests"
"""Requests to it are given to the app's `direct`, if it has one, where they need no waiting for."""

HEAD_LIMIT_BYTES = 65_536
"""Of a request's head. Trailers, and what else comes without being body, are held to it too; a
head that begins right behind another request may be longer by what came with that one."""


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which by itself takes a head of any size and waits for it forever.

    Every scope carries its `Exchange` under EXCHANGE, to be taken out by whoever answers.

    A timer runs only while a head is awaited that has begun, or the first one of a connection:
    a request that arrives in one piece on a connection in use never sets one.
    """

    head_timeout_s: ClassVar[float] = 10.0

    cycle: RequestResponseCycle | None  # type: ignore[assignment]  # None before the first head

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self._head_bytes = 0
        """Received since the last end of a head, piece of a body or end of a request."""
        self._head_begun = False
        self._head_timer: asyncio.TimerHandle | None = None
        self.writes: WriteBatch = getattr(self.app, "writes", None) or WriteBatch(self.loop)
        """The node's own, since it is what all its connections have in common that counts."""
        self._in_head = False
        """Whether the parser is at the end of a head, so that a request is started now."""
        self._put_off: tuple[RequestResponseCycle, Any] | None = None
        self.on_gone: Callable[[], None] | None = None
        """Called once when the connection is lost; whoever answers sets it back."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._set_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unset_timer()
        super().connection_lost(exc)
        if self.on_gone is not None:
            on_gone, self.on_gone = self.on_gone, None
            on_gone()

    def data_received(self, data: bytes) -> None:
        if self._head_bytes + len(data) <= HEAD_LIMIT_BYTES:
            self._feed(data)
            return
        start = 0
        while start < len(data) and not self.transport.is_closing():
            room_bytes = HEAD_LIMIT_BYTES - self._head_bytes
            if room_bytes == 0:
                self._refuse_head()
                return
            self._feed(data[start : start + room_bytes])
            start += room_bytes

    def on_message_begin(self) -> None:
        self._head_begun = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head_begun = False
        self._head_bytes = 0
        self._unset_timer()
        self._in_head = True
        super().on_headers_complete()
        self._in_head = False
        # The app's task, if it was made, runs later.
        assert self.cycle is not None  # noqa: S101 - for the type checker: it was made just now
        self.scope[EXCHANGE] = Exchange(self, self.cycle)  # type: ignore[literal-required]

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        self._unset_timer()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """What uvicorn does about bytes that are no HTTP."""
        if self.cycle is None or self.cycle.response_complete:
            self._answer(Problem("malformed", msg))
        self.transport.close()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """A request on the direct path waits until the data at hand is read: if it has come whole
        then, it is served without a task. One that was in a pipeline gets its task."""
        if self._in_head and cycle.scope["path"] == DIRECT_PATH:
            self._put_off = cycle, app
        else:
            super()._start_asgi_task(cycle, app)

    def _start_put_off(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._put_off = None
        exchange: Exchange = cycle.scope[EXCHANGE]  # type: ignore[literal-required]
        direct = getattr(app, "direct", None)
        if direct is not None and exchange.came_whole and exchange.is_open:
            cycle.scope.pop(EXCHANGE)  # type: ignore[misc]
            direct(exchange)
        else:
            super()._start_asgi_task(cycle, app)

    def _feed(self, data: bytes) -> None:
        self._head_bytes += len(data)  # the parser's calls set it back where there is progress
        super().data_received(data)
        if self._put_off is not None:
            self._start_put_off(*self._put_off)
        if self._head_timer is None and (self._head_begun or self._head_bytes):
            self._set_timer()

    def _set_timer(self) -> None:
        self._head_timer = self.loop.call_later(self.head_timeout_s, self._on_head_timeout)

    def _unset_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

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
        self.transport.close()

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
        self.transport.close()

    def _answer(self, problem: Problem) -> None:
        body = problem.body()
        length = (b"content-length", b"%d" % len(body))
        headers = [*problem.all_headers(), length, (b"connection", b"close")]
        lines = [b"%b: %b\r\n" % header for header in headers]
        self.transport.write(b"".join([STATUS_LINE[problem.status], *lines, b"\r\n", body]))
