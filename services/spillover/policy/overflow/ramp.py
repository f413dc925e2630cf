"""The number of requests that a cluster gets at a time after it has joined (decision 0040): it has
nothing warm, and every neighbor sees it idle at once."""

from __future__ import annotations

RAMP_S = 10.0
"""The time, in seconds, in which the number grows from one request to as many as the cluster has
servers. It is long beside the time in which failing work shows, and short beside the patience of an
operator."""


def ramp_limit(servers: int, age_s: float) -> int:
    """Returns how many unanswered requests a neighbor may have from here, `age_s` after it has
    joined."""
    return max(1, int(servers * max(0.0, age_s) / RAMP_S))
