"""Balance functions (Comte, equations 2 and 8) on a whole grid at once, as logarithms.

A balance function of counts z over classes obeys `B(0) = 1` and
`B(z) = (1 / r(I(z))) sum_{i in I(z)} B(z - e_i)`, where r adds up the rates of the sources that
have at least one class in I(z), the classes with z_i > 0. It is Phi with the servers as sources,
Lambda with the types. Nothing here knows which. Needs numpy.

Written as a sum over all orders in which the tokens can have come (equation 5), B is the number of
orders, `n! / prod z_i!`, times the mean over them of `prod_p 1 / r(c_1..c_p)`. That mean, made
free of scale by R, the sum of all rates, is what is kept: `h(0) = 1` and
`h(z) = R / r(I(z)) sum_i (z_i / n) h(z - e_i)`. It is 1 with a single source, and its logarithm
stays small where that of B would eat up the digits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from spillover.sim.theory.tokens.graph import Source

Floats: TypeAlias = NDArray[np.float64]
Whole: TypeAlias = NDArray[np.int64]
Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Levels:
    """The points of a grid by the sum n of their counts: `order[starts[n]:starts[n + 1]]` are the
    flat indices of level n."""

    order: Whole
    starts: Whole

    def sums(self, logs: Floats) -> Floats:
        """Returns the logarithm of the sum over each level, of logarithms on the grid."""
        found: Floats = np.logaddexp.reduceat(logs.ravel()[self.order], self.starts[:-1])
        return found


def levels_of(shape: Sequence[int]) -> Levels:
    """Returns the levels 0..sum(shape) - len(shape) of a grid."""
    totals = _totals(shape).ravel()
    order = np.argsort(totals, kind="stable")
    counts = np.bincount(totals)
    return Levels(order, np.concatenate(([0], np.cumsum(counts))))


def log_balance(shape: Sequence[int], sources: Sequence[Source]) -> Floats:
    """Returns the logarithm of B(z), the balance function of these sources, for all z below
    `shape`."""
    rate = math.fsum(source.rate for source in sources)
    totals = _totals(shape)
    factorials = log_factorials(int(totals.max()))
    orders = factorials[totals]
    for axis, length in enumerate(shape):
        orders = orders - along(factorials[:length], axis, len(shape))
    logs: Floats = log_mean_over_orders(shape, sources) + orders - totals * math.log(rate)
    return logs


def log_mean_over_orders(shape: Sequence[int], sources: Sequence[Source]) -> Floats:
    """Returns the logarithm of h(z), see above, for all z below `shape`; an array of that shape."""
    logs = np.zeros(shape)
    if len(sources) == 1:
        return logs  # every order of the same length has the same product
    levels = levels_of(shape)
    active = _log_inactive_ratio(shape, sources).ravel()
    flat = logs.ravel()
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    for level in range(1, len(levels.starts) - 1):
        here = levels.order[levels.starts[level] : levels.starts[level + 1]]
        sums = np.full(len(here), -np.inf)
        for length, stride in zip(shape, strides, strict=True):
            counts = here // stride % length
            some = np.flatnonzero(counts)
            before = flat[here[some] - stride] + np.log(counts[some] / level)
            sums[some] = np.logaddexp(sums[some], before)
        flat[here] = sums + active[here]
    return logs


def log_factorials(limit: int) -> Floats:
    """Returns the logarithm of n!, for n = 0..limit."""
    return np.array([math.lgamma(count + 1) for count in range(limit + 1)])


def _log_inactive_ratio(shape: Sequence[int], sources: Sequence[Source]) -> Floats:
    """log(R / r(I(z))) on the grid; r(I(0)) is taken for R, it is never used."""
    total = math.fsum(source.rate for source in sources)
    active = np.zeros(shape)
    for source in sources:
        some = np.zeros(shape, dtype=np.bool_)
        for axis in source.classes:
            some |= along(np.arange(shape[axis]) > 0, axis, len(shape))
        active += np.where(some, source.rate, 0.0)
    active.flat[0] = total
    found: Floats = np.log(total) - np.log(active)
    return found


def _totals(shape: Sequence[int]) -> Whole:
    totals = np.zeros(shape, dtype=np.int64)
    for axis, length in enumerate(shape):
        totals += along(np.arange(length), axis, len(shape))
    return totals


def along(values: NDArray[Scalar], axis: int, dimensions: int) -> NDArray[Scalar]:
    """One-dimensional values laid along that axis, for broadcasting."""
    return values.reshape([-1 if each == axis else 1 for each in range(dimensions)])
