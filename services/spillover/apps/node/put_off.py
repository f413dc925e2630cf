"""A request whose body is collected before anybody hears of the request. How long that may take,
and what comes of it, is decided in `http_protocol`.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


class PutOff:
    """A request on the direct path whose body may still come in time."""

    __slots__ = ("app", "cycle", "pieces", "size_bytes")

    def __init__(self, cycle: RequestResponseCycle, app: Any) -> None:
        self.cycle = cycle
        self.app = app
        self.pieces: list[bytes] = []
        self.size_bytes = 0

    def give_body(self) -> None:
        """Put what has come where whoever answers looks for it."""
        pieces = self.pieces
        whole = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self.cycle.body = whole  # type: ignore[assignment]  # bytes are read as well
