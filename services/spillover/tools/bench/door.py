"""The door of an emulated service: an HTTP/1.1 connection as cheap as can be, on httptools.

For what stands beside a node, or behind it. Nothing is bounded or checked here: who asks is ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias, cast

import httptools

OK = b"200 OK"

_HEAD = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"


class Door(asyncio.Protocol):
    """One connection: a request, its answer, and then perhaps the next. `take` is told of each
    POST with its body, and answers it here, sooner or later."""

    def __init__(self, take: Take) -> None:
        self._take = take
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.WriteTransport | None = None
        self._body = b""
        self.headers: dict[bytes, bytes] = {}
        """Of the request, by lower-case name."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self.headers, self._body = {}, b""

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        if self._parser.get_method() == b"GET":  # whoever wants to know whether there is a way
            self.answer(OK, b"{}")
        else:
            self._take(self, self._body)

    def answer(self, status: bytes, body: bytes) -> None:
        """Unless the other side has gone meanwhile."""
        if self._transport is not None:
            self._transport.write(_HEAD % (status, len(body), body))


Take: TypeAlias = Callable[[Door, bytes], None]
