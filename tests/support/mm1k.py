"""M/M/1/K: one server with room for K, at arrival rate over service rate `load`. Textbook
formulas."""

from __future__ import annotations

import math


def mm1k_distribution(load: float, limit: int) -> list[float]:
    """Returns P(n in the system), n = 0..limit: proportional to `load ** n`. Insensitive under
    processor sharing."""
    # Powers of the smaller of load and 1/load: neither overflows.
    ratio = load if load <= 1 else 1 / load
    powers = [ratio**count for count in range(limit + 1)]
    total = math.fsum(powers)
    shares = [power / total for power in powers]
    return shares if load <= 1 else shares[::-1]


def mm1k_blocking(load: float, limit: int) -> float:
    """Returns the share of arrivals that find it full."""
    return mm1k_distribution(load, limit)[-1]
