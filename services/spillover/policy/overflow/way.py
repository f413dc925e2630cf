"""How long a request takes to a neighbor, as measured: a running mean over those answered."""

from __future__ import annotations

WEIGHT = 1 / 8
"""Of the newest, as in TCP's estimate of round trips."""

OUTLIER = 4.0
"""One way counts as at most this many times the usual: a process that was stopped is no way."""

OUTLIER_S = 0.005
"""What comes on top of that, so that short ways may become long ones."""

NEWS = 0.05
"""A change by less of a way is none: decisions share what is known until something changes."""


def learned_way_s(mean_s: float, way_s: float) -> float:
    """Returns the mean after one more request took `way_s`."""
    bounded_s = max(0.0, min(way_s, OUTLIER * mean_s + OUTLIER_S))
    return mean_s + WEIGHT * (bounded_s - mean_s)


def is_news(told_s: float, mean_s: float) -> bool:
    """Returns whether the mean is another than what is gone by."""
    return abs(mean_s - told_s) > NEWS * told_s + 1e-4
