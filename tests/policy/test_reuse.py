"""When connections are used again, and for how long they may be idle."""

from hypothesis import given
from hypothesis import strategies as st

from spillover.policy.reuse import (
    IDLE_KNOWN_S,
    KEPT_IN_A_ROW,
    KEPT_IN_A_ROW_MAX,
    MARGIN,
    REST_MAX_S,
    REST_S,
    RESTING_MAX,
    SOON_S,
    IdleLimit,
    Reuse,
)


def keep(reuse, times):
    for _ in range(times):
        reuse.kept(reuse.closings, 0.0)


def test_a_server_is_trusted_once_it_has_kept_enough_in_a_row():
    reuse = Reuse(is_trusted=False)
    keep(reuse, KEPT_IN_A_ROW - 1)
    assert (reuse.is_trusted, reuse.wanted) == (False, 1)
    keep(reuse, 1)
    assert reuse.is_trusted
    for enough, now_s in ((4, 0.0), (16, 0.0), (4, SOON_S)):
        reuse.closed(0.0, now_s)
        assert not reuse.is_trusted
        keep(reuse, enough * KEPT_IN_A_ROW - 1)
        assert not reuse.is_trusted, "who closed one has to keep more"
        keep(reuse, 1)
        assert reuse.is_trusted


def test_those_that_rest_beside_one_that_is_closed_do_not_count():
    """Else whoever closes each second one would be trusted for the others."""
    reuse = Reuse(is_trusted=False)
    began = reuse.closings
    reuse.closed(0.001, 0.0)
    for _ in range(1000):
        reuse.kept(began, 0.0)
    assert not reuse.is_trusted


def test_who_is_slow_to_close_is_waited_for_up_to_a_limit():
    reuse = Reuse(is_trusted=True)
    for after_s, rest_s in ((0.0, REST_S), (0.1, 0.4), (0.001, 0.4), (0.2, REST_MAX_S)):
        reuse.closed(after_s, 0.0)
        assert reuse.rest_s == rest_s
    while not reuse.is_trusted:
        keep(reuse, 1)
    reuse.closed(0.0, 0.0)
    assert reuse.rest_s == REST_S, "that was long ago"


@given(st.booleans(), st.lists(st.booleans(), max_size=4000))
def test_what_is_wanted_is_bounded_and_enough_is_always_enough(trusted, kept):
    reuse = Reuse(is_trusted=trusted)
    for one in kept:
        if one:
            keep(reuse, 1)
        else:
            reuse.closed(0.0, 0.0)
        assert reuse.is_trusted or 1 <= reuse.wanted <= RESTING_MAX
    keep(reuse, KEPT_IN_A_ROW_MAX)
    assert reuse.is_trusted


def test_idle_connections_end_before_the_server_ends_them():
    """What it says holds for good; what was seen of it, for a while: it may have been a restart."""
    limit = IdleLimit(1.5)
    limit.said(75.0)
    assert limit.limit_s == 1.5
    limit.said(2.0)
    assert limit.limit_s == 2.0 * MARGIN
    limit.closed(0.5, now_s=100.0)
    limit.look(100.0 + IDLE_KNOWN_S - 1.0)
    assert limit.limit_s == 0.5 * MARGIN
    limit.look(100.0 + IDLE_KNOWN_S)
    assert limit.limit_s == 2.0 * MARGIN
