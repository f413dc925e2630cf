"""What two formulas of `adaptive` give: what the way counts, and how long a queue is that is surely
there. That the choice uses them is in `test_adaptive`."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.policy.overflow import adaptive
from support.loads import neighbor_loads, own_load


@pytest.mark.parametrize(
    ("load", "near", "hops", "price"),
    [
        (0.0, (3.0, 3.0), 0, 1.0),
        (0.5, (3.0, 3.0), 0, 1.0 - 0.25 / 4),  # by the square of the load
        (1.0, (3.0, 3.0), 0, 0.75),
        (1.3, (3.0, 3.0), 0, 0.75),  # not surely enough overloaded
        (1.5, (0.1, 0.2), 0, 0.75),  # 0.6 around: they take what is too much
        (1.5, (0.525, 0.3), 0, 0.75 - 0.65 / 2),  # 0.775 around
        (1.5, (0.6, 0.6), 0, 0.1),  # 0.9 around: it stays
        (1.5, (0.0, 0.6), 0, 0.75),
        (3.0, (0.0, 0.0), 1, 1.0),  # a neighbor's request pays all of the way
        (3.0, (0.0, 0.0), 0, 0.1),
        (2.0, (0.0, 0.0), 0, 1.0 / (2.0 - 2.0 * math.sqrt(2.0 / 64.0))),
    ],
)
def test_the_way_counts_least_where_overload_is_sure_and_stays(load, near, hops, price):
    """Two neighbors of as many servers, and a third that cannot be asked and does not count."""
    own = own_load(9, 4, load=load, hops=hops)
    loads = neighbor_loads((0.0,) * 3, (0,) * 3, (0.035,) * 3, servers=(4,) * 3, load=(*near, 0.0))
    assert adaptive.price_of_the_way(own, loads, (True, True, False)) == pytest.approx(price)


@given(st.floats(adaptive.SURE, 30.0), st.floats(1e-6, 1e3))
def test_a_queue_that_is_surely_there_is_as_long_as_was_told(z, spread):
    """That the functions are left out there changes no bit: both engines choose alike."""
    mean = z * spread
    z = mean / spread
    full = 0.5 * mean * math.erfc(-z / adaptive.ROOT_2)
    full += spread * math.exp(-0.5 * z * z) / adaptive.ROOT_2_PI
    assert adaptive.expected_excess(mean, spread) == mean == full
