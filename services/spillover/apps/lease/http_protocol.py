"""What is bounded of a connection to a lease member: its requests in size, and each exchange in
time, from its first byte (or from the beginning of the connection) to the end of its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from spillover.apps.http.console.console import TAKE_OVER

REQUEST_LIMIT_BYTES = 65_536
"""Of whatever comes before it is answered. No route here reads a body."""


class BriefProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which by itself waits for ever for a request to come, or an answer to be
    read. Whoever takes longer is cut off."""

    exchange_timeout_s: ClassVar[float] = 10.0

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self._came_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begin()

    def data_received(self, data: bytes) -> None:
        self._came_bytes += len(data)
        if self._came_bytes > REQUEST_LIMIT_BYTES:
            self.transport.abort()
            return
        if self._timer is None:
            self._begin()
        super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[TAKE_OVER] = self._take_over  # type: ignore[literal-required]

    def _take_over(self) -> Callable[[], None]:
        """The console's events have no end; that they are read is seen to there."""
        self._end()
        return self.transport.abort

    def on_response_complete(self) -> None:
        """The answer is written, but who knows whether it is read: a connection that is to be
        closed, and one that is not used any more, are cut off if that takes long."""
        self._came_bytes = 0
        self._end()
        if self.pipeline or self.transport.is_closing():
            self._begin()
        super().on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        super().connection_lost(exc)

    def _begin(self) -> None:
        self._timer = self.loop.call_later(self.exchange_timeout_s, self.transport.abort)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
