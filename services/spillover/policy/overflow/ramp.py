"""How much a cluster that has just joined is given at a time (decision 0040): it has nothing warm,
and every neighbor sees it idle at once."""

from __future__ import annotations

RAMP_S = 10.0
"""From one request to as many as it has servers. Long beside what it takes to find out that work
fails there, short beside what an operator waits."""


def ramp_limit(servers: int, age_s: float) -> int:
    """Returns how many requests may be there from here, unanswered, at this age."""
    return max(1, int(servers * max(0.0, age_s) / RAMP_S))
