"""What two formulas of `adaptive` give: when the first of many servers is free, and what the way
counts. That the choice uses them is in `test_adaptive`.
"""

from __future__ import annotations

import math

import pytest

from spillover.policy.overflow import adaptive
from support.loads import neighbor_loads, own_load


@pytest.mark.parametrize(
    ("residual", "load", "servers", "first"),
    [
        (0.5, 1.0, 8, 0.5),
        (1.0, 0.9, 8, 1.0),
        (2.5, 0.0, 8, 2.5),
        (2.5, 1.0, 8, 1.0 + 1.5 / 8),
        (2.5, 3.0, 8, 1.0 + 1.5 / 8),
        (2.5, 1.0, 1, 2.5),
        (2.5, 0.5, 4, 2.5 - 1.5 * 0.75 / 8),
    ],
)
def test_of_many_uneven_services_the_first_ends_sooner_the_higher_the_load(
    residual, load, servers, first
):
    """Without load, and of one server, a whole residual is left, at load 1 its excess by the
    servers; what is no more uneven than exponential work stays as it is. Here and there alike."""
    own = own_load(4, servers, residual=residual, load=load)
    assert adaptive.wait_here_s(own) == pytest.approx(own.departure_s * (4 + first))
    there_s = adaptive.wait_after_s(100.0, servers, load, residual, 0.01, 0.0)
    assert there_s == pytest.approx(0.01 * (100.0 + first))


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
