"""The wait before another attempt."""

from __future__ import annotations


def backoff_s(attempt: int, first_s: float, longest_s: float, draw: float) -> float:
    """Returns a wait that doubles with each attempt (0, 1, ...) up to `longest_s`; `draw` in [0, 1)
    takes off up to half, so that many who failed together do not come back together."""
    full_s = min(longest_s, first_s * 2.0 ** min(attempt, 60))
    return float(full_s * (1.0 - 0.5 * draw))
