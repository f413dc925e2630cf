"""The expected time of a request by what it says of its size, as stateless formulas, and the time
that a queue of such requests takes.

A *feature* is a number of a request with which its time grows, such as its bytes. The expected time
is a constant plus, for each feature, the feature times its own factor: `factors`. No factor makes a
time shorter where a feature is larger.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median
from typing import TypeAlias

Features: TypeAlias = tuple[float, ...]
"""The features of a request, none of them below 0."""

LARGEST = 100.0
"""The largest expected time of a request, in means: a request that claims to be huge must not move
what neighbors are told."""

OUTLIER = 8.0
"""A time counts as at most so many times what was expected, as in `overflow.estimate`; and a
feature moves its mean by at most so many times that mean. A request that says more, and takes less
than a part of so many of what that would take, teaches nothing: a few in a hundred that lie move
little of what is believed of others."""

RIDGE = 1e-9
"""The share of itself that is added to the weight of each feature: features that never differ, or
always go together, have a solution then."""


def bounded(features: Features, means: Sequence[float]) -> Features:
    """Returns the features as they count, by their means so far; a mean of 0 is not known."""
    return tuple(
        [
            min(one, OUTLIER * mean) if mean else one
            for one, mean in zip(features, means, strict=True)
        ]
    )


def usual(features: Features, means: Sequence[float]) -> Features:
    """Returns the features with those that are huge by their means as these means."""
    return tuple(
        [
            mean if mean and one > OUTLIER * mean else one
            for one, mean in zip(features, means, strict=True)
        ]
    )


def first_mean(numbers: Sequence[float]) -> float:
    """Returns a mean of the first numbers, of which some may be lies: each counts as at most
    OUTLIER times the median, if that is not 0."""
    most = OUTLIER * median(numbers)
    return fmean([min(one, most) for one in numbers] if most else numbers)


def expected_s(factors: Sequence[float], features: Features) -> float:
    """Returns the time of a request by the factors, of which the first is the constant."""
    time_s = factors[0]
    for place, one in enumerate(features, 1):
        time_s += factors[place] * one
    return time_s


def factors(moments: Sequence[Sequence[float]], products: Sequence[float]) -> list[float]:
    """Returns the factors, none below 0, that fit best. They are those of the least squares with
    these sums: of 1 and the features with each other, and with the time.

    A factor that would be below 0 is 0, and the others are found anew: the lowest first.
    """
    used = [place for place in range(len(products)) if moments[place][place] > 0.0]
    while used:
        found = _solved(moments, products, used)
        least = min(found)
        if least >= 0.0:
            all_found = [0.0] * len(products)
            for place, factor in zip(used, found, strict=True):
                all_found[place] = factor
            return all_found
        del used[found.index(least)]
    return [0.0] * len(products)


def _solved(
    moments: Sequence[Sequence[float]], products: Sequence[float], used: Sequence[int]
) -> list[float]:
    """Solves the equations of these places, each scaled by its own weight: features may be bytes,
    and times parts of a second."""
    scales = [1.0 / math.sqrt(moments[place][place]) for place in used]
    rows = [
        [moments[i][j] * scales[a] * scales[b] for b, j in enumerate(used)]
        + [products[i] * scales[a]]
        for a, i in enumerate(used)
    ]
    count = len(used)
    for a in range(count):
        rows[a][a] += RIDGE
    for a in range(count):
        for b in range(a + 1, count):
            share = rows[b][a] / rows[a][a]
            for c in range(a, count + 1):
                rows[b][c] -= share * rows[a][c]
    found = [0.0] * count
    for a in range(count - 1, -1, -1):
        rest = sum(rows[a][b] * found[b] for b in range(a + 1, count))
        found[a] = (rows[a][count] - rest) / rows[a][a]
    # The ridge may leave an error below 0 in what is nothing beside the others.
    nothing = 10.0 * RIDGE * max(map(abs, found))
    return [0.0 if abs(one) <= nothing else one * scales[a] for a, one in enumerate(found)]


def level_s(work_s: float, rests_s: Sequence[float]) -> float:
    """Returns the time when the first server is free for one more. Each server first does the rest
    of what it runs; then the waiting work, `work_s` in all, goes to those that are free first, as
    water fills the lowest places. `rests_s` begins with the shortest rest."""
    level, count = rests_s[0], 1
    for rest_s in rests_s[1:]:
        room_s = count * (rest_s - level)
        if work_s <= room_s:
            break
        work_s -= room_s
        level, count = rest_s, count + 1
    return level + work_s / count


def room_s(until_s: float, rests_s: Sequence[float]) -> float:
    """Returns how much work is done by `until_s` on servers that first do the rest of what they
    run. Work behind more than that waits longer."""
    return sum([until_s - rest_s for rest_s in rests_s if rest_s < until_s])
