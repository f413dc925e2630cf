"""The formulas of the search for how many requests a service bears at a time."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.policy import capacity

NUMBERS = st.integers(1, 10_000)
STEPS = st.sampled_from([-1.0, -0.5, -0.25, -0.125, 0.125, 0.25, 0.5, 1.0])


@given(NUMBERS, STEPS, NUMBERS, NUMBERS)
def test_another_number_lies_within_the_bounds_and_where_the_step_leads(
    number: int, step: float, one: int, other: int
) -> None:
    least, most = min(one, other), max(one, other)
    number = min(max(number, least), most)
    found = capacity.other_number(number, step, least, most)
    assert least <= found <= most
    if found != number:
        assert (found > number) == (step > 0.0)
    else:
        assert number == (most if step > 0.0 else least)


@given(
    st.lists(st.tuples(st.integers(1, 500), st.floats(0.01, 100.0)), min_size=2, max_size=5),
    st.floats(0.0, 20.0),
)
def test_estimates_are_worth_as_much_together_whatever_their_order(
    parts: list[tuple[int, float]], spread2: float
) -> None:
    def of(some: list[tuple[int, float]]) -> capacity.Estimate:
        known = capacity.UNKNOWN
        for done, time_s in some:
            known = capacity.merged(known, capacity.measured(done, time_s, spread2))
        return known

    forth, back = of(parts), of(parts[::-1])
    assert forth == pytest.approx(back)
    rates = [done / time_s for done, time_s in parts]
    assert min(rates) * 0.999 <= capacity.rate_of(forth) <= max(rates) * 1.001


@pytest.mark.parametrize(
    ("rate", "other", "better"),
    [
        (100.0, 200.0, True),
        (100.0, 100.0, False),
        (100.0, 50.0, False),
        (100.0, 109.0, None),
    ],
)
def test_twice_as_many_are_better_where_they_do_clearly_more(
    rate: float, other: float, better: bool | None
) -> None:
    here, there = (math.log(rate), 1_000.0), (math.log(other), 1_000.0)
    assert capacity.is_better(here, there, 8, 16, 1.0) is better
    unsure = capacity.is_better((here[0], 1.0), (there[0], 1.0), 8, 16, 1.0)
    assert unsure is None


def test_half_as_many_are_better_where_they_do_as_much() -> None:
    same = math.log(100.0), 1_000.0
    assert capacity.is_better(same, same, 8, 4, 1.0) is True


def test_a_rate_has_changed_only_if_it_is_far_off_for_what_is_known() -> None:
    known = math.log(100.0), 100.0
    assert not capacity.has_changed(capacity.UNKNOWN, known)
    assert not capacity.has_changed(known, (math.log(90.0), 1e6))  # sure, but little
    assert not capacity.has_changed(known, (math.log(50.0), 5.0))  # much, but unsure
    assert capacity.has_changed(known, (math.log(50.0), 100.0))
