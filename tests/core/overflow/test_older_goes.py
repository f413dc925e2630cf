"""Stories of a cluster that goes by load and hands on: what comes does not overtake what waits."""

import pytest

from spillover.core.overflow import events as ev

B, C = 0, 1
IDLE = {"ahead": -1, "departure_s": 0.04}


@pytest.fixture
def node(story):
    """Cluster a, with one server of 40 ms, and neighbors b and c at no distance."""

    def make(**settings):
        return story(**{"policy": "adaptive", **settings})

    return make


def handed_on(commands):
    return [(one.ref, one.neighbor) for one in commands if isinstance(one, ev.Forward)]


def started(commands):
    return [one.ref for one in commands if isinstance(one, ev.Start)]


def test_the_oldest_goes_and_what_comes_takes_a_place(node):
    a = node()
    a.fill(1, 2, 3)
    a.hear(B, **IDLE)
    assert handed_on(a.arrive(4, 0.01)) == [(2, B)]
    assert a.ledger == {"home.accepted": 4, "home.running": 1, "home.queued": 2, "home.away": 1}
    assert started(a.end(1)) == [3]
    assert started(a.end(3)) == [4]


def test_both_are_told_what_happened(node):
    """The policy's choice is on record with the new one, and where the old one is with that."""
    a = node()
    a.fill(1, 2, 3)
    a.hear(B, **IDLE)
    a.arrive(4, 0.01)
    log = a.machine.decider.log
    (new,) = log.tell("r4")
    assert (new["outcome"], new["neighbor"], new["older_went_to"]) == ("kept", None, "b")
    kept, went = log.tell("r2")
    assert (kept["outcome"], "older_went_to" in kept) == ("kept", False)
    assert went == {"at_ms": 10.0, "event": "went_first", "neighbor": "b"}


def test_only_what_is_better_off_there_goes(node):
    """A way of three services: what stands fourth or later. Nothing does: then the new one goes."""
    a = node(delay_s=0.1)
    a.fill(1, 2, 3, 4, 5, 6)
    a.hear(B, **IDLE)
    assert handed_on(a.arrive(7, 0.01)) == [(5, B)]
    b = node(delay_s=0.1)
    b.fill(1, 2, 3, 4)
    b.hear(B, **IDLE)
    assert handed_on(b.arrive(5, 0.01)) == [(5, B)]


def test_what_a_neighbor_has_sent_stays_and_what_was_there_or_would_be_late_too(node):
    """The first is a neighbor's, the second b has refused, the third has no time left."""
    a = node()
    a.fill(1)
    a.arrive(2, path=("x",), origin=C)
    a.arrive(3)
    a.hear(B, **IDLE)
    assert handed_on(a.arrive(4, 0.01)) == [(3, B)]
    a.tell(ev.ForwardRefused(3), 0.02)
    a.arrive(5, deadline_s=0.021)
    a.hear(B, sequence=2, **IDLE)
    assert handed_on(a.arrive(6, 0.0209)) == [(4, B)]


def test_what_is_refused_takes_its_place_back(node):
    """Without another decision, before those that came later. It is not handed there again."""
    a = node()
    a.fill(1, 2, 3)
    a.hear(B, **IDLE)
    assert handed_on(a.arrive(4, 0.01)) == [(2, B)]
    assert a.tell(ev.ForwardRefused(2), 0.02) == []
    events = [one["event"] for one in a.machine.decider.log.tell("r2")]
    assert events == ["decided", "went_first", "refused_by", "decided"]
    assert handed_on(a.arrive(5, 0.03)) == [(3, B)]
    assert started(a.end(1)) == [2]


@pytest.mark.parametrize("limits", [{"queue_limit": 2}, {}])
def test_no_limit_of_the_queue_end_keeps_it_from_its_place(node, limits):
    """Of two places both are taken; or who joins the end now would be too late."""
    a = node(**limits)
    a.fill(1)
    a.arrive(2, deadline_s=0.1)
    a.hear(B, **IDLE)
    assert handed_on(a.arrive(3, 0.01)) == [(2, B)]
    a.hear(B, sequence=2, accepting=False, **IDLE)
    a.arrive(4)
    assert a.tell(ev.ForwardRefused(2), 0.02) == []
    assert started(a.end(1)) == [2]


def test_at_a_drain_it_is_offered_again(node):
    """Whatever it has waited: all is to leave."""
    a = node()
    a.fill(1, 2, 3)
    a.hear(B, **IDLE)
    a.arrive(4, 0.01)
    a.hear(C, **IDLE)
    a.tell(ev.Drain())
    assert handed_on(a.tell(ev.ForwardRefused(2), 0.02)) == [(2, C)]
