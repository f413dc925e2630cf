"""A measurement of good ends: what counts, and when."""

from __future__ import annotations

from spillover.core.capacity.window import Window


def test_what_was_under_way_before_does_not_count() -> None:
    window = Window()
    window.begin(2, 10.0)
    window.is_full(10.0)
    assert not window.ended(is_good=True, stays_full=True, now_s=11.0)
    assert not window.ended(is_good=True, stays_full=True, now_s=12.0)
    assert (window.done, window.full_s, window.began_s) == (0, 0.0, 12.0)
    assert window.ended(is_good=True, stays_full=True, now_s=14.0)
    assert (window.done, window.full_s) == (1, 2.0)


def test_time_in_which_fewer_run_than_may_does_not_count() -> None:
    window = Window()
    window.begin(0, 0.0)
    window.is_full(0.0)
    window.ended(is_good=True, stays_full=False, now_s=1.0)
    window.ended(is_good=True, stays_full=False, now_s=5.0)  # fewer run: clients say how many
    window.is_full(6.0)
    window.ended(is_good=True, stays_full=True, now_s=6.5)
    assert (window.done, window.full_s) == (2, 1.5)


def test_a_failure_takes_time_and_brings_nothing() -> None:
    window = Window()
    window.begin(0, 0.0)
    window.is_full(0.0)
    assert window.ended(is_good=False, stays_full=True, now_s=1.0)
    assert (window.done, window.full_s) == (0, 1.0)


def test_going_on_keeps_what_has_settled() -> None:
    window = Window()
    window.begin(0, 0.0)
    window.is_full(0.0)
    window.ended(is_good=True, stays_full=True, now_s=1.0)
    window.go_on(1.0)
    assert window.ended(is_good=True, stays_full=True, now_s=1.5)
    assert (window.done, window.full_s) == (1, 0.5)
