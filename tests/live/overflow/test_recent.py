"""What ended in the last seconds: counts that go with time, quantiles that are near the truth."""

from random import Random
from statistics import quantiles

import pytest

from spillover.live.overflow.recent import REFUSED, WINDOW_S, Recent
from spillover.model.request import Outcome

OFF_BY_MAX = 0.05


class Clock:
    """Stands still unless it is set."""

    def __init__(self):
        self.now_s = 1000.25

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def recent(clock):
    return Recent(clock)


def test_quantiles_are_near_the_truth(recent):
    random = Random(1)
    times_s = [random.lognormvariate(1.0, 1.5) for _ in range(5_000)]
    for time_s in times_s:
        recent.done(time_s)
    cuts = quantiles(times_s, n=100)
    assert recent.read().done == len(times_s)
    assert recent.read().p50_s == pytest.approx(cuts[49], rel=OFF_BY_MAX)
    assert recent.read().p99_s == pytest.approx(cuts[98], rel=OFF_BY_MAX)


def test_a_time_is_told_to_half_a_step_and_beyond_the_scale_as_its_end(clock):
    """Steps are eighths of a doubling, from 0.1 ms to 56 minutes: 4.5 % to either side."""
    shortest_s, longest_s, half_a_step = 1e-4, 1e-4 * 2.0**25, 2.0 ** (1 / 16)
    off_by = []
    for step in range(1, 25 * 8 + 1):
        for share in (0.01, 0.99):
            time_s, recent = shortest_s * 2.0 ** ((step - share) / 8), Recent(clock)
            recent.done(time_s)
            off_by.append(time_s / recent.read().p50_s)
    assert max(off_by) == pytest.approx(half_a_step, rel=0.002)
    assert min(off_by) == pytest.approx(1 / half_a_step, rel=0.002)
    for time_s, told_s in ((0.0, shortest_s), (shortest_s, shortest_s), (1e9, longest_s)):
        recent = Recent(clock)
        recent.done(time_s)
        assert recent.read().p99_s == pytest.approx(told_s, rel=1e-9)


def test_of_a_few_a_quantile_is_the_first_that_has_enough_below_it(recent):
    """Of an even number the median is the lower one in the middle."""
    for time_s in (0.4, 0.1, 0.2, 0.8):
        recent.done(time_s)
    assert recent.read().p50_s == pytest.approx(0.2, rel=OFF_BY_MAX)
    assert recent.read().p99_s == pytest.approx(0.8, rel=OFF_BY_MAX)
    for _ in range(396):  # 99 % of them now, which is enough
        recent.done(0.05)
    assert recent.read().p50_s == pytest.approx(0.05, rel=OFF_BY_MAX)
    assert recent.read().p99_s == pytest.approx(0.05, rel=OFF_BY_MAX)


def test_ends_are_told_apart(recent):
    """A request of unknown outcome has failed for its client."""
    recent.done(0.1)
    for how in (Outcome.FAILED, Outcome.UNKNOWN, Outcome.REJECTED, Outcome.EXPIRED, REFUSED):
        recent.ended(how)
    recent.ended(Outcome.CANCELLED)
    read = recent.read()
    assert (read.done, read.failed, read.rejected, read.expired, read.refused) == (1, 2, 1, 1, 1)


def test_what_is_older_than_the_window_is_forgotten(recent, clock):
    """Second by second, also where nothing happens for longer than the window."""
    for _ in range(3 * WINDOW_S):
        recent.done(0.01)
        recent.ended(REFUSED)
        clock.now_s += 1.0
    # The second under way is empty yet.
    assert (recent.read().done, recent.read().refused) == (WINDOW_S - 1, WINDOW_S - 1)
    clock.now_s += WINDOW_S - 2
    assert (recent.read().done, recent.read().refused) == (1, 1)
    clock.now_s += 1.0
    assert (recent.read().done, recent.read().refused) == (0, 0)
    clock.now_s += 1000.0
    recent.done(2.0)
    assert recent.read().done == 1
    assert recent.read().p50_s == pytest.approx(2.0, rel=OFF_BY_MAX)
