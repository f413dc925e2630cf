"""An exchange as ASGI apps see it: a scope, `receive` and `send`, in a task of its own.

What ASGI asks of a server, and no more; the bounds of a connection hold all the same.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeAlias

from spillover.apps.http.exchange import (
    EXCHANGE,
    KEEP_ALIVE,
    STATUS_LINE,
    Exchange,
    Line,
)
from spillover.apps.http.problems import BUG, Problem
from spillover.live.http1.framing import head_lines
from spillover.live.process.logs import Message as LogMessage
from spillover.live.process.logs import OncePerPeriod

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Address: TypeAlias = tuple[str, int]

START, BODY = "http.response.start", "http.response.body"

NO_BODY = (204, 304)

_VERSIONS = {"version": "3.0", "spec_version": "2.3"}
_BAD_NAME = re.compile(rb'[\x00-\x1f\x7f()<>@,;:\[\]={} \t\\"]')

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class AsgiCall:
    """One call of an app."""

    __slots__ = ("_exchange", "_is_chunked", "_left_bytes", "_line", "_to_the_end")

    def __init__(self, line: Line, exchange: Exchange) -> None:
        self._line = line
        self._exchange = exchange
        self._is_chunked = self._to_the_end = False
        self._left_bytes = 0
        """The bytes that a body whose length was told still lacks."""
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
        lines = [STATUS_LINE[status]]
        length = None
        tells_close = False
        for name, value in headers:
            if _BAD_NAME.search(name):
                raise RuntimeError(f"expected a header, got {name!r}: {value!r}")
            match name.lower():
                case b"content-length":
                    length = int(value)
                case b"connection" if b"close" in value.lower():
                    exchange.keep_alive = False
                    tells_close = True
            lines.append(head_lines(((name, value),)))
        self._left_bytes = length or 0
        if length is None and exchange.method != "HEAD" and status not in NO_BODY:
            lines.append(self._frame())
        if not (exchange.keep_alive or tells_close):
            lines.append(b"connection: close\r\n")
        elif exchange.is_old and exchange.keep_alive:
            lines.append(KEEP_ALIVE)
        exchange.response_started = True
        self._line.transport.write(b"".join([*lines, exchange.header_lines, b"\r\n"]))

    def _frame(self) -> bytes:
        """A body without a length: what is said of it."""
        if self._exchange.is_old:  # it knows no chunks
            self._to_the_end, self._exchange.keep_alive = True, False
            return b""
        self._is_chunked = True
        return b"transfer-encoding: chunked\r\n"

    def _write_body(self, body: bytes, *, is_last: bool) -> None:
        exchange, transport = self._exchange, self._line.transport
        if exchange.method == "HEAD":
            self._left_bytes = 0
        elif self._is_chunked:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            transport.write(chunk + b"0\r\n\r\n" if is_last else chunk)
        elif self._to_the_end:
            transport.write(body)
        else:
            self._left_bytes -= len(body)
            if self._left_bytes < 0 or (is_last and self._left_bytes):
                raise RuntimeError(f"{self._left_bytes} bytes are left of the length that was told")
            transport.write(body)
        if not is_last:
            return
        exchange.response_complete = True
        if exchange.news is not None:
            exchange.news.set()
        self._line.answered(keep_alive=exchange.keep_alive)
