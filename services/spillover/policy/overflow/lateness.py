"""The time from which an answer is late, by the load that the cluster with the request reported.

What is known of that cluster is its mean service time and how much services differ. By Cantelli's
inequality at most 1 / (1 + k^2) of any distribution lies k standard deviations above its mean: so
nothing is assumed of how services are distributed, and those with a heavy tail are not taken for
faults. Time is passed in, in seconds.

Not here: what follows from an answer that is late (`core.overflow.evidence`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

GRACE_S = 1.0
"""The age, in seconds, below which an answer is never late by itself: a process may stand still for
as long as its neighbors bear its silence."""

LATE_BY_CHANCE = 1.0 / 50.0
"""The share of answers that would take as long at which an answer is late, the grace aside."""


class Promise(NamedTuple):
    """The time that an answer is expected to take, from when its request left."""

    mean_s: float
    spread_s: float
    """The standard deviation: never less than the mean, since requests of third clusters there are
    not known here."""


def promise(service_s: float, residual: float, way_s: float) -> Promise:
    """Returns what a cluster with an idle server promised: services take `service_s` and are as
    uneven as `residual` says (`OwnLoad`), and the way there takes `way_s`."""
    mean_s = 2.0 * way_s + service_s
    return Promise(mean_s, mean_s * max(1.0, math.sqrt(max(0.0, 2.0 * residual - 1.0))))


def chance(promised: Promise, took_s: float) -> float:
    """Returns the share of answers, at most, that are expected to take as long or longer."""
    beyond_s = took_s - promised.mean_s
    if beyond_s <= 0.0:
        return 1.0
    spread_s = promised.spread_s
    return spread_s * spread_s / (spread_s * spread_s + beyond_s * beyond_s)


def is_late(promised: Promise, took_s: float) -> bool:
    """Returns whether an answer that took so long, or that is not there yet, is late."""
    return chance(promised, took_s - GRACE_S) <= LATE_BY_CHANCE
