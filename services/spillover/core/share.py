"""Which share of the work at some place fails, as it is there lately."""

from __future__ import annotations

import math

SHARE_LEAST = 1 / 1024
"""A share below it is none."""

SHARE_WEIGHT = 1 / 8
"""Weight of the newest outcome in a running share."""

SHARE_FORGET_S = 10.0
"""Time in which a share halves if nothing more ends."""


class Share:
    """A running share of failures, which fades while nothing ends."""

    __slots__ = ("_last_s", "last")

    def __init__(self) -> None:
        self.last = 0.0
        """What it was when something ended last."""
        self._last_s = 0.0

    def add(self, now_s: float, *, failed: bool, fades: bool = True) -> None:
        """Counts one more outcome. The share `fades` until then, unless little is tried at all."""
        value = self.at(now_s) if fades else self.last
        value += (failed - value) * SHARE_WEIGHT
        self.last = value if value > SHARE_LEAST else 0.0
        self._last_s = now_s

    def at(self, now_s: float) -> float:
        if not self.last:
            return 0.0
        return self.last * math.exp2(-max(0.0, now_s - self._last_s) / SHARE_FORGET_S)
