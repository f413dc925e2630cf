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

CREDIBLE_WAY_S = 0.1
"""The longest way, in seconds, that is believed because it was measured. Why: a neighbor that holds
requests, and does not say so, looks as one that is far. A packet takes that long to the other side
of the Earth, and since late is more than eight times as long and GRACE_S, ways of 1.3 s are borne.
"""

SLOW_LINK_BYTES_PER_S = 2e6
"""The rate, in bytes a second, at which a request's body may travel. Bodies that travel at an
eighth of it are borne."""


class Promise(NamedTuple):
    """The time that an answer is expected to take, from when its request left."""

    mean_s: float
    spread_s: float
    """The standard deviation: never less than the mean, since requests of third clusters there are
    not known here."""


def credible_way_s(way_s: float, told_s: float) -> float:
    """Returns how much of a way that was measured excuses a late answer, where the topology tells
    of a link that takes `told_s`."""
    return min(way_s, max(told_s, CREDIBLE_WAY_S))


def promise(service_s: float, residual: float, way_s: float, size_bytes: int = 0) -> Promise:
    """Returns what a cluster with an idle server promised: services take `service_s` and are as
    uneven as `residual` says (`OwnLoad`), and the way there takes `way_s`, of a request of this
    size."""
    mean_s = 2.0 * way_s + size_bytes / SLOW_LINK_BYTES_PER_S + service_s
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
