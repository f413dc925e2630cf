"""When an answer is late: never by chance more often than is said, whatever services are like."""

import math

from hypothesis import given
from hypothesis import strategies as st

from spillover.policy.overflow.lateness import (
    GRACE_S,
    LATE_BY_CHANCE,
    Promise,
    chance,
    credible_way_s,
    is_late,
    promise,
)

TIMES_S = st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=60)


@given(TIMES_S, st.floats(0.0, 1e7))
def test_no_more_of_any_services_take_so_long_than_is_said(times_s, took_s):
    """Cantelli's inequality, for a cluster that tells the truth of its services."""
    mean_s = sum(times_s) / len(times_s)
    variance_s2 = sum((each - mean_s) ** 2 for each in times_s) / len(times_s)
    residual = 0.5 * (1.0 + variance_s2 / mean_s**2)
    promised = promise(mean_s, residual, 0.0)
    share = sum(each >= took_s for each in times_s) / len(times_s)
    assert share <= chance(promised, took_s) + 1e-6


@given(
    st.floats(0.0, 1e9),
    st.floats(0.0, 1e6),
    st.floats(0.0, 1e3),
    st.floats(0.0, 1e9),
)
def test_whatever_was_told_it_is_a_share_that_falls_with_time(s, residual, way, t):
    promised = promise(s, residual, way)
    assert 0.0 <= promised.mean_s <= promised.spread_s < math.inf
    assert 0.0 <= chance(promised, 2.0 * t) <= chance(promised, t) <= 1.0


def test_it_is_late_from_eight_times_the_mean_on_and_a_second():
    """Where services are no more uneven than exponential ones."""
    assert not is_late(Promise(0.5, 0.5), 4.99)
    assert is_late(Promise(0.5, 0.5), 5.01)
    assert chance(Promise(0.5, 0.5), 4.0) == LATE_BY_CHANCE
    assert GRACE_S == 1.0


SERVICES_S = st.floats(0.0, 0.1)


@given(st.floats(0.0, 1e9), SERVICES_S)
def test_no_way_that_was_measured_excuses_four_seconds(way_s, service_s):
    """A neighbor that holds requests and does not say so is measured to be far away."""
    promised = promise(service_s, 1.0, credible_way_s(way_s, 0.0))
    assert is_late(promised, 4.0)


@given(st.floats(0.0, 60.0), st.floats(0.0, 60.0), SERVICES_S)
def test_a_link_may_take_as_long_as_it_was_told_or_a_second(told_s, way_s, service_s):
    """One way, though the topology may say nothing of it."""
    took_s = 2.0 * way_s + service_s
    promised = promise(service_s, 1.0, credible_way_s(way_s, told_s))
    assert not is_late(promised, took_s) or way_s > max(told_s, 1.0)


@given(st.integers(0, 10**9), st.floats(0.25e6, 1e9), SERVICES_S)
def test_a_large_body_may_take_its_time(size_bytes, bytes_per_s, service_s):
    """On links from 2 Mbit/s on."""
    promised = promise(service_s, 1.0, 0.0, size_bytes)
    assert not is_late(promised, size_bytes / bytes_per_s + service_s)
