"""Where a probe goes and what meets it: against a dumb twin, and at the ends."""

from fractions import Fraction
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.policy.queue import HOP, PARK, SERVE, meet, pick_producer, pick_unvisited

LAST_DRAW = 1.0 - 2.0**-53
weights = st.lists(st.integers(0, 8), min_size=1, max_size=9).filter(any)
draws = st.one_of(st.just(0.0), st.just(LAST_DRAW), st.floats(0, 1, exclude_max=True), st.just(0.5))


def twin(shares, draw):
    """The first index at which the running sum exceeds the draw, in exact numbers."""
    target = Fraction(draw) * sum(shares)
    for index, reached in enumerate(accumulate(shares)):
        if target < reached:
            return index
    raise AssertionError("the draw is below 1")


@pytest.mark.parametrize(
    ("buffered", "hops", "max_hops", "action"),
    [
        (1, 1, 1, SERVE),
        (5, 3, 3, SERVE),
        (0, 1, 3, HOP),
        (0, 2, 3, HOP),
        (0, 3, 3, PARK),
        (0, 1, 1, PARK),
    ],
)
def test_what_a_producer_does_with_a_probe(buffered, hops, max_hops, action):
    """An object is handed out whatever the hops; without one, the last hop parks."""
    assert meet(buffered, hops, max_hops) == action


@given(weights, draws)
def test_producers_are_picked_by_their_shares(shares, draw):
    """As the twin does, with any scale; what has no share is never picked."""
    reached = list(accumulate(shares))
    picked = pick_producer(reached, draw)
    assert picked == twin(shares, draw)
    assert shares[picked] > 0
    assert pick_producer([value / 8 for value in reached], draw) == picked


@given(weights, draws, st.data())
def test_visited_producers_are_left_out(shares, draw, data):
    """As the twin does with the shares of visited ones gone; all visited, all count again."""
    visited = data.draw(st.lists(st.booleans(), min_size=len(shares), max_size=len(shares)))
    left = [0 if seen else share for share, seen in zip(shares, visited, strict=True)]
    picked = pick_unvisited(list(accumulate(shares)), visited, draw)
    assert picked == twin(left if any(left) else shares, draw)
