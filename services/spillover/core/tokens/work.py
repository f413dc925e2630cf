"""What a pool believes of its jobs' work: seconds on a server of rate 1, a running mean and
variance. How one moves is `policy.overflow.estimate`'s business.
"""

from __future__ import annotations

import math

from spillover.policy.overflow.estimate import learned, residual


class Work:
    """Of some jobs: those of one type, of a group of types, or all."""

    __slots__ = ("_served", "_variance_s2", "mean_s")

    def __init__(self, guess_s: float) -> None:
        self.mean_s = guess_s
        self._variance_s2 = 0.0
        self._served = 0

    def add(self, work_s: float) -> None:
        """One more job has had so much."""
        self._served += 1
        self.mean_s, self._variance_s2 = learned(
            self.mean_s, self._variance_s2, self._served, work_s
        )

    @property
    def spread_s(self) -> float:
        """Returns the standard deviation."""
        return math.sqrt(self._variance_s2)

    @property
    def residual(self) -> float:
        """Returns how much of a job is left, on average, of one under way."""
        return residual(self.mean_s, self._variance_s2)
