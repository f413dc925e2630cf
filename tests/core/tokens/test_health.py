"""For how long a server is left alone that fails more than others."""

from __future__ import annotations

import math

from spillover.core.tokens.health import PAUSE_S, PAUSE_S_MAX, ServerHealth


def fails(health: ServerHealth, now_s: float) -> float:
    """Has jobs fail until it is degraded; for how long it is left alone then."""
    while not health.ended(now_s, True, 0.0):
        pass
    health.degrade(now_s)
    return health.again_s - now_s


def test_each_time_for_twice_as_long_until_it_has_proved_itself():
    health = ServerHealth()
    pauses_s = []
    for now_s in range(0, 800, 100):
        pauses_s.append(fails(health, float(now_s)))
        health.retry()
        assert math.isinf(health.again_s)
    assert pauses_s == [min(PAUSE_S * 2**n, PAUSE_S_MAX) for n in range(8)]
    while not health.is_calm:
        health.ended(1000.0, False, 0.0)
    assert fails(health, 1001.0) == PAUSE_S


def test_one_that_is_tried_again_needs_one_more_failure():
    health = ServerHealth()
    fails(health, 0.0)
    health.retry()
    assert health.ended(1.0, True, 0.0)


def test_failures_far_apart_are_forgotten():
    """However many they are: a server is left alone for what fails now."""
    health = ServerHealth()
    for hour in range(100):
        assert not health.ended(3600.0 * hour, True, 0.0)
    assert health.failed_share(3600.0 * 100) < 0.001


def test_where_the_others_fail_too_it_is_not_this_one():
    health = ServerHealth()
    assert not any(health.ended(0.0, True, 0.5) for _ in range(100))
    assert any(health.ended(0.0, True, 0.0) for _ in range(3)), "once they do well, it is"
