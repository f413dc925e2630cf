"""Nodes that die again and again: when they are started, and when no more."""

from itertools import pairwise

from spillover.testbed.revival import DELAYS_S, WELL_AFTER_S, Revival


def test_each_start_waits_longer_and_one_is_the_last():
    dying = Revival()
    waits = [dying.delay_s(0.5) for _ in range(len(DELAYS_S) + 2)]
    assert waits == [*DELAYS_S, None, None]
    assert all(0 < one < other for one, other in pairwise(DELAYS_S))


def test_who_was_well_begins_anew():
    dying = Revival()
    assert [dying.delay_s(1.0), dying.delay_s(1.0)] == [*DELAYS_S[:2]]
    assert dying.delay_s(WELL_AFTER_S) == DELAYS_S[0]
    assert dying.delay_s(1.0) == DELAYS_S[1]
    dying.forget()
    assert dying.delay_s(1.0) == DELAYS_S[0]
