"""How fast clients are let in: beside a bucket that is filled drop by drop, in whole numbers."""

from __future__ import annotations

from random import Random

import pytest

from spillover.core.membership.letting_in import LettingIn

DROPS = 1000
"""In a token. Times are in thousandths of a second, so that a token a second is a drop in each."""


@pytest.mark.parametrize("seed", range(2))
def test_any_history_is_that_of_drops(seed: int) -> None:
    random = Random(seed)
    rate, burst = random.choice([1, 5, 50]), random.choice([1, 3, 20])
    letting_in = LettingIn(rate, burst, 100)
    drops, now_ms = burst * DROPS, 0
    for _ in range(300):
        for _ in range(passed_ms := random.choice([0, 1, 7, 300, 2000])):
            drops = min(burst * DROPS, drops + rate)
        now_ms += passed_ms
        again_s = letting_in.ask(now_ms / 1e3)
        if drops >= DROPS:
            drops -= DROPS
            assert again_s is None
        else:
            assert again_s == pytest.approx((DROPS - drops) / DROPS / rate)


def test_who_comes_again_when_told_to_is_let_in() -> None:
    letting_in = LettingIn(4.0, 1, 100)
    assert letting_in.ask(10.0) is None
    again_s = letting_in.ask(10.1)
    assert again_s == pytest.approx(0.15)
    assert letting_in.ask(10.1 + again_s + 1e-9) is None


def test_other_limits_hold_from_now_on() -> None:
    letting_in = LettingIn(1.0, 10, 100)
    letting_in.change(2.0, 3, 50)
    assert [letting_in.ask(5.0) for _ in range(4)] == [None, None, None, 0.5]
    assert letting_in.most == 50
