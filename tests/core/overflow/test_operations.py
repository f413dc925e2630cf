"""Stories of drains, of what a cluster tells its neighbors, and of silence."""

from itertools import pairwise

import pytest

from spillover.core.overflow import events as ev
from spillover.model.load import LoadReport
from spillover.model.request import Answer, Outcome, Refusal


def test_a_drain_hands_the_queue_to_neighbors_that_accept(story):
    """In order of arrival, with the wait so far on each; what runs is finished here."""
    node = story()
    node.fill(1, 2, 3)
    node.hear(0, 1)
    node.draws.coming.extend([0.25, 0.75])
    assert node.tell(ev.Drain(), 0.5)[1:] == [node.forward(2, 0), node.forward(3, 1)]
    assert node.ledger == {"home.accepted": 3, "home.running": 1, "home.away": 2}
    answer = Answer(Outcome.DONE, ("a", "b"))
    (reply,) = node.tell(ev.ForwardAnswered(2, answer, 0.0, 0.0), 1.0)
    assert reply.answer.queued_s == 0.5


def test_a_drain_without_neighbors_finishes_the_queue_here(story):
    """Nobody is known: what was accepted is served, nothing new is taken."""
    node = story()
    node.fill(1, 2)
    assert node.tell(ev.Drain())[1:] == []
    assert node.arrive(3) == [ev.Refuse(3, ev.HOME, Refusal.DRAINING, 2 * 0.04)]
    assert node.arrive(4, path=("b",)) == [ev.Refuse(4, 0, Refusal.DRAINING, 2 * 0.04)]
    assert (node.machine.draining, node.machine.drained) == (True, False)
    assert node.end(1, 1.0)[1] == node.start(2, 1.0)
    assert not node.machine.drained
    node.end(2, 2.0)
    assert node.machine.drained
    assert node.ledger == {"home.accepted": 2, "home.done": 2}


def test_what_clients_send_during_a_drain_goes_to_neighbors_before_it_is_refused(story):
    """Although a server is free here. Neighbors themselves are refused: they decide again."""
    node = story()
    node.hear(0)
    node.tell(ev.Drain())
    assert node.arrive(1) == [ev.Accepted(1), node.forward(1, 0)]
    assert not node.machine.drained
    node.tell(ev.ForwardAnswered(1, Answer(Outcome.DONE, ()), 0.0, 0.0))
    assert node.machine.drained
    node.hear(0, sequence=2, accepting=False)
    for ref, path in ((2, ()), (3, ("b",))):
        (refused,) = node.arrive(ref, path=path)
        assert refused.reason is Refusal.DRAINING
        assert refused.retry_after_s > 0.0


def test_a_lame_duck_serves_its_clients_as_ever_and_is_idle_to_nobody(story):
    """Until it is over: then the queue goes to neighbors."""
    node = story()
    node.hear(0)
    (publish,) = node.tell(ev.Drain(5.0))
    assert not publish.report.accepting
    assert node.arrive(1, 1.0) == [ev.Accepted(1), node.start(1, 1.0)]
    assert node.arrive(2, path=("b",)) == [ev.Refuse(2, 0, Refusal.DRAINING, 0.04)]
    assert node.arrive(3) == [ev.Accepted(3)]
    assert node.hear(0, now_s=2.0, sequence=2) == []
    assert (node.machine.lame_duck, node.machine.draining, node.machine.drained) == (1, 1, 0)
    node.hear(0, now_s=4.9, sequence=3)
    assert node.machine.next_deadline() <= 5.0
    assert node.wake(5.0) == [node.forward(3, 0)]
    assert (node.machine.lame_duck, node.machine.draining) == (False, True)


@pytest.mark.parametrize(("second", "over_s"), [(ev.Drain(9.0), 5.0), (ev.Drain(0.0), 1.0)])
def test_a_lame_duck_is_cut_short_and_not_prolonged(story, second, over_s):
    """Nor does one begin within a drain. After a resume there is another one."""
    node = story(neighbors=())
    node.tell(ev.Drain(5.0), 0.0)
    node.tell(second, 1.0)
    assert node.machine.lame_duck == (over_s > 1.0)
    node.wake(over_s)
    assert node.machine.drained
    node.tell(ev.Drain(5.0))
    assert node.machine.drained
    node.tell(ev.Resume())
    node.tell(ev.Drain(5.0))
    assert node.machine.lame_duck
    node.tell(ev.Resume())
    assert (node.machine.lame_duck, node.machine.draining) == (False, False)


LEAVING = [ev.Drain, ev.ServersDown]


def queue_at_one_that_leaves(story, event, waiting, **settings):
    """One runs, and nobody took what waits when all was to leave; then b is heard of."""
    node = story(**settings)
    node.fill(*range(waiting + 1))
    node.tell(event())
    return node


@pytest.mark.parametrize("event", LEAVING)
def test_each_answer_of_a_neighbor_brings_the_next_request(story, event):
    """One report of b is enough: sixteen go there, and one more for each that comes back."""
    node = queue_at_one_that_leaves(story, event, waiting=40)
    node.hear(0)
    assert (node.machine.register.away, node.machine.queue_length) == (16, 24)
    for ref in range(1, 25):
        reply, forward = node.tell(ev.ForwardAnswered(ref, Answer(Outcome.DONE, ("a", "b")), 0, 0))
        assert isinstance(reply, ev.Reply)
        assert forward == node.forward(ref + 16, 0)
    assert node.machine.queue_length == 0
    answered = node.tell(ev.ForwardAnswered(25, Answer(Outcome.DONE, ("a", "b")), 0, 0))
    assert [type(command) for command in answered] == [ev.Reply]


