"""What policies share: P and R in exact fractions, and picking by weight or evenly."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.policy.overflow.base import (
    KEEP,
    accept_probability,
    neighborhood_reject_probability,
    pick_by_weight,
    pick_evenly,
)

ALMOST_ONE = 1.0 - 2.0**-53
probabilities = st.floats(0.0, 1.0)


@given(st.integers(0, 10_000), st.integers(1, 1000))
def test_p_is_m_over_n_plus_m(queue_length, servers):
    """P_k = m_k / (N_k + m_k): 1 with an empty queue, falling as it grows."""
    assert accept_probability(queue_length, servers) == float(
        Fraction(servers, queue_length + servers)
    )
    assert accept_probability(0, servers) == 1.0


@given(probabilities, st.lists(st.tuples(probabilities, st.booleans()), max_size=8))
def test_r_is_the_chance_that_somebody_near_accepts(own, neighbors):
    """Rbar is the product of the complements, of the own P and of the known neighbors'."""
    reject = 1 - Fraction(own)
    for accept, known in neighbors:
        if known:
            reject *= 1 - Fraction(accept)
    real = neighborhood_reject_probability(
        own, [accept for accept, _ in neighbors], [known for _, known in neighbors]
    )
    assert real == pytest.approx(float(reject), abs=1e-12)


def test_picking_by_weight_passes_over_what_has_none():
    """Zero and negative weights take no share, not even at the ends."""
    weights = [0.0, 2.0, -1.0, 1.0, 0.0]
    assert [pick_by_weight(weights, 3.0, k / 6) for k in range(6)] == [1, 1, 1, 1, 3, 3]
    assert pick_by_weight(weights, 3.0, ALMOST_ONE) == 3
    assert pick_by_weight([0.0, -1.0], 0.0, 0.5) == KEEP
    assert pick_by_weight([], 0.0, 0.0) == KEEP


@given(st.lists(st.booleans(), max_size=9))
def test_picking_evenly_is_even(eligible):
    """Each eligible index takes the same share of the draws, in order; none gives KEEP."""
    there = [y for y, can in enumerate(eligible) if can]
    for place, y in enumerate(there):
        low, high = place / len(there), (place + 1) / len(there)
        for draw in (low + 1e-12, (low + high) / 2, high - 1e-12):
            assert pick_evenly(eligible, draw) == y
    if there:
        assert pick_evenly(eligible, 0.0) == there[0]
        assert pick_evenly(eligible, ALMOST_ONE) == there[-1]
    else:
        assert pick_evenly(eligible, 0.5) == KEEP
