"""Bytes that the node has and that are no accepted request's: what is being read, and what others
have not read yet. The machine is told now and then, so that it takes no more than it may hold.

What these bytes are is the business of whoever reads or writes them. Small ones are not counted.
"""

from __future__ import annotations

from collections.abc import Callable

from spillover.core.overflow.held import HeldBytes
from spillover.live.engine.timers import Timers

STEPS = 64
"""The machine is told when this part of the limit has changed, and when nothing moves any more."""


class Moving:
    """A count, and who is told of it: not in the midst of reading, but before anything else, since
    it is due at once. `held` is what the machine knows, and is not changed here."""

    def __init__(self, timers: Timers, held: HeldBytes, tell: Callable[[int], None]) -> None:
        self._timers = timers
        self._held = held
        self._step_bytes = held.limit_bytes // STEPS
        self._tell = tell
        self.bytes = 0
        self._is_news = False
        """True while the machine has yet to learn of bytes."""

    @property
    def is_too_much(self) -> bool:
        """Returns whether what is moving is more than there is room for beside the requests."""
        return not self.has_room(0)

    def has_room(self, more_bytes: int) -> bool:
        """Returns whether it would not be too much with so many more."""
        return self.bytes + more_bytes <= self._held.beside_requests_bytes

    def add(self, size_bytes: int) -> None:
        """Note that so much more is moving, or less."""
        self.bytes += size_bytes
        if self._is_news:
            return
        known_bytes = self._held.moving_bytes
        if abs(self.bytes - known_bytes) > self._step_bytes or (known_bytes and not self.bytes):
            self._is_news = True
            self._timers.at(self._timers.clock(), self._ring)

    def _ring(self, _: float) -> None:
        self._is_news = False
        self._tell(self.bytes)
