"""Which of a host's addresses is tried next, and when: one after another, before the one before
has failed (RFC 8305, Happy Eyeballs). How an address is tried is not known here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from spillover.core.hosts.answers import Address

DELAY_S = 0.25
"""An address has so long before the next one is tried beside it. Why: RFC 8305, section 8."""

DELAY_S_MIN = 0.01
"""RFC 8305 forbids less."""


def delay_within(limit_s: float, addresses: int) -> float:
    """Returns the delay at which all addresses get their turn within a limit."""
    return max(DELAY_S_MIN, min(DELAY_S, limit_s / (addresses + 1)))


class Race:
    """One connection's attempts; who is first to connect has won, and the race is not asked again.

    An address that fails makes room for the next one at once.
    """

    __slots__ = ("_delay_s", "_due_s", "_waiting", "failed", "under_way")

    def __init__(self, addresses: Sequence[Address], delay_s: float) -> None:
        self._waiting = list(reversed(addresses))
        self._delay_s = delay_s
        self._due_s = -math.inf
        self.under_way: dict[Address, float] = {}
        """The instant since which each address has been tried."""
        self.failed: dict[Address, OSError] = {}

    @property
    def due_s(self) -> float:
        """When to ask for the next address: infinity if there is none."""
        return self._due_s if self._waiting else math.inf

    @property
    def is_lost(self) -> bool:
        return not (self._waiting or self.under_way)

    def next(self, now_s: float) -> Address | None:
        if now_s < self.due_s:
            return None
        address = self._waiting.pop()
        self.under_way[address] = now_s
        self._due_s = now_s + self._delay_s
        return address

    def fail(self, address: Address, error: OSError) -> None:
        del self.under_way[address]
        self.failed[address] = error
        self._due_s = -math.inf

    def lagging(self, now_s: float) -> list[Address]:
        """Returns those that have had their time and did not answer. Who was tried last may not
        have had it."""
        return [
            address
            for address, since_s in self.under_way.items()
            if now_s - since_s >= self._delay_s
        ]
