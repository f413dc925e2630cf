"""How many clients a node lets in, and how fast: a bucket of tokens, and a limit. Pure."""

from __future__ import annotations


class LettingIn:
    """`rate_per_s` a second, `burst` at once, `most` in all."""

    def __init__(self, rate_per_s: float, burst: int, most: int) -> None:
        self.change(rate_per_s, burst, most)
        self._tokens = float(burst)
        self._at_s: float | None = None

    def change(self, rate_per_s: float, burst: int, most: int) -> None:
        """Others from now on."""
        self._rate_per_s = rate_per_s
        self._burst = burst
        self.most = most

    def ask(self, now_s: float) -> float | None:
        """Returns None if one more may come now, which counts; else when to ask again, in seconds
        from now."""
        since_s = 0.0 if self._at_s is None else now_s - self._at_s
        self._at_s = now_s
        self._tokens = min(self._burst, self._tokens + since_s * self._rate_per_s)
        if self._tokens >= 1.0:
            self._tokens -= 1.0
            return None
        return (1.0 - self._tokens) / self._rate_per_s
