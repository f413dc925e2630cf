"""The number of requests that a service bears at a time, as stateless formulas: which numbers are
tried, what a measurement is worth, and which of two numbers is the better one.

What is measured is how many requests per second come to a good end while as many run as may. How
long one takes adds nothing: by Little's law it is their number divided by that rate. So of two
numbers with the same rate, the smaller one has the shorter service and the sooner first byte.
"""

from __future__ import annotations

import math
from typing import TypeAlias

GAIN = 0.1
"""The least gain of a larger number, as a share of what it would bring if requests did not slow
each other down. With a smaller gain, the smaller number is better."""

SURE = 1.0
"""The number of standard deviations that a difference has to be away from none in order to
count."""

SPREAD2_MIN, SPREAD2_MAX = 1.0, 4.0
"""The bounds of the squared coefficient of variation that services count as. Within the time of a
few services, the number of ends is as uncertain as a Poisson one, however even the services are,
and not much more so, however they differ."""

CHANGED = 3.0
"""The number of standard deviations by which a rate has to be off to count as changed; it also has
to be off by CHANGED_BY."""

DIFFERS = 1.0
"""The same for the rate of a number that is rarely tried: it costs little to forget what was known
of it."""

CHANGED_BY = math.log(1.25)

Estimate: TypeAlias = tuple[float, float]
"""An estimate of the logarithm of a rate, and its weight: the inverse of its variance."""

UNKNOWN: Estimate = (0.0, 0.0)


FULL = 0.95
"""The share of its cache from which on an engine counts as full: it begins no more, and holds
requests back or drops what it has begun."""

ROOM = 0.9
"""The largest used share of the cache at which more may run."""

GROWTH = 2.0
"""The factor by which more may run than do, where an engine holds nothing back: a step of the
search leads no further."""


def holds_back(waiting: float, held: float) -> bool:
    """Returns whether an engine begins no more, as so many requests wait in it, or this share of
    its cache is used."""
    return waiting >= 1.0 or held >= FULL


def ceiling(most: int, least: int, limit: int, running: float, waiting: float, held: float) -> int:
    """Returns how many may run at most by an engine's report: of what is under way `running`
    requests are not held back, `waiting` are, and the share `held` of its cache is used. So far
    `most` may run; the result is never above `limit`."""
    if holds_back(waiting, held):
        return max(least, min(limit, int(running)))
    if held <= ROOM and running + 1.0 > most / GROWTH:
        return min(limit, max(most + 1, int(most * GROWTH)))
    return most


def other_number(number: int, octaves: float, least: int, most: int) -> int:
    """Returns the number that is so many doublings away, or differs by one, within the bounds."""
    other: int = round(number * math.pow(2.0, octaves))
    if other == number:
        other += 1 if octaves > 0.0 else -1
    return min(max(other, least), most)


def measured(done: float, time_s: float, spread2: float) -> Estimate:
    """Returns the estimate from `done` good ends within `time_s`, of services with this squared
    coefficient of variation."""
    return math.log(done / time_s), done / min(max(spread2, SPREAD2_MIN), SPREAD2_MAX)


def rate_of(known: Estimate) -> float:
    """Returns the rate that an estimate stands for."""
    return math.exp(known[0])


def merged(known: Estimate, new: Estimate) -> Estimate:
    """Returns the estimate from both."""
    worth = known[1] + new[1]
    return (known[0] * known[1] + new[0] * new[1]) / worth, worth


def has_changed(known: Estimate, new: Estimate) -> bool:
    """Returns whether a measurement shows that the rate has changed."""
    if not known[1]:
        return False
    off = abs(new[0] - known[0])
    return off > CHANGED_BY and off > CHANGED * _deviation(known, new)


def differs(known: Estimate, new: Estimate) -> bool:
    """Returns whether what was known of a number that is rarely tried is better forgotten."""
    if not known[1]:
        return False
    off = abs(new[0] - known[0])
    return off > CHANGED_BY and off > DIFFERS * _deviation(known, new)


def is_better(
    here: Estimate,
    there: Estimate,
    number: int,
    other: int,
    sure: float,
) -> bool | None:
    """Returns whether the `other` number is better than the one in use, by the estimates of both;
    None if that is not known yet."""
    better = there[0] - here[0] - GAIN * math.log(other / number)
    margin = sure * _deviation(here, there)
    return None if abs(better) < margin else better > 0.0


def _deviation(one: Estimate, other: Estimate) -> float:
    return math.sqrt(1.0 / one[1] + 1.0 / other[1])
