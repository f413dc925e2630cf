"""When a cluster's work fails more than others': the sum of evidence, step by step."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.policy.overflow.degradation import (
    BAD,
    BY_CHANCE,
    DEGRADED_AT,
    FORGET_S,
    SHARE_WELL,
    SHARE_WORSE,
    UNPROVEN,
    degraded_rank,
    evidence,
    run_needed,
    weighed,
)

shares = st.floats(0.0, 1.0)
sums = st.floats(0.0, 100.0)
pauses_s = st.floats(0.0, 1e9)


def summed(failures, usual=0.0, start=0.0, pause_s=0.0):
    total = start
    for failed in failures:
        total = weighed(total, failed, usual, pause_s)
    return total


@given(sums, st.booleans(), shares, pauses_s)
def test_the_sum_is_never_below_0(total, failed, usual, since_last_s):
    """Nor beyond all bounds: one outcome adds at most ln 3."""
    after = weighed(total, failed, usual, since_last_s)
    assert 0.0 <= after <= total + math.log(3.0) + 1e-9


@given(shares, shares)
def test_the_more_fails_elsewhere_the_less_a_failure_says(usual, other):
    less, more = sorted((usual, other))
    assert evidence(True, more) <= evidence(True, less) + 1e-12
    assert evidence(True, usual) >= 0.0 > evidence(False, usual)


@given(st.lists(st.booleans(), max_size=200), st.floats(0.0, DEGRADED_AT - 1e-6))
def test_where_all_fails_everywhere_failures_are_no_evidence(failures, start):
    assert evidence(True, 1.0) == 0.0
    assert summed(failures, 1.0, start) <= start


@pytest.mark.parametrize(("start", "needed"), [(0.0, 4), (UNPROVEN, 2)])
def test_failures_in_a_row_that_degrade(start, needed):
    """Four, and two of a cluster that has never worked."""
    assert summed([True] * (needed - 1), start=start) < DEGRADED_AT
    assert summed([True] * needed, start=start) >= DEGRADED_AT


@pytest.mark.parametrize("pause_s", [0.001, 0.1, 1.0])
def test_four_failures_are_enough_also_if_they_are_a_second_apart(pause_s):
    """They fade, but not so fast that a fifth is needed."""
    assert summed([True] * 4, pause_s=pause_s) >= DEGRADED_AT


@given(sums, pauses_s)
def test_time_only_takes_away(total, since_last_s):
    """Half of the sum in FORGET_S."""
    assert weighed(total, True, 0.0, since_last_s) <= weighed(total, True, 0.0, 0.0)
    half = weighed(total, True, 1.0, FORGET_S)
    assert half == pytest.approx(total / 2)


def test_the_shares_between_which_it_decides():
    """On the average a failing share of SHARE_WELL takes away, and one of SHARE_WORSE adds."""
    for share, sign in ((SHARE_WELL, -1), (SHARE_WORSE, 1)):
        drift = share * evidence(True, 0.0) + (1 - share) * evidence(False, 0.0)
        assert drift * sign > 0


@given(st.integers(1, 64), st.integers(0, 64))
def test_a_run_that_ends_it_does_not_come_by_chance(failures, successes):
    """And one success less could, by the share that was seen."""
    ends = failures + successes
    succeeds = 1.0 - failures / (ends + 2.0)
    run = run_needed(failures, ends)
    assert succeeds**run <= BY_CHANCE * (1.0 + 1e-9) < succeeds ** (run - 1) * (1.0 + 1e-6)


@given(st.integers(0, 20), st.floats(0.0, 1.0))
def test_whoever_can_have_it_done_is_better_than_who_cannot(hops, share):
    assert degraded_rank(share, hops) > 0.0, "one that is well is better"
    assert (degraded_rank(share, hops) < BAD) == (hops > 0)
