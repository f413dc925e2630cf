"""The bytes that a cluster holds, and whether one more request fits.

A request counts from its acceptance to its answer, wherever it is. `moving_bytes` is what the shell
has besides: requests and answers that are being read, and answers that clients have not read yet.
Answers that are kept (`names`) have what these leave, at least the reserve: they give way and never
keep a request out.
"""

from __future__ import annotations

from spillover.model.request import Refusal

UNLIMITED_BYTES = 2**62

RESERVE_SHARE = 8
"""The limit divided by this is reserved for answers: those that arrive and those that are kept."""

WANTED_KEPT, WANTED_PARTS = 15, 16
"""The share of `wanted_bytes` that is left after a request has ended, as a fraction: half of it
after eleven."""


class HeldBytes:
    """The held bytes, and their limits. A neighbor's request may use nine tenths of what a client's
    may, as of the queue."""

    def __init__(self, limit_bytes: int = UNLIMITED_BYTES) -> None:
        self.request_bytes = 0
        """The number of bytes of all requests that are under way."""
        self.moving_bytes = 0
        self.wanted_bytes = 0
        """The size in bytes of the neighbor's request that last did not fit: less room counts as
        none. It shrinks with each request that ends (`release`), since no neighbor asks whether a
        smaller one would fit."""
        self.use(limit_bytes)

    def use(self, limit_bytes: int) -> None:
        """Use this limit from now on, even if more is held."""
        self.limit_bytes = limit_bytes
        self._home_limit_bytes = limit_bytes - limit_bytes // RESERVE_SHARE
        self._foreign_limit_bytes = self._home_limit_bytes - self._home_limit_bytes // 10
        if self.wanted_bytes > self._foreign_limit_bytes:
            self.wanted_bytes = 0

    @property
    def total_bytes(self) -> int:
        """Returns the number of all held bytes except those of kept answers."""
        return self.request_bytes + self.moving_bytes

    @property
    def beside_requests_bytes(self) -> int:
        """Returns the bytes that may be moving: those that requests leave of what they may take."""
        return self._home_limit_bytes - self.request_bytes

    @property
    def takes_foreign(self) -> bool:
        """Returns whether a neighbor's request fits, as far as its size can be known beforehand."""
        wanted_bytes = self.request_bytes + self.moving_bytes + self.wanted_bytes
        return wanted_bytes <= self._foreign_limit_bytes

    def move(self, moving_bytes: int, wanted_bytes: int = 0) -> None:
        """Note that the moving bytes have changed, or that a neighbor's request of this size was
        not read."""
        self.moving_bytes = moving_bytes
        if 0 < wanted_bytes <= self._foreign_limit_bytes:
            self.wanted_bytes = wanted_bytes

    def release(self, size_bytes: int) -> None:
        """Count a request of this size no more, as it has ended."""
        self.request_bytes -= size_bytes
        if self.wanted_bytes:
            self.wanted_bytes = self.wanted_bytes * WANTED_KEPT // WANTED_PARTS

    def refusal(self, size_bytes: int, is_home: bool) -> Refusal | None:
        """Returns why a request of this size is not taken now; None if it fits."""
        limit_bytes = self._home_limit_bytes if is_home else self._foreign_limit_bytes
        if self.request_bytes + self.moving_bytes + size_bytes <= limit_bytes:
            return None
        if size_bytes > limit_bytes:
            return Refusal.TOO_LARGE
        if not is_home:
            self.wanted_bytes = size_bytes
        return Refusal.MEMORY_FULL
