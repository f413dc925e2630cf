"""A cluster's estimates: its service times, as a running mean and variance from a first guess, and
the way to a neighbor, as a running mean over the requests that were answered."""

from __future__ import annotations

import math

SERVICE_WEIGHT = 1 / 64
"""The weight of the newest service time in the running mean: admission needs a steady one."""

GUESS_WEIGHT = 4
"""The number of services that the first guess of the mean is worth."""

OUTLIER = 8.0
"""The largest number of usual services that one service counts as. A process that was stopped for
seconds reports a pause, not a service. A real change is still followed within some tens."""


MEAN_MIN_S = 1e-6
"""The least mean of services, in seconds. Services that take no time would make it vanish, and
quotients by it infinite."""


def learned(
    mean_s: float, variance_s2: float, served: int, service_s: float
) -> tuple[float, float]:
    """Returns mean and variance after one more service, which took `service_s`.

    It is number `served`, from 1 on. The first variance is 0, the first mean the guess.
    """
    weight = max(SERVICE_WEIGHT, 1.0 / (served + GUESS_WEIGHT))
    usual_s = mean_s + math.sqrt(variance_s2)
    off_s = (min(service_s, OUTLIER * usual_s) if usual_s else service_s) - mean_s
    grown_s2 = variance_s2 + off_s * off_s * weight
    return max(MEAN_MIN_S, mean_s + off_s * weight), (1.0 - weight) * grown_s2


def residual(mean_s: float, variance_s2: float) -> float:
    """Returns how much of a service that is under way is left on average, as a share of the mean:
    half if all take the same time, all if they are exponential."""
    if mean_s <= 0.0:
        return 1.0
    return 0.5 * (1.0 + variance_s2 / (mean_s * mean_s))


WAY_WEIGHT = 1 / 8
"""The weight of the newest way, as in TCP's estimate of round trips."""

WAY_OUTLIER = 4.0
"""The largest number of usual ways that one way counts as: a process that was stopped is no way."""

WAY_OUTLIER_S = 0.005
"""The seconds that one way may count beyond that, so that short ways may become long ones."""

WAY_NEWS = 0.05
"""The least change of a way that is news, as a share: decisions share what is known until something
changes."""


def learned_way_s(mean_s: float, told_s: float, way_s: float) -> tuple[float, float]:
    """Returns the mean after one more request took `way_s`, and the way that decisions go by:
    `told_s`, unless the mean is far enough from it to replace it."""
    bounded_s = max(0.0, min(way_s, WAY_OUTLIER * mean_s + WAY_OUTLIER_S))
    mean_s += WAY_WEIGHT * (bounded_s - mean_s)
    return mean_s, mean_s if abs(mean_s - told_s) > WAY_NEWS * told_s + 1e-4 else told_s
