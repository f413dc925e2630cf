"""When a server counts as down: after how many attempts that were not answered, or were refused."""

from hypothesis import given
from hypothesis import strategies as st

from spillover.policy.reach import LIVELY_S, REFUSING_S, SILENT_S, Reach


def attempts_until_down(reach, from_s, each_s=1.0):
    """When it counts as down if each attempt takes so long and comes to nothing."""
    now_s = from_s
    while True:
        began_s, now_s = now_s, now_s + each_s
        if reach.not_in_time(began_s, now_s):
            return now_s


def test_one_packet_that_is_lost_says_nothing():
    assert attempts_until_down(Reach(), 1000.0) == 1000.0 + SILENT_S


@given(st.lists(st.tuples(st.booleans(), st.floats(0.0, SILENT_S / 2)), max_size=50))
def test_who_answers_now_and_then_is_not_down(happens):
    """Whatever attempts come to nothing meanwhile."""
    reach, now_s = Reach(), 1000.0
    for answers, later_s in happens:
        began_s, now_s = now_s, now_s + later_s
        if answers or now_s - reach.alive_s > SILENT_S / 2:
            reach.alive_s = now_s
        assert not reach.not_in_time(began_s, now_s)


def test_a_refusal_is_believed_at_once_unless_others_are_answered():
    reach = Reach()
    assert reach.refused(0.0, 1000.0, is_busy=False)
    reach.alive_s = 1000.0
    assert not reach.refused(0.0, 1000.0, is_busy=False)
    assert reach.refused(0.0, 1000.0 + LIVELY_S, is_busy=False)
    assert not reach.refused(0.0, 1000.0 + LIVELY_S, is_busy=True)


def test_who_only_answers_what_it_has_and_takes_nothing_new_is_down_after_a_while():
    """As a server does that ends; but not where a connection was opened meanwhile."""
    reach = Reach()
    assert not reach.refused(0.0, 1000.0, is_busy=True)
    assert not reach.refused(0.0, 1000.0 + REFUSING_S / 2, is_busy=True)
    assert reach.refused(0.0, 1000.0 + REFUSING_S, is_busy=True)
    assert not reach.refused(1000.0 + REFUSING_S, 1001.0 + REFUSING_S, is_busy=True)


def test_what_was_known_before_it_was_down_is_old():
    reach = Reach()
    attempts_until_down(reach, 1000.0)
    reach.forget()
    assert attempts_until_down(reach, 2000.0) == 2000.0 + SILENT_S
