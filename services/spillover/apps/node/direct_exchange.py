"""`POST /requests` and `GET /requests/{id}` without ASGI: one object is the request to the protocol
that reads it and the exchange to whoever answers. How long its body may take, and what comes of it,
is decided in `http_protocol`.

uvicorn makes a scope, a cycle and an event for every request. One that never gets a task needs none
of them, and they cost more than the decision where it should run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from spillover.apps.node.exchange import ReplyTo
from spillover.live.engine.write_batch import write_parts

if TYPE_CHECKING:
    from spillover.apps.node.direct_path import DirectPath


LOOKUP_PREFIX = "/requests/"
"""What follows it is a request's name."""


class _Nobody:
    """In place of the event that an app's task waits for."""

    def set(self) -> None:
        """Nobody waits."""


class DirectExchange(ReplyTo):
    """A request that has no task. What uvicorn asks of a cycle, it asks of this: the names of those
    attributes are its own."""

    __slots__ = (
        "_protocol",
        "app",
        "begun_s",
        "disconnected",
        "headers",
        "keep_alive",
        "more_body",
        "pieces",
        "response_complete",
        "size_bytes",
    )

    method = "POST"
    path = "/requests"
    raw_path = b"/requests"
    query = b""
    message_event = _Nobody()
    waiting_for_100_continue = False

    def __init__(
        self,
        protocol: DirectPath,
        app: Any,
        headers: list[tuple[bytes, bytes]],
        *,
        keep_alive: bool,
    ) -> None:
        self._protocol = protocol
        self.app = app
        self.headers = headers
        self.keep_alive = keep_alive
        self.pieces: list[bytes] = []
        """Of the body, as far as it has come."""
        self.size_bytes = 0
        self.more_body = True
        self.disconnected = False
        self.response_complete = False
        self.begun_s: float | None = None

    @property
    def response_started(self) -> bool:
        """Returns whether an answer has gone out, which it does whole."""
        return self.response_complete

    @property
    def is_open(self) -> bool:
        """Returns whether an answer written now goes out at once and not onto a pile."""
        return not self._protocol.flow.write_paused

    def body(self) -> bytes:
        """Returns what has come of it."""
        pieces = self.pieces
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def take_body(self, limit_bytes: int) -> bytes | None:
        """Returns the body, unless it is too large. All of it is here."""
        if self.size_bytes > limit_bytes:
            return None
        body = self.body()
        self.pieces = []  # one copy is enough to wait with
        return body

    def watch(self, on_gone: Callable[[], None]) -> None:
        if self.disconnected:
            on_gone()
        else:
            self._protocol.on_gone = on_gone

    def answer_raw(
        self, status: int, header_lines: bytes, body: bytes, *, close: bool = False
    ) -> None:
        protocol = self._protocol
        protocol.on_gone = None
        if self.disconnected:
            return
        self.response_complete = True
        if not (close or self.keep_alive):
            close = True
            header_lines += b"connection: close\r\n"
        head = b"%b%bcontent-length: %d\r\n\r\n" % (STATUS_LINE[status], header_lines, len(body))
        if close:
            protocol.writes.flush()
            write_parts(protocol.transport, head, body)
            protocol.transport.close()
        else:
            protocol.writes.write(protocol.transport, head, body)
        protocol.on_response_complete()


class DirectLookup(DirectExchange):
    """`GET /requests/{id}`. Raises HttpParserError for a url that is none, as uvicorn does."""

    __slots__ = ("path", "query", "raw_path")

    method = "GET"

    def __init__(
        self,
        protocol: DirectPath,
        app: Any,
        headers: list[tuple[bytes, bytes]],
        *,
        keep_alive: bool,
        url: bytes,
    ) -> None:
        super().__init__(protocol, app, headers, keep_alive=keep_alive)
        parsed = httptools.parse_url(url)
        self.raw_path: bytes = parsed.path
        self.path: str = unquote(self.raw_path.decode("ascii"))
        self.query: bytes = parsed.query or b""
