"""The formulas by which requests' sizes become times, and queues of them waits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.policy import work

SIZES = st.just(0.0) | st.floats(1e-3, 1e6)
FACTORS = st.just(0.0) | st.floats(1e-6, 10.0)
ROWS = st.lists(st.tuples(SIZES, SIZES, st.floats(1e-3, 1e3)), min_size=3, max_size=30)


def sums(rows: list[tuple[float, float, float]]) -> tuple[list[list[float]], list[float]]:
    """Returns the sums of least squares, worked out at once."""
    told = np.array([(1.0, a, b) for a, b, _ in rows])
    times = np.array([time_s for _, _, time_s in rows])
    return (told.T @ told).tolist(), (told.T @ times).tolist()


@given(st.lists(st.tuples(SIZES, SIZES), min_size=3, max_size=30), st.tuples(*[FACTORS] * 3))
def test_times_that_are_sums_of_features_are_found_again(
    sizes: list[tuple[float, float]], chosen: tuple[float, float, float]
) -> None:
    told = np.array([(1.0, a, b) for a, b in sizes])
    times = told @ np.array(chosen)
    rows = [(a, b, time_s) for (a, b), time_s in zip(sizes, times.tolist(), strict=True)]
    found = told @ np.array(work.factors(*sums(rows)))
    assert found == pytest.approx(times, rel=1e-3, abs=1e-3 * times.max() + 1e-6)


@given(ROWS)
def test_no_factor_is_below_0_and_no_time_infinite(rows: list[tuple[float, float, float]]) -> None:
    found = work.factors(*sums(rows))
    assert len(found) == 3
    assert all(0.0 <= one < float("inf") for one in found)


@given(st.floats(0.0, 1e4), st.lists(st.floats(0.0, 1e3), min_size=1, max_size=20))
def test_a_wait_is_the_level_at_which_the_work_has_found_room(
    work_s: float, rests_s: list[float]
) -> None:
    """What is found by halving is the same."""
    rests_s.sort()
    low, high = rests_s[0], rests_s[0] + work_s
    for _ in range(100):
        middle = (low + high) / 2.0
        poured = sum(max(0.0, middle - rest_s) for rest_s in rests_s)
        low, high = (middle, high) if poured < work_s else (low, middle)
    level_s = work.level_s(work_s, rests_s)
    assert level_s == pytest.approx(high, rel=1e-9, abs=1e-9)
    assert work.room_s(level_s, rests_s) == pytest.approx(work_s, rel=1e-6, abs=1e-6)
