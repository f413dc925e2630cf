"""When an idle cluster asks, whom, how often, and what it is given: the formulas of decision 0037;
and what counts as the load that own clients bring."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.policy.overflow.home_load import LOAD_WINDOW, home_rate
from spillover.policy.overflow.pull import DOUBLINGS_MAX, first_place, pause_s, worth_s


def test_a_queue_is_worth_the_way_from_there():
    """Five ahead at 8 ms each are 40 ms: 5 ms more than the way, if that was told just now, and a
    half of a random walk's spread besides."""
    assert worth_s(5, 0.0, 0.0, 0.008) == pytest.approx(0.04)
    spread = 0.5 * math.sqrt(2.0 * 0.08 / 0.008)
    assert worth_s(5, 0.01, 0.035, 0.008) == pytest.approx((5 + spread) * 0.008 - 0.035)


def test_a_federation_at_rest_is_not_worth_a_question_for_long():
    """Of m idle servers none is sure after 2 m^2 departures: 0.4 s for five servers of 40 ms, less
    what the way takes."""
    departure_s, servers = 0.008, 5
    due_s = 2.0 * servers**2 * departure_s
    assert worth_s(-servers, 0.99 * due_s, 0.0, departure_s) < 0.0
    assert worth_s(-servers, 1.01 * due_s, 0.0, departure_s) > 0.0
    assert worth_s(-servers, 0.05, 0.035, departure_s) < 0.0


@given(st.integers(1, 100), st.floats(0.001, 10.0), st.floats(0.0, 1.0, exclude_max=True))
def test_pauses_double_up_to_a_bound_and_are_spread(row, departure_s, draw):
    """Half to one and a half of one departure, of two, of four ... of 64."""
    usual_s = departure_s * 2 ** min(row - 1, DOUBLINGS_MAX)
    longer = pause_s(row, departure_s, draw) / usual_s
    assert longer == pytest.approx(0.5 + draw)


@given(st.floats(0.0, 100.0), st.floats(1e-6, 10.0), st.integers(0, 1000))
def test_the_first_place_is_the_first_that_waits_longer(there_s, departure_s, place):
    """Place p, from 0 on, waits p + 1 departures: from there on it is longer than there."""
    ratio = there_s / departure_s
    if abs(place + 1 - ratio) > 1e-9 * ratio:
        waits_longer = (place + 1) > ratio
        assert (place >= first_place(there_s, departure_s)) == waits_longer


# --- the home rate ----------------------------------------------------------------------------


def exponential_sum(times_s, now_s, departure_s):
    """Section 1 of the decision: each arrival adds 1 / T, and all fade with T = 32 departures."""
    window_s = 32.0 * departure_s
    return sum(math.exp(-(now_s - t) / window_s) for t in times_s) / window_s


@pytest.mark.parametrize("load", [0.1, 3.0])
def test_the_rate_is_that_of_a_sum_over_arrivals(load):
    """Read at each tenth arrival or so: within the error of spreading arrivals evenly over the
    gap, which is half of the gap's share of the window."""
    departure_s, random = 0.008, Random(4)
    window_s = LOAD_WINDOW * departure_s
    times_s, now_s = [], 0.0
    while now_s < 5.0:
        now_s += random.expovariate(load / departure_s)
        times_s.append(now_s)
    rate_hz, at_s, seen = 0.0, 0.0, 0
    for place in range(9, len(times_s), 10):
        now_s, arrivals = times_s[place], place + 1 - seen
        gap_s = now_s - at_s
        rate_hz = home_rate(rate_hz, arrivals, gap_s, departure_s)
        exact_hz = exponential_sum(times_s[: place + 1][-2000:], now_s, departure_s)
        error_hz = 2.0 * exact_hz * 0.5 * gap_s / window_s + 1.0 / window_s
        assert abs(rate_hz - exact_hz) <= error_hz
        at_s, seen = now_s, place + 1


@pytest.mark.parametrize("departure_s", [0.0, 10.0])
@pytest.mark.parametrize("gap_s", [-0.002, 5e-324, 1e-6])
def test_arrivals_at_one_instant_count_in_full(gap_s, departure_s):
    """However short the time is, and where it goes back a little: 1 / T each. Services that take no
    time have the shortest window there is."""
    window_s = LOAD_WINDOW * max(departure_s, 1e-6)
    rate_hz = home_rate(2.0, 3, gap_s, departure_s)
    gone = 1.0 - math.exp(-max(gap_s, 0.0) / window_s)
    assert rate_hz == pytest.approx(2.0 + 3.0 / window_s, rel=max(2.0 * gone, 1e-8))