def went(commands):
    return [(c.ref, c.neighbor) for c in commands if isinstance(c, ev.Forward)]


@pytest.mark.parametrize("event", LEAVING)
def test_what_was_lost_at_a_neighbor_goes_there_again_ever_more_rarely(story, event):
    """It may have run there each time. Without a pause that would be with each of its reports. One
    that drains can have it done here, too: it tries a neighbor that lost four as any such."""
    node = queue_at_one_that_leaves(story, event, waiting=1, neighbors=("b",))
    went_s = []
    for number in range(1, 401):
        now_s = number / 20
        if went(node.hear(0, now_s=now_s, sequence=number)):
            went_s.append(now_s)
            assert went(node.tell(ev.ForwardLost(1))) == []
    pauses_s = [later - before for before, later in pairwise(went_s)]
    last_s = [5.0, 5.0, 5.0] if event is ev.Drain else [0.8, 1.6, 3.2, 5.0, 5.0]
    assert pauses_s == pytest.approx([0.1, 0.2, 0.4, *last_s], abs=0.051)


@pytest.mark.parametrize("event", LEAVING)
def test_what_was_lost_goes_to_another_neighbor_at_once(story, event):
    node = queue_at_one_that_leaves(story, event, waiting=1)
    assert went(node.hear(0)) == [(1, 0)]
    assert went(node.tell(ev.ForwardLost(1))) == []
    assert went(node.hear(0, now_s=0.05, sequence=2)) == []
    assert went(node.hear(1, now_s=0.05)) == [(1, 1)]


def test_what_came_from_a_neighbor_does_not_stand_in_the_way(story):
    """It cannot go back there; what waits behind it can go."""
    node = story(neighbors=("b",))
    node.fill(0)
    for ref in range(1, 31):
        node.arrive(ref, path=("b",) if ref <= 20 else ())
    node.tell(ev.Drain())
    node.hear(0)
    assert (node.machine.register.away, node.machine.queue_length) == (10, 20)


def test_what_surely_never_ran(story):
    """What waits, also after a refusal; not what runs, is away, has ended, or was lost once."""
    node = story()
    node.hear(0, 1)
    node.fill(1, 2, 3)
    node.arrive(4, away=True)
    node.arrive(5, away=True)
    node.draws.coming.append(0.0)
    node.tell(ev.ForwardRefused(5))
    node.arrive(6, away=True)
    node.tell(ev.ForwardLost(6))
    node.tell(ev.Cancelled(3))
    states = {ref: visit.state for ref, visit in node.machine.register.visits.items()}
    assert states == {1: "running", 2: "queued", 4: "away", 5: "queued", 6: "queued"}
    assert [ref for ref in range(8) if node.machine.surely_never_ran(ref)] == [2, 5]
    node.hear(0, 1, sequence=2, accepting=False)
    node.tell(ev.Drain())
    node.hear(0, sequence=3)
    assert node.machine.register.visits[6].state == "away", "asked again, and refused by all"
    for ref in (2, 5, 6):
        node.tell(ev.ForwardRefused(ref))
    assert [ref for ref in range(8) if node.machine.surely_never_ran(ref)] == [2, 5]
    node.tell(ev.Cancelled(6))
    assert not node.machine._doubtful, "nothing is remembered of what has ended"


def test_reports_tell_p_and_r_and_whether_to_come(story):
    """One server, one waiting, b at 1/2: P = 1/2, R = 3/4. While draining P is 0."""
    node = story(epoch=7)
    node.fill(1, 2)
    node.hear(0, near=0.5)  # who hears a neighbor for the first time says so: the first report
    (publish,) = node.tell(ev.TimerFired(), 0.0)
    told = {"ahead": 1, "load": publish.report.load, "departure_s": 0.04, "residual": 0.5}
    assert publish.report == LoadReport(7, 2, 0.5, 0.75, 1, 1, accepting=True, hears=("b",), **told)
    at_once, _handed_on = node.tell(ev.Drain(), 0.01)
    (in_its_turn,) = node.tell(ev.TimerFired(), 0.05)
    for number, publish in ((3, at_once), (4, in_its_turn)):
        assert publish.report.accept_probability == 0.0
        assert publish.report.neighborhood_accept_probability == 0.5
        assert (publish.report.sequence, publish.report.accepting) == (number, False)
    (resumed,) = node.tell(ev.Resume(), 0.06)
    assert (resumed.report.sequence, resumed.report.accepting) == (5, True)


def test_who_begins_to_listen_is_told_at_once(story):
    """Reports are 10 s apart: a neighbor that has just come must not know nothing for so long."""
    node = story(gossip_period_s=10.0)
    node.tell(ev.TimerFired(), 0.0)
    (publish,) = node.tell(ev.ReportAsked(), 1.0)
    assert (publish.report.sequence, publish.report.accepting) == (2, True)


def test_between_rare_reports_there_are_signs_of_life(story):
    """A report each 10 s, a beat each 250 ms; the alarm is always set for the next of them."""
    node = story(gossip_period_s=10.0)
    told = []
    while node.now_s < 20.0:
        told += [
            type(command) for command in node.tell(ev.TimerFired(), node.machine.next_deadline())
        ]
    assert told.count(ev.Publish) == 3
    assert told.count(ev.Heartbeat) == 80


def test_the_alarm_finds_out_who_fell_silent(story):
    """Neighbor b reports at 0, c goes on: at 0.95 b is unknown and no more is sent there."""
    node = story()
    node.hear(0, 1)
    node.hear(1, now_s=0.5, sequence=2)
    node.wake(0.95)
    assert node.machine.neighbors.known == [False, True]
    node.fill(1, 2)
    node.draws.coming.append(0.6)
    assert node.arrive(3)[1] == node.forward(3, 1)
