"""The running mean and variance of service times, against sums in exact fractions."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.policy.overflow.estimate import (
    GUESS_WEIGHT,
    OUTLIER,
    SERVICE_WEIGHT,
    learned,
    residual,
)

EVEN_UP_TO = round(1 / SERVICE_WEIGHT) - GUESS_WEIGHT
"""So many services count alike; from then on the newest has a fixed weight."""


def after(guess_s, services_s):
    """Mean and variance after these services."""
    mean_s, variance_s2 = guess_s, 0.0
    for number, service_s in enumerate(services_s, 1):
        mean_s, variance_s2 = learned(mean_s, variance_s2, number, service_s)
    return mean_s, variance_s2


@given(st.floats(0.5, 2.0), st.lists(st.floats(0.1, 3.0), max_size=EVEN_UP_TO))
def test_the_first_ones_count_alike_and_the_guess_as_four(guess_s, services_s):
    """Mean and variance of all of them, as if the guess had been seen four times."""
    seen = [Fraction(guess_s)] * GUESS_WEIGHT + [Fraction(s) for s in services_s]
    mean = sum(seen) / len(seen)
    variance = sum((one - mean) ** 2 for one in seen) / len(seen)
    mean_s, variance_s2 = after(guess_s, services_s)
    assert mean_s == pytest.approx(float(mean), rel=1e-12)
    assert variance_s2 == pytest.approx(float(variance), rel=1e-9, abs=1e-12)


def test_later_ones_count_a_64th():
    """The mean moves so far toward the newest, whatever number it has."""
    for number in (EVEN_UP_TO, EVEN_UP_TO + 1, 10_000):
        mean_s, variance_s2 = learned(1.0, 4.0, number, 2.0)
        assert mean_s == pytest.approx(1.0 + 1 / 64)
        assert variance_s2 == pytest.approx((1 - 1 / 64) * (4.0 + 1 / 64))


@pytest.mark.parametrize(("mean_s", "spread_s"), [(1.0, 0.0), (1.0, 0.5), (0.0, 0.25)])
def test_a_pause_counts_as_eight_usual_services(mean_s, spread_s):
    """Usual is the mean and one deviation; what is less than eight of them counts in full."""
    usual_s = mean_s + spread_s
    most = learned(mean_s, spread_s**2, 1000, OUTLIER * usual_s)
    assert learned(mean_s, spread_s**2, 1000, 1e6) == most
    assert learned(mean_s, spread_s**2, 1000, 0.99 * OUTLIER * usual_s) < most


@pytest.mark.parametrize("mean_s", [0.04, 1.0, 20.0])
def test_what_is_left_of_a_service_is_a_share_of_it(mean_s):
    """Whatever the unit: half where all are alike, all of it where they are exponential."""
    assert residual(mean_s, 0.0) == 0.5
    assert residual(mean_s, mean_s**2) == pytest.approx(1.0)
    assert residual(mean_s, 3.0 * mean_s**2) == pytest.approx(2.0)


def test_from_a_guess_of_nothing_anything_is_learned():
    """Nothing is usual yet: no service is an outlier."""
    assert learned(0.0, 0.0, 1, 5.0) == (pytest.approx(1.0), pytest.approx(0.8 * 0.2 * 25.0))


def test_services_that_take_no_time_leave_a_mean_that_can_be_divided_by():
    """And one that real ones soon move: a mean that vanished ended the node after 24,000."""
    mean_s, variance_s2 = after(0.02, [0.01, 0.03] + [0.0] * 50_000)
    assert 0.0 < residual(mean_s, variance_s2) <= 1.0
    for number in range(200):
        mean_s, variance_s2 = learned(mean_s, variance_s2, 60_000 + number, 0.5)
    assert mean_s > 0.1
