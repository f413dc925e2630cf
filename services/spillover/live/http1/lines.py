"""A stream of bytes as lines, and how many of them are taken a second. Where the bytes come from is
not known here.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from spillover.model.errors import PeerError

TURN_S = 0.02
"""After each such time some of the lines that wait are taken."""


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
                self._found(bytes(line))
        self._check(self._rest)

    def _found(self, line: bytes) -> None:
        self._on_line(line)

    def end(self) -> None:
        if self._rest:
            raise PeerError(f"{self._name}: the stream ended within a line")

    def _check(self, line: bytearray) -> None:
        if len(line) > self._limit_bytes:
            raise PeerError(f"{self._name}: a line exceeds {self._limit_bytes} bytes")


LINE_BYTES = 1024
"""A longer line counts as so many more: what it costs grows with its bytes."""


class Pace(NamedTuple):
    """How many lines are taken a second, and how many at once."""

    per_s: float
    burst: float


UNPACED = Pace(math.inf, math.inf)


class LineSource(Protocol):
    """The source of a stream."""

    def pause(self) -> None:
        """Read nothing more for now. What was read may still come."""

    def resume(self) -> None:
        """Read on."""

    def fail(self, error: BaseException) -> None:
        """End the stream by this error."""


class PacedLines(LineSplitter):
    """Lines of a `source` that are taken at this pace. Whoever sends more of them waits: the source
    is not read while lines wait, which are no more than it had read before."""

    def __init__(
        self, name: str, on_line: Callable[[bytes], None], limit_bytes: int, pace: Pace
    ) -> None:
        super().__init__(name, on_line, limit_bytes)
        self._pace = pace
        self._left = pace.burst
        self._counted_s = time.monotonic()
        self._waiting: deque[bytes] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.source: LineSource | None = None

    def close(self) -> None:
        """Nobody wants the lines that wait."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _found(self, line: bytes) -> None:
        if not self._waiting and self._may_give(line):
            self._on_line(line)
            return
        self._waiting.append(line)
        if len(self._waiting) == 1:
            if self.source is not None:
                self.source.pause()
            self._go_on_later()

    def _may_give(self, line: bytes) -> bool:
        if self._left < 1.0:
            now_s = time.monotonic()
            earned = (now_s - self._counted_s) * self._pace.per_s
            self._left, self._counted_s = min(self._pace.burst, self._left + earned), now_s
        if self._left < 1.0:
            return False
        self._left -= max(1.0, len(line) / LINE_BYTES)
        return True

    def _go_on_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TURN_S, self._go_on)

    def _go_on(self) -> None:
        self.heard_s = time.monotonic()
        try:
            while self._waiting and self._may_give(self._waiting[0]):
                self._on_line(self._waiting.popleft())
        except Exception as error:  # noqa: BLE001  it belongs to whoever reads the stream
            if self.source is not None:
                self.source.fail(error)
            return
        if self._waiting:
            self._go_on_later()
        elif self.source is not None:
            self.source.resume()
