"""The terms of `adaptive` that depend on one report alone: worked out when it comes, looked up at
each choice.

Decision 0037 has the derivation. What depends on when it is asked, or by whom, is in `adaptive`.
"""

from __future__ import annotations

from math import sqrt

from spillover.policy.overflow.home_load import LOAD_WINDOW

LOAD_ERRORS = 2.0
"""The number of standard errors on the safe side of the measured load. With none, the noise of a
load of 0.9 reads as overload, and work wanders."""

OVERLOAD_MAX = 3.0
"""The largest overload that counts: this only bounds the effect of one wild measure."""

DRAINS_BELOW = 0.8
"""The load from which on no drain is sure: `load_at_most` is 1."""


def overload(load: float) -> float:
    """Returns kappa: how far a cluster is surely loaded beyond its capacity, and 1 if it is not."""
    if load <= 1.0:
        return 1.0
    return min(max(load - LOAD_ERRORS * sqrt(load / (2.0 * LOAD_WINDOW)), 1.0), OVERLOAD_MAX)


def load_at_most(load: float) -> float:
    """Returns a bound that the load surely does not exceed, at most 1: only sure drain counts."""
    if load >= DRAINS_BELOW:
        return 1.0
    return min(1.0, load + LOAD_ERRORS * sqrt(load / (2.0 * LOAD_WINDOW)))


def sure_drain(load: float) -> float:
    """Returns by how much a queue surely becomes shorter in each departure; below 0 where no drain
    is believed."""
    return 1.0 - load_at_most(load) if load < DRAINS_BELOW else -1.0


def first_departure(residual: float, load: float, servers: int) -> float:
    """Returns after how many departures the first of `servers` busy ones is free.

    `residual` is the part of a service that is left. If services are more uneven than exponential
    ones (above 1), and load keeps all servers busy, the first of them is free sooner: departures of
    many together are nearly random. At low load all are busy mostly because long services are under
    way.
    """
    if residual <= 1.0:
        return residual
    busy = min(load, 1.0)
    return residual - busy * busy * busy * (residual - 1.0) * (1.0 - 1.0 / servers)


def residual_for(first: float, load: float, servers: int) -> float:
    """Returns the residual for which `first_departure` returns `first`."""
    if first <= 1.0:
        return max(first, 0.0)
    busy = min(load, 1.0)
    share = busy * busy * busy * (1.0 - 1.0 / servers)
    return (first - share) / (1.0 - share)
