"""The stationary law of one connected part of a pool (Comte, equation 9), at all loads at once.

`pi = Phi(x) Lambda(l - x) / G` lives on a grid of prod(tokens + 1) states, 7^10 for the pool of
figure 8. Three facts make it small:

* classes of the same types are one *group* to Lambda: with y over classes and Y over groups,
  `Lambda(y) = Lambda(Y) prod_g (Y_g! / prod_{i in g} y_i!)`;
* Phi is a product over the *components*, the classes that servers connect;
* what is asked for are sums over states of equal Y. So the components, each as
  `Phi(l - y) / prod y_i!`, are convolved onto the grid of Y, of prod_g (sum of tokens + 1) states,
  where Lambda and the factorials are multiplied on.

Blocking is what lies at Y_g = 0. For idle servers, one component at a time is narrowed to the
states in which they are. All of it is symmetric in (types, y) and (servers, x); the cheaper way
round is taken. And as all types at f times their rates only multiply Lambda(y) by f^-n, n the
number of available tokens, sums by n give the figures at every load.

Logarithms throughout: weights of a few hundred tokens are beyond floats. Needs numpy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from spillover.model.errors import InputError
from spillover.sim.theory.tokens.balance import (
    Floats,
    Levels,
    along,
    levels_of,
    log_balance,
    log_factorials,
    log_mean_over_orders,
)
from spillover.sim.theory.tokens.graph import Part, Source, connected

STATES_MAX = 4_000_000
"""Points of a grid: 32 MB an array, and there are some ten at a time."""

STEPS_MAX = 10_000_000_000
"""Additions of a solution: about half a minute."""


@dataclass(frozen=True, slots=True)
class PartLaw:
    """Logarithms of weights by the number of available tokens, 0 to all: arrays of that length.

    At f times the arrival rates each is to be multiplied by f^-n. `blocked` holds the weight of
    the states that block a type, `idle` of those in which a server has nothing to do.
    """

    weights: Floats
    blocked: dict[str, Floats]
    idle: dict[str, Floats]

    def jobs(self, factor: float) -> float:
        """The mean number of tokens held, at `factor` times the arrival rates."""
        available = np.arange(len(self.weights))
        logs = self.weights - math.log(factor) * available
        shares = np.exp(logs - np.logaddexp.reduce(logs))
        return float(shares @ available[::-1])

    def probabilities(self, factor: float) -> tuple[dict[str, float], dict[str, float]]:
        """beta_k by type and psi_s by server, at `factor` times the arrival rates."""
        tilt = -math.log(factor) * np.arange(len(self.weights))
        total = np.logaddexp.reduce(self.weights + tilt)

        def share(logs: Floats) -> float:
            return min(1.0, math.exp(np.logaddexp.reduce(logs + tilt) - total))

        return (
            {name: share(logs) for name, logs in self.blocked.items()},
            {name: share(logs) for name, logs in self.idle.items()},
        )


def solve_part(part: Part) -> PartLaw:
    """Returns the law of a connected part under token balancing.

    Raises InputError when either way round takes more than STATES_MAX or STEPS_MAX.
    """
    best = _cheapest_way(part)
    weights, empty, full = best.solve()
    if best.near is part.types:
        return PartLaw(weights, _by_id(empty), _by_id(full))
    # The other way round x is counted, and n = all - |x|.
    return PartLaw(weights[::-1], _by_id(full, reverse=True), _by_id(empty, reverse=True))


def steps_of(part: Part) -> int:
    """Returns how many additions `solve_part` takes. Raises InputError as it does."""
    return _cheapest_way(part).steps


def _cheapest_way(part: Part) -> _Grid:
    ways = [_Grid(part.tokens, part.types, part.servers)]
    ways.append(_Grid(part.tokens, part.servers, part.types))
    feasible = [way for way in ways if way.is_feasible()]
    if not feasible:
        way = min(ways, key=lambda way: max(way.states, *way.local_states))
        raise InputError(
            "pool",
            "classes",
            f"expected a pool that is solved with {STATES_MAX} states and {STEPS_MAX:.2g} steps, "
            f"got one of {max(way.states, *way.local_states)} and {way.steps:.2g}; "
            "up to 100000 tokens it can be simulated (spillover sim tokens)",
        )
    return min(feasible, key=lambda way: way.steps)


def _by_id(found: dict[Source, Floats], *, reverse: bool = False) -> dict[str, Floats]:
    return {
        name: logs[::-1] if reverse else logs
        for source, logs in found.items()
        for name in source.ids
    }


class _Grid:
    """Tokens z counted on the grid of groups, the classes with the same `near` sources, while the
    `far` sources see l - z. Near are types and far are servers, or the other way round."""

    def __init__(
        self, tokens: Sequence[int], near: Sequence[Source], far: Sequence[Source]
    ) -> None:
        self.tokens = tokens
        self.near = near
        self.far = far
        self.group_of, groups = _groups(len(tokens), near)
        limits = [0] * groups
        for number, group in enumerate(self.group_of):
            limits[group] += tokens[number]
        self.shape = tuple(limit + 1 for limit in limits)
        self.components = connected(len(tokens), [source.classes for source in far])
        self.states = math.prod(self.shape)
        self.local_states = [
            math.prod(tokens[number] + 1 for number in classes) for classes in self.components
        ]
        kernels = [math.prod(self._kernel_shape(classes)) for classes in self.components]
        depth = 2 + len(kernels).bit_length()
        self.steps = self.states * (len(self.shape) + depth * sum(kernels))

    def is_feasible(self) -> bool:
        return max(self.states, *self.local_states) <= STATES_MAX and self.steps <= STEPS_MAX

    def solve(self) -> tuple[Floats, dict[Source, Floats], dict[Source, Floats]]:
        """Returns, by |z|: all weights; those where all z of a near source are 0; those where all z
        of a far source are at their limits."""
        levels = levels_of(self.shape)
        local = [self._local(classes) for classes in self.components]
        kernels = [
            self._kernel(classes, logs)
            for classes, logs in zip(self.components, local, strict=True)
        ]
        outer = self._outer(levels)
        everywhere = outer + _convolve_all(np.zeros((1,) * len(self.shape)), kernels)
        weights = levels.sums(everywhere)
        empty = {source: levels.sums(self._where_empty(everywhere, source)) for source in self.near}
        full: dict[Source, Floats] = {}
        self._leave_one_out(
            np.zeros((1,) * len(self.shape)), kernels, list(range(len(kernels))), local, full
        )
        return weights, empty, {s: levels.sums(outer + logs) for s, logs in full.items()}

    def _outer(self, levels: Levels) -> Floats:
        """The logarithm of B(Z) prod Z_g! with the near sources on the grid of groups."""
        grouped = [
            Source(each.ids, each.rate, frozenset(self.group_of[one] for one in each.classes))
            for each in self.near
        ]
        total = math.fsum(each.rate for each in self.near)
        by_level = log_factorials(len(levels.starts) - 2)
        by_level -= math.log(total) * np.arange(len(by_level))
        logs = log_mean_over_orders(self.shape, grouped)
        flat = logs.ravel()
        flat[levels.order] += np.repeat(by_level, np.diff(levels.starts))
        return logs

    def _local(self, classes: Sequence[int]) -> Floats:
        """The logarithm of B(l - z) / prod z_i! with the far sources, over z of one component."""
        shape = [self.tokens[number] + 1 for number in classes]
        at = {number: axis for axis, number in enumerate(classes)}
        inside = [
            Source(each.ids, each.rate, frozenset(at[one] for one in each.classes))
            for each in self.far
            if each.classes <= at.keys()
        ]
        logs: Floats = np.flip(log_balance(shape, inside))
        for axis, length in enumerate(shape):
            logs = logs - along(log_factorials(length - 1), axis, len(shape))
        return logs

    def _kernel_shape(self, classes: Sequence[int]) -> tuple[int, ...]:
        """The groups' counts that one component can add, on all axes of the grid."""
        limits = [0] * len(self.shape)
        for number in classes:
            limits[self.group_of[number]] += self.tokens[number]
        return tuple(limit + 1 for limit in limits)

    def _kernel(self, classes: Sequence[int], local: Floats) -> Floats:
        """The weights of a component summed up by its groups' counts."""
        shape = self._kernel_shape(classes)
        place = np.zeros(local.shape, dtype=np.int64)
        for axis, number in enumerate(classes):
            stride = math.prod(shape[self.group_of[number] + 1 :])
            steps = stride * np.arange(local.shape[axis])
            place += along(steps, axis, local.ndim)
        kernel = np.full(math.prod(shape), -np.inf)
        np.logaddexp.at(kernel, place.ravel(), local.ravel())
        return kernel.reshape(shape)

    def _where_empty(self, logs: Floats, source: Source) -> Floats:
        """The weights where no group of the source has a token, elsewhere nothing."""
        groups = {self.group_of[number] for number in source.classes}
        corner = tuple(0 if axis in groups else slice(None) for axis in range(logs.ndim))
        only = np.full_like(logs, -np.inf)
        only[corner] = logs[corner]
        return only

    def _leave_one_out(
        self,
        others: Floats,
        kernels: Sequence[Floats],
        left: Sequence[int],
        local: Sequence[Floats],
        full: dict[Source, Floats],
    ) -> None:
        """Put into `full`, for each far source, the convolution with its component narrowed to
        where the source's counts are at their limits. `others` are all components but those `left`.
        Halving what is left takes each component log(components) times, not once for each other.

        Halving what is left takes each component log(components) times, not once for each other.
        """
        if len(left) == 1:
            classes, logs = self.components[left[0]], local[left[0]]
            for source in self.far:
                if source.classes <= set(classes):
                    narrow = np.full_like(logs, -np.inf)
                    at = tuple(
                        -1 if number in source.classes else slice(None) for number in classes
                    )
                    narrow[at] = logs[at]
                    full[source] = _convolve(others, self._kernel(classes, narrow))
            return
        half = len(left) // 2
        for inside, outside in ((left[:half], left[half:]), (left[half:], left[:half])):
            with_them = _convolve_all(others, [kernels[number] for number in outside])
            self._leave_one_out(with_them, kernels, inside, local, full)


def _groups(count: int, near: Sequence[Source]) -> tuple[list[int], int]:
    """Returns for each class the number of its group, the classes with the same sources; and how
    many groups there are."""
    keys = [
        frozenset(index for index, source in enumerate(near) if number in source.classes)
        for number in range(count)
    ]
    known = {key: group for group, key in enumerate(dict.fromkeys(keys))}
    return [known[key] for key in keys], len(known)


def _convolve_all(start: Floats, kernels: Sequence[Floats]) -> Floats:
    for kernel in kernels:
        start = _convolve(start, kernel)
    return start


def _convolve(logs: Floats, kernel: Floats) -> Floats:
    """The convolution of weights, in logarithms; shapes add up less one on each axis."""
    shape = tuple(a + b - 1 for a, b in zip(logs.shape, kernel.shape, strict=True))
    found = np.full(shape, -np.inf)
    for shift in product(*(range(length) for length in kernel.shape)):
        if kernel[shift] > -np.inf:
            where = tuple(
                slice(step, step + length) for step, length in zip(shift, logs.shape, strict=True)
            )
            found[where] = np.logaddexp(found[where], logs + kernel[shift])
    return found
