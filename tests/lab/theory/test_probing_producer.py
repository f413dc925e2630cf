"""One producer's chain against the same chain solved by brute force in exact numbers."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover_lab.theory.producer import (
    few_sources,
    many_sources,
)

rates = st.fractions(Fraction(1, 20), 20, max_denominator=20)
shares = st.fractions(0, 1, max_denominator=12)
rooms = st.integers(1, 9)


@dataclass
class Exact:
    """What arrivals see, in the order of `ProducerState`, in plain numbers."""

    empty: float
    stocked: float
    producing: float
    arrival_rate: float
    parked_time: float


def stationary(states, rate):
    """The law of a Markov chain by Gaussian elimination; `rate(s, t)` from s to t."""
    size = len(states)
    rows = [
        [rate(t, s) if s != t else -sum(rate(s, u) for u in states if u != s) for t in states]
        for s in states
    ]
    rows[-1] = [Fraction(1)] * size
    right = [Fraction(0)] * (size - 1) + [Fraction(1)]
    for k in range(size):
        pivot = next(r for r in range(k, size) if rows[r][k])
        rows[k], rows[pivot] = rows[pivot], rows[k]
        right[k], right[pivot] = right[pivot], right[k]
        for r in range(size):
            if r != k and rows[r][k]:
                factor = rows[r][k] / rows[k][k]
                rows[r] = [x - factor * y for x, y in zip(rows[r], rows[k], strict=True)]
                right[r] -= factor * right[k]
    return {s: right[k] / rows[k][k] for k, s in enumerate(states)}


def brute_force(made, asked, parking, room, buffers, *, few):
    """Equations 2 and 3 (few) or 4: p(s), and from it what a request finds."""
    states = range(-room, buffers + 1)

    def arrivals(s):
        left = Fraction(min(room + s, room), room) if few else Fraction(s > -room)
        return asked * left

    def rate(s, t):
        if t == s + 1:
            return made
        if t == s - 1:
            return arrivals(s) * (1 if s > 0 else parking)
        return Fraction(0)

    law = stationary(list(states), rate)
    total = sum(law[s] * arrivals(s) for s in states)
    none = sum(law[s] * arrivals(s) for s in states if s <= 0)
    wait = sum(law[s] * arrivals(s) * (1 - s) for s in states if s <= 0) / made / none
    return Exact(*map(float, (none / total, 1 - none / total, 1 - law[buffers], total, wait)))


def check(made, asked, parking, room, buffers):
    """Both chains, to nearly all digits."""
    for chain, few in ((many_sources, False), (few_sources, True)):
        state = chain(float(made), float(asked), float(parking), room, buffers)
        log_empty, log_stocked, *rest = astuple(state)
        found = [math.exp(log_empty), math.exp(log_stocked), *rest]
        exact = brute_force(made, asked, parking, room, buffers, few=few)
        assert found == pytest.approx(list(astuple(exact)), rel=1e-11)


@given(rates, rates, shares, rooms, st.integers(1, 5))
def test_the_chains_are_solved_exactly(made, asked, parking, room, buffers):
    """Any rates, any share of requests that park, none and all of them included."""
    check(made, asked, parking, room, buffers)


@pytest.mark.parametrize("room", [1, 2, 7])
@pytest.mark.parametrize("buffers", [1, 2, 5])
def test_degenerate_cases_have_a_closed_form(room, buffers):
    """With lambda = mu_c, lambda = p_b mu_c, and both at once."""
    for asked, parking in ((1, Fraction(1, 3)), (2, Fraction(1, 2)), (1, Fraction(1))):
        check(Fraction(1), Fraction(asked), parking, room, buffers)


def test_extremes_neither_fail_nor_overflow():
    """A million parked or buffered, rates apart by hundreds of orders of magnitude."""
    for asked in (1e-200, 1.0, 1e200):
        for parking in (0.0, 1e-300, 1.0):
            state = many_sources(1.0, asked, parking, 1_000_000, 1_000_000)
            assert all(map(math.isfinite, astuple(state)))
            assert 0.0 <= state.producing <= 1.0 + 1e-12
