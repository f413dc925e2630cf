"""What the own clients of a cluster bring: arrivals are counted, and made a rate when it is asked
for."""

from __future__ import annotations

import math

from spillover.policy.overflow.home_load import home_rate

STEPS = 64
"""A load is told in such parts of 1: at rest it stays the same, and need not be said again."""


class HomeLoad:
    """Of one cluster. `arrivals` counts those since the rate was last asked for."""

    __slots__ = ("_at_s", "_rate_hz", "arrivals", "load")

    def __init__(self, now_s: float) -> None:
        self.arrivals = 0
        self._rate_hz = 0.0
        self._at_s = now_s
        self.load = 0.0
        """As it was when it was last asked for: by the last report, at the latest."""

    def at(self, now_s: float, departure_s: float) -> float:
        """Returns the load: as a share of what the cluster can do, which has one departure each
        `departure_s`."""
        since_s = now_s - self._at_s
        self._rate_hz = home_rate(self._rate_hz, self.arrivals, since_s, departure_s)
        self._at_s = now_s
        self.arrivals = 0
        self.load = math.floor(self._rate_hz * departure_s * STEPS + 0.5) / STEPS
        return self.load
