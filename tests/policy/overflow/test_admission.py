"""Who may join a queue: room, and the time that a request will stay."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.policy.overflow.admission import (
    is_full,
    is_too_late,
    stay_s,
    takes_foreign,
    tells_wait,
)

counts = st.integers(0, 1000)
seconds = st.floats(0.0, 1000.0)


@pytest.mark.parametrize(
    ("free", "waiting", "takes"), [(0, 8, True), (0, 9, False), (1, 9, True), (2, 0, True)]
)
def test_a_neighbors_request_needs_a_server_or_a_place(free, waiting, takes):
    """Of ten places neighbors have nine."""
    assert takes_foreign(free, waiting, 9) is takes


@pytest.mark.parametrize(
    ("waiting", "full_for_home", "full_for_foreign"),
    [(8, False, False), (9, False, True), (10, True, True), (11, True, True)],
)
def test_home_requests_may_use_the_whole_queue(waiting, full_for_home, full_for_foreign):
    """Of ten places neighbors have nine."""
    assert is_full(waiting, True, 10, 9) is full_for_home
    assert is_full(waiting, False, 10, 9) is full_for_foreign


def test_a_queue_shorter_than_the_servers_tells_no_wait():
    """What waits may start at the very next end of any of them."""
    assert [tells_wait(waiting, 3) for waiting in range(5)] == [False, False, False, True, True]


def test_home_requests_may_use_all_of_their_time():
    """Foreign ones three quarters; what just fits is in time."""
    assert not is_too_late(8.0, 8.0, True)
    assert is_too_late(8.001, 8.0, True)
    assert not is_too_late(6.0, 8.0, False)
    assert is_too_late(6.001, 8.0, False)


@given(counts, st.integers(1, 64), seconds, seconds)
def test_without_spread_the_stay_is_wait_service_and_delivery(waiting, servers, service, delivery):
    """The wait: those before it and a round that runs, by all servers."""
    expected = Fraction(waiting + servers, servers) * Fraction(service) + Fraction(service)
    expected += Fraction(delivery)
    assert stay_s(waiting, servers, service, 0.0, delivery) == pytest.approx(float(expected))


@given(counts, st.integers(1, 64), seconds)
def test_the_margin_is_two_deviations_of_independent_services(waiting, servers, spread_s):
    """One server: the variances of N + 1 services before the end and of its own add up. With m,
    what waits is worked off m times as fast, and so deviates by an m-th."""
    variance = (waiting + 1) * (spread_s / servers) ** 2 + spread_s**2
    margin_s = stay_s(waiting, servers, 0.0, spread_s, 0.0)
    assert margin_s == pytest.approx(2.0 * math.sqrt(variance))
