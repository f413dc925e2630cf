"""Stories of what waits behind work that takes far longer than usual: it does not wait there until
its deadline where a neighbor can have it done."""

import pytest

from spillover.core.overflow import events as ev

B, C = 0, 1
BUSY = {"ahead": 0, "departure_s": 0.04}
IDLE = {"ahead": -1, "departure_s": 0.04}


@pytest.fixture
def node(story):
    """Cluster a, with one server of 40 ms that was taken at 0 and does not come free, and one
    request with a deadline of 8 s behind it; neighbors b and c are known to be busy, if at all."""

    def make(policy="adaptive", *, heard=(B,), **settings):
        made = story(policy=policy, **settings)
        made.arrive(1)
        made.arrive(2, deadline_s=8.0)
        made.hear(*heard, **BUSY)
        return made

    return make


def handed_on(commands):
    return [(one.ref, one.neighbor) for one in commands if isinstance(one, ev.Forward)]


def at_looks(a):
    """What is handed on at each time that the machine looks again by itself, to a deadline of 8 s;
    b and c say that they live."""
    moved = []
    for now_s in (4.0, 6.0, 7.0, 7.5, 8.0):
        for y in (B, C):
            a.tell(ev.ReportReceived(y, None), now_s - 0.01)
        moved += [(now_s, *one) for one in handed_on(a.wake(now_s))]
    return moved


def test_what_waits_leaves_when_half_of_its_time_is_over(node):
    """Nothing has begun here for as long as it has left. Why, `/explain` says."""
    a = node()
    assert a.machine.register.next_s == 4.0
    assert at_looks(a) == [(4.0, 2, B)]
    notes = [one for one in a.machine.decider.log.tell("r2") if one["event"] == "left_in_time"]
    assert notes == [{"at_ms": 4000.0, "event": "left_in_time", "neighbor": "b"}]


def test_one_that_is_refused_is_looked_at_again(node):
    """Also for the neighbor that refused, if it says by then that it accepts."""
    a = node()
    assert handed_on(a.wake(4.0)) == [(2, B)]
    assert a.tell(ev.ForwardRefused(2), 4.1) == []
    a.tell(ev.ReportReceived(B, None), 5.9)
    assert handed_on(a.wake(6.0)) == [(2, B)]


def test_an_idle_server_is_better_than_a_nearer_neighbor(node):
    a = node(heard=())
    a.machine.neighbors.use_delay(C, 0.5)
    a.hear(B, now_s=3.9, **BUSY)
    a.hear(C, now_s=3.9, **IDLE)
    assert handed_on(a.wake(4.0)) == [(2, C)]


def test_what_will_be_in_time_stays(node):
    """The server has come free a moment ago: two wait before it."""
    a = node()
    a.arrive(3, deadline_s=100.0)
    a.arrive(4, deadline_s=8.0)
    a.tell(ev.ReportReceived(B, None), 3.9)
    a.end(1, 3.9, service_s=0.04)
    assert handed_on(a.wake(4.0)) == []


@pytest.mark.parametrize(("there", "moved"), [(BUSY, []), (IDLE, [(200, B)])])
def test_a_line_that_moves_is_left_for_an_idle_server_alone(story, there, moved):
    """110 services of 40 ms are more than the four seconds that are left, and were less than the
    eight that it came with."""
    a = story(policy="adaptive")
    a.fill(*range(110))
    a.arrive(200, deadline_s=8.0)
    a.end(0, 3.9, service_s=0.04)
    a.hear(B, now_s=3.95, **there)
    assert handed_on(a.wake(4.0)) == moved


def test_nobody_goes_where_it_would_be_late_too(node):
    """Neighbor b has to do for longer than it has left."""
    a = node(heard=())
    a.hear(B, now_s=3.9, ahead=200, departure_s=0.04)
    assert handed_on(a.wake(4.0)) == []


def test_other_policies_never_look_again(node):
    a = node("paper")
    assert a.machine.register.next_s == 8.0
    assert at_looks(a) == []


def test_what_comes_goes_to_an_idle_server_once_nothing_has_begun_for_long(node):
    """The way of 200 ms is longer than the two services of 40 ms before it, until nothing has begun
    for eight of them. Then the oldest goes."""
    a = node(heard=())
    a.machine.neighbors.use_delay(B, 0.2)
    a.hear(B, now_s=0.3, **IDLE)
    assert handed_on(a.arrive(3, 0.31)) == []
    assert handed_on(a.arrive(4, 0.33)) == [(2, B)]


def test_what_comes_goes_to_a_shorter_line_where_no_server_is_idle(node):
    """Its servers may be taken for as long, but it may have neighbors that are idle. A line that is
    no shorter is no better."""
    a = node(heard=())
    a.machine.neighbors.use_delay(B, 0.2)
    a.hear(B, now_s=0.3, **BUSY)
    assert handed_on(a.arrive(3, 0.31)) == []
    assert handed_on(a.arrive(4, 0.33)) == [(2, B)]
    assert handed_on(a.arrive(5, 0.34)) == [(3, B)]
    assert handed_on(a.arrive(6, 0.35)) == []
