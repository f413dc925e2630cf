"""A stream of bytes as lines. Where the bytes come from is not known here."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from spillover.model.errors import PeerError


class LineSplitter:
    """Cuts pieces of a stream into lines, each given to `on_line` without its newline. `name` is
    what errors call the stream. Raises PeerError for a line that is too long."""

    def __init__(self, name: str, on_line: Callable[[bytes], None], limit_bytes: int) -> None:
        self._name = name
        self._on_line = on_line
        self._limit_bytes = limit_bytes
        self._rest = bytearray()
        self.heard_s = -math.inf
        """When a line was last complete."""

    def feed(self, piece: bytes | bytearray) -> None:
        self._rest += piece
        if b"\n" in piece:
            self.heard_s = time.monotonic()
            *lines, self._rest = self._rest.split(b"\n")
            for line in lines:
                self._check(line)
                self._on_line(bytes(line))
        self._check(self._rest)

    def end(self) -> None:
        if self._rest:
            raise PeerError(f"{self._name}: the stream ended within a line")

    def _check(self, line: bytearray) -> None:
        if len(line) > self._limit_bytes:
            raise PeerError(f"{self._name}: a line exceeds {self._limit_bytes} bytes")
