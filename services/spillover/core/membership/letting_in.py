"""How many clients a cluster lets in, and how fast: a bucket of tokens, and a limit. Pure.

Each of several nodes has a bucket, out of which it takes what the others let in, below zero if need
be: at one instant they may let in too many, in the long run they keep to the rate.
"""

from __future__ import annotations

from spillover.model.topology import NODES_MAX


class LettingIn:
    """`rate_per_s` a second, `burst` at once, `most` in all."""

    def __init__(self, rate_per_s: float, burst: int, most: int) -> None:
        self.change(rate_per_s, burst, most)
        self._tokens = float(burst)
        self._at_s: float | None = None
        self.count = 0
        """How many it has let in."""

    def change(self, rate_per_s: float, burst: int, most: int) -> None:
        self._rate_per_s = rate_per_s
        self._burst = burst
        self.most = most

    def ask(self, now_s: float) -> float | None:
        """Returns None if one more may come now, which counts; else when to ask again, in seconds
        from now."""
        self._gain(now_s)
        if self._tokens >= 1.0:
            self._tokens -= 1.0
            self.count += 1
            return None
        return (1.0 - self._tokens) / self._rate_per_s

    def other_let_in(self, count: int, now_s: float) -> None:
        """Another node has let in so many: no more than it may at once and in a second, whatever it
        says."""
        self._gain(now_s)
        most = self._burst + self._rate_per_s
        self._tokens = max(self._tokens - min(count, most), -NODES_MAX * most)

    def _gain(self, now_s: float) -> None:
        since_s = 0.0 if self._at_s is None else now_s - self._at_s
        self._at_s = now_s
        self._tokens = min(self._burst, self._tokens + since_s * self._rate_per_s)
