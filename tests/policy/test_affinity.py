"""What a miss costs."""

import pytest

from spillover.policy.affinity import WEIGHT_MAX, cost_s, miss_weight


@pytest.mark.parametrize(
    ("busy", "weight"), [(0.0, 1.0), (0.5, 2.0), (0.9, 10.0), (0.99, WEIGHT_MAX), (1.0, WEIGHT_MAX)]
)
def test_a_miss_counts_the_more_the_less_idle_time_is_left(busy, weight):
    assert miss_weight(busy) == pytest.approx(weight)


def test_a_cost_is_wait_way_and_the_weighed_time_of_what_is_missing():
    assert cost_s(1.0, 0.25, 500.0, 1_000.0, 3.0) == 2.75
