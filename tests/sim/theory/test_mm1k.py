"""M/M/1/K against its balance equations."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.sim.theory.mm1k import mm1k_blocking, mm1k_distribution

eighths = st.integers(1, 40).map(lambda count: count / 8)
"""Rates that floats hold exactly, so that fractions mean the same numbers."""


def birth_death(births, deaths):
    """The stationary law: birth rates of states 0.., death rates of states 1.., in fractions."""
    weights = [Fraction(1)]
    for birth, death in zip(births, deaths, strict=True):
        weights.append(weights[-1] * Fraction(birth) / Fraction(death))
    total = sum(weights)
    return [weight / total for weight in weights]


@given(eighths, st.integers(0, 20))
def test_one_server_with_limited_room(load, limit):
    """M/M/1/K, exactly."""
    law = birth_death([load] * limit, [1] * limit)
    assert mm1k_distribution(load, limit) == pytest.approx([float(p) for p in law], rel=1e-13)


def test_limited_room_at_extreme_loads():
    """Nothing overflows."""
    assert mm1k_blocking(1e-300, 10_000) == 0
    assert mm1k_blocking(1e300, 10_000) == 1
    assert mm1k_blocking(1.0, 3) == 0.25
    assert mm1k_blocking(0.0, 0) == 1


@pytest.mark.parametrize("arguments", [(1.0, -1), (-0.5, 1), (math.nan, 1)])
def test_what_is_no_queue(arguments):
    with pytest.raises(ValueError, match="expected a limit and a load of at least 0"):
        mm1k_distribution(*arguments)
