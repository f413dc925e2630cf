"""An exchange as ASGI apps see it: a scope, `receive` and `send`, in a task of its own.

What ASGI asks of a server, and no more; the bounds of a connection hold all the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeAlias

from spillover.apps.http.exchange import (
    EXCHANGE,
    Exchange,
    Line,
)
from spillover.apps.http.problems import BUG, Problem
from spillover.live.http1.heads import CHUNKED
from spillover.live.http1.written import (
    STATUS_LINE,
    TO_THE_END,
    answer_head,
    named_lines,
    size_sent,
)
from spillover.live.process.logs import Message as LogMessage
from spillover.live.process.logs import OncePerPeriod

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Address: TypeAlias = tuple[str, int]

START, BODY = "http.response.start", "http.response.body"

_VERSIONS = {"version": "3.0", "spec_version": "2.3"}

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class AsgiCall:
    """One call of an app."""

    __slots__ = ("_exchange", "_left_bytes", "_line")

    def __init__(self, line: Line, exchange: Exchange) -> None:
        self._line = line
        self._exchange = exchange
        self._left_bytes = 0
        """The bytes that a body whose length was told still lacks; or CHUNKED, or TO_THE_END."""
        exchange.news = asyncio.Event()
        if exchange.pieces or not exchange.more_body:
            exchange.news.set()

    async def run(self, app: AsgiApp, client: Address | None, server: Address | None) -> None:
        """See it through: there is an answer at the end, or no connection."""
        exchange = self._exchange
        scope = {
            "type": "http",
            "asgi": _VERSIONS,
            "http_version": "1.1",  # as which all is answered
            "server": server,
            "client": client,
            "scheme": "http",
            "root_path": "",
            "method": exchange.method,
            "path": exchange.path,
            "query_string": exchange.query,
            "headers": exchange.headers,
            EXCHANGE: exchange,
        }
        try:
            await app(scope, self._receive, self._send)
            if exchange.has_left_task:
                return
            if not (exchange.disconnected or exchange.response_complete):
                raise RuntimeError("it returned without a whole answer")  # noqa: TRY301 - as the rest
        except Exception:  # noqa: BLE001 - nothing behind this turns a bug into an answer
            told = {"method": exchange.method, "path": exchange.path}
            _log.exception(LogMessage("internal error", **told))
        if not exchange.response_started:
            exchange.refuse(Problem("internal", BUG))
        elif not exchange.response_complete:
            self._line.transport.close()

    async def _receive(self) -> Message:
        body = await self._exchange.next_part()
        if body is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": body, "more_body": self._exchange.more_body}

    async def _send(self, message: Message) -> None:
        exchange = self._exchange
        if self._line.write_paused and not exchange.disconnected:
            await self._line.drained()
        if exchange.disconnected:
            return
        expected = BODY if exchange.response_started else START
        if exchange.response_complete or message["type"] != expected:
            raise RuntimeError(f"expected {expected} before the end, got {message['type']}")
        if expected is START:
            self._start(message["status"], message.get("headers", ()))
        else:
            self._write_body(message.get("body", b""), is_last=not message.get("more_body", False))

    def _start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        exchange = self._exchange
        if exchange.awaits_continue:
            # Answered before it is asked for, the body may come or not: what follows means nothing.
            exchange.awaits_continue = exchange.keep_alive = False
        length, kept = None, []
        for name, value in headers:
            match name.lower():
                case b"content-length":
                    length = int(value)
                case b"connection" if b"close" in value.lower():
                    exchange.keep_alive = False
                    continue
            kept.append((name, value))
        asked = exchange.method, status, length
        self._left_bytes = size = size_sent(*asked, is_old=exchange.is_old)
        exchange.keep_alive &= size != TO_THE_END
        told = STATUS_LINE[status], named_lines(kept) + exchange.header_lines
        head = answer_head(
            *told,
            CHUNKED if size == CHUNKED else None,
            keep_alive=exchange.keep_alive,
            is_old=exchange.is_old,
        )
        exchange.response_started = True
        self._line.transport.write(head)

    def _write_body(self, body: bytes, *, is_last: bool) -> None:
        exchange, transport = self._exchange, self._line.transport
        if self._left_bytes == CHUNKED:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            transport.write(chunk + b"0\r\n\r\n" if is_last else chunk)
        elif self._left_bytes == TO_THE_END:
            transport.write(body)
        elif exchange.method != "HEAD":
            left_bytes = self._left_bytes - len(body)
            if left_bytes < 0 or (is_last and left_bytes):
                raise RuntimeError(f"{left_bytes} bytes are left of the length that was told")
            self._left_bytes = left_bytes
            transport.write(body)
        if not is_last:
            return
        exchange.response_complete = True
        if exchange.news is not None:
            exchange.news.set()
        self._line.answered(keep_alive=exchange.keep_alive)
