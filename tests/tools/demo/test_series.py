"""Numbers taken from samples: peaks survive thinning, and stretches are measured right."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spillover.tools.demo.series import POINTS_MAX, thin

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=3 * POINTS_MAX)


@given(values=VALUES)
def test_thinning_bounds_the_points_and_keeps_the_extremes(values: list[float]) -> None:
    """However long a series, few points remain, in order, the highest and lowest among them."""
    series = [(float(index), value) for index, value in enumerate(values)]
    kept = thin(series)
    assert len(kept) <= POINTS_MAX
    assert kept == sorted(kept)
    assert set(kept) <= set(series)
    assert max(value for _, value in kept) == max(values)
    assert min(value for _, value in kept) == min(values)
