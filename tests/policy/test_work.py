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


@given(ROWS, st.tuples(FACTORS, FACTORS, FACTORS))
def test_the_law_of_times_is_found_again(
    rows: list[tuple[float, float, float]], law: tuple[float, float, float]
) -> None:
    """As least squares find it, all worked out at once."""
    told = np.array([(1.0, a, b) for a, b, _ in rows])
    times = told @ np.array(law)
    exact = [(a, b, float(time_s)) for (a, b, _), time_s in zip(rows, times, strict=True)]
    found = told @ np.array(work.factors(*sums(exact)))
    twin = told @ np.linalg.lstsq(told, times, rcond=None)[0]
    allowed = 1e-3 * times.max()
    assert found == pytest.approx(times, rel=1e-3, abs=allowed)
    assert found == pytest.approx(twin, rel=1e-3, abs=allowed + 1e-9)


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
