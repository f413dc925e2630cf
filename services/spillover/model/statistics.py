"""The summary of durations that every report of Spillover prints, computed in one place.

Percentiles are of the nearest-rank kind: always a value that was measured.
"""

from __future__ import annotations

import math
from collections.abc import Collection

SUMMARY_FIELDS = ("mean", "p50", "p99", "max", "min", "std")


def summarize(values: Collection[float]) -> dict[str, float | None]:
    """Returns mean, p50, p99, max, min and (population) standard deviation, all None without
    values."""
    if not values:
        return dict.fromkeys(SUMMARY_FIELDS)
    ordered = sorted(values)
    count = len(ordered)
    mean = math.fsum(ordered) / count
    variance = math.fsum((value - mean) ** 2 for value in ordered) / count
    return {
        "mean": mean,
        "p50": percentile(ordered, 0.50),
        "p99": percentile(ordered, 0.99),
        "max": ordered[-1],
        "min": ordered[0],
        "std": math.sqrt(variance),
    }


def percentile(ordered: list[float], share: float) -> float:
    """Returns the nearest-rank percentile of values in ascending order; `share` is 0..1."""
    rank = max(1, math.ceil(share * len(ordered)))
    return ordered[rank - 1]
