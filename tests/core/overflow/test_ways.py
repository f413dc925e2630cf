"""How long a request takes to a neighbor: as measured where it is answered, as told before."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.core.overflow.neighbor import Neighbor
from spillover.policy.overflow.estimate import learned_way_s

ways = st.floats(0.0, 10.0)


def neighbor(delay_s):
    return Neighbor(0, "b", delay_s, 0.25)


def test_the_topology_tells_until_one_was_answered():
    """In production it says nothing of the network's own way, and the first answer does."""
    b = neighbor(0.0)
    assert b.way_s == 0.0
    assert b.took(0.035)
    assert b.way_s == 0.035


def test_ways_as_long_as_told_change_nothing():
    """To the bit: what is simulated without faults is the same with and without the measure."""
    b = neighbor(0.1)
    assert not any(b.took(0.1) for _ in range(100))
    assert b.way_s == 0.1


def test_a_pause_is_no_way():
    """A process that was stopped for a minute counts as four ways, once in eight."""
    b = neighbor(0.035)
    b.took(0.035)
    b.took(60.0)
    assert b.way_s == pytest.approx(0.035 + (3 * 0.035 + 0.005) / 8)


def test_another_way_is_followed():
    """A route that has changed for good is believed after some tens of answers."""
    b = neighbor(0.0)
    b.took(0.001)
    for _ in range(60):
        b.took(0.2)
    assert b.way_s == pytest.approx(0.2, rel=0.06)


@given(ways, ways)
def test_the_mean_moves_towards_the_newest(mean_s, way_s):
    """Never beyond it, and never below 0."""
    learned_s, _ = learned_way_s(mean_s, mean_s, way_s)
    assert min(mean_s, way_s) - 1e-12 <= learned_s <= max(mean_s, way_s) + 1e-12
