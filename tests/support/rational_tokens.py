"""Token balancing solved in fractions, state by state: no rounding at all, for small pools only.

Equations (2), (8) and (9) as they are printed, over all states; `grid` is the method for
pools of any size, and this is what its digits are checked against. Needs nothing but the standard
library.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from spillover.model.errors import InputError
from spillover.model.pool import Pool

STATES_MAX = 50_000
"""Fractions grow with the number of tokens: this takes some ten seconds."""

State = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RationalFigures:
    """beta_k by type and psi_s by server, exactly, for the rates as the floats that they are."""

    blocking: Mapping[str, Fraction]
    idle: Mapping[str, Fraction]


def rational_figures(pool: Pool) -> RationalFigures:
    """beta_k and psi_s under token balancing (section IV).

    Classes that no type may join are left out. Raises InputError above STATES_MAX states.
    """
    joined = {name for kind in pool.types for name in kind.classes}
    classes = [each for each in pool.classes if each.id in joined]
    limits = tuple(each.tokens for each in classes)
    states = math.prod(limit + 1 for limit in limits)
    if states > STATES_MAX:
        raise InputError("pool", "classes", f"expected at most {STATES_MAX} states, got {states}")
    types_at = {
        kind.id: [k for k, each in enumerate(classes) if each.id in kind.classes]
        for kind in pool.types
    }
    servers_at = {
        server.id: [k for k, each in enumerate(classes) if server.id in each.servers]
        for server in pool.servers
    }
    phi = _balance(limits, [(Fraction(each.rate), servers_at[each.id]) for each in pool.servers])
    lam = _balance(limits, [(Fraction(each.rate), types_at[each.id]) for each in pool.types])
    weights = {x: phi[x] * lam[_free(limits, x)] for x in phi}
    total = sum(weights.values())

    def probability(wanted: Sequence[int], counts: Sequence[int]) -> Fraction:
        return (
            sum(
                (weight for x, weight in weights.items() if all(x[k] == counts[k] for k in wanted)),
                Fraction(0),
            )
            / total
        )

    return RationalFigures(
        {name: probability(at, limits) for name, at in types_at.items()},
        {name: probability(at, [0] * len(limits)) for name, at in servers_at.items()},
    )


def _balance(
    limits: State, sources: Sequence[tuple[Fraction, Sequence[int]]]
) -> dict[State, Fraction]:
    """Equation (2) or (8) for all states up to `limits`; sources are (rate, classes)."""
    found: dict[State, Fraction] = {}
    for state in product(*(range(limit + 1) for limit in limits)):
        active = [k for k, count in enumerate(state) if count]
        if not active:
            found[state] = Fraction(1)
            continue
        rate = sum(rate for rate, at in sources if any(state[k] for k in at))
        before = (found[(*state[:k], state[k] - 1, *state[k + 1 :])] for k in active)
        found[state] = sum(before, Fraction(0)) / rate
    return found


def _free(limits: State, held: State) -> State:
    return tuple(limit - count for limit, count in zip(limits, held, strict=True))
