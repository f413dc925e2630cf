"""Stories of links that are parted from: what goes on over them, and when they close."""

import pytest

from spillover.core.overflow import events as ev
from spillover.core.overflow.parting import PART_S_MAX, PART_S_MIN
from spillover.model.load import LoadNow
from spillover.model.request import Answer, Outcome

B, C = 0, 1
MANY_S = 100.0


def heard_till(node, until_s, *neighbors, **told):
    """They report all the while, so that none of them falls silent; what the machine says besides
    reports."""
    commands = []
    sequence = int(node.now_s * 4) + 10
    while node.now_s < until_s:
        sequence += 1
        now_s = min(node.now_s + 0.25, until_s)
        commands += node.hear(*neighbors, now_s=now_s, sequence=sequence, **told)
        commands += node.wake(now_s)
    return [one for one in commands if not isinstance(one, ev.Publish)]


def answered(ref, cluster="c"):
    return ev.ForwardAnswered(ref, Answer(Outcome.DONE, ("a", cluster)), 0.0, 0.0)


def test_one_that_is_parted_from_is_given_nothing_and_is_heard(story):
    """It counts for nothing in R, and is still told that it is heard: it may send."""
    node = story()
    node.hear(B, C, near=0.5)
    node.fill(1, 2)
    node.tell(ev.Part(C))
    assert node.machine.neighborhood_accept_probability == 1 - 0.5 * 0.5
    assert node.arrive(3, away=True) == [ev.Accepted(3), node.forward(3, B)]
    node.tell(ev.ForwardRefused(3))
    node.hear(C, sequence=2)
    assert node.arrive(4, away=True) == [ev.Accepted(4), node.forward(4, B)]
    assert node.machine.neighbors.heard_now() == ("b", "c")


def test_no_work_is_asked_for_either_way(story):
    """A question that was under way is none any more; one from there is told that there is none."""
    node = story(policy="adaptive", servers=2)
    node.hear(B, sequence=1, ahead=9, departure_s=0.05)
    node.arrive(1)
    assert node.machine.pulling.coming == 0
    (asked,) = [one for one in node.end(1) if isinstance(one, ev.AskForWork)]
    assert asked.neighbor == B
    node.tell(ev.Part(B))
    assert node.machine.pulling.coming == 0
    node.arrive(2, deadline_s=MANY_S)
    assert not [one for one in node.end(2) if isinstance(one, ev.AskForWork)]
    node.fill(*range(3, 40))
    (none,) = node.tell(ev.WorkAsked(B, LoadNow(1, 5, -9, 0.0, True)))
    assert isinstance(none, ev.NoWork)


def test_it_closes_soon_where_nothing_is_left(story):
    """Not at once: the other end may not have heard of it yet."""
    node = story()
    node.hear(B, C)
    node.tell(ev.Part(C))
    assert heard_till(node, PART_S_MIN - 0.1, B, C) == []
    assert heard_till(node, PART_S_MIN + 0.1, B, C) == [ev.Disconnect(C)]
    assert node.machine.neighbors.ids == ("b",)
    assert heard_till(node, PART_S_MIN + 1.0, B) == []


def test_it_waits_for_what_is_away_there(story):
    """As long as that takes; then it closes."""
    node = story()
    node.hear(B, C)
    node.fill(1, 2)
    node.arrive(3, away=True)
    node.tell(ev.Part(C))
    assert heard_till(node, 30.0, B, C) == []
    (reply,) = node.tell(answered(3))
    assert reply.answer.outcome is Outcome.DONE
    assert heard_till(node, 30.5, B, C) == [ev.Disconnect(C)]


def test_it_waits_for_what_came_from_there(story):
    """Which is taken all the while, and answered."""
    node = story()
    node.hear(B, C)
    node.tell(ev.Part(C))
    accepted, start = node.arrive(1, path=("c",), origin=C, deadline_s=MANY_S)
    assert (accepted, start) == (ev.Accepted(1), node.start(1, 0.0, MANY_S))
    assert heard_till(node, 30.0, B, C) == []
    (reply,) = node.end(1)
    assert (reply.ref, reply.origin) == (1, C)
    assert heard_till(node, 30.5, B, C) == [ev.Disconnect(C)]


def test_it_waits_for_one_that_gives_its_queue_away(story):
    """One that accepts nothing and has a queue; not for one that only has a queue."""
    node = story()
    node.hear(B, C)
    node.tell(ev.Part(C))
    node.tell(ev.Part(B))
    sequence = 1
    while node.now_s < 10.0:
        sequence += 1
        now_s = node.now_s + 0.25
        for neighbor, accepting in ((B, True), (C, False)):
            report = node.report(sequence, accepting=accepting, queue_length=5)
            node.tell(ev.ReportReceived(neighbor, report), now_s)
        node.wake(now_s)
    assert node.machine.neighbors.ids == ("c",)
    assert heard_till(node, 10.5, C, accepting=False) == [ev.Disconnect(C)]


def test_a_minute_is_enough(story):
    """What is away is given up by its link, what came from there is answered all the same."""
    node = story()
    node.hear(B, C)
    node.arrive(1, path=("c",), origin=C, deadline_s=MANY_S)
    node.arrive(2, deadline_s=MANY_S)
    node.arrive(3, away=True, deadline_s=MANY_S)
    node.tell(ev.Part(C))
    heard = heard_till(node, PART_S_MAX - 0.1, B, C)
    assert not [one for one in heard if isinstance(one, ev.Disconnect)]
    assert heard_till(node, PART_S_MAX + 0.1, B, C)[-1] == ev.Disconnect(C)
    assert node.machine.neighbors.ids == ("b",)
    node.draws.coming.append(0.99)
    assert node.tell(ev.ForwardLost(3)) == [node.forward(3, B, MANY_S)]
    reply, *_ = node.end(1)
    assert (reply.ref, reply.origin) == (1, C)


def test_one_that_joins_again_stays(story):
    """Under its handle, over a link of the new delay; what it last told counts at once."""
    node = story()
    node.hear(B, C, near=0.5)
    node.fill(1, 2)
    node.tell(ev.Part(C))
    assert node.tell(ev.Join("c", 0.25)) == []
    known = node.machine.neighbors.knowledge()
    assert (known.handles, known.loads.delays_s) == ((B, C), (0.0, 0.25))
    assert node.arrive(3, away=True) == [ev.Accepted(3), node.forward(3, C)]
    assert heard_till(node, PART_S_MIN + 5.0, B, C) == []
    (refused,) = node.tell(ev.Join("c", 0.25))
    assert isinstance(refused, ev.JoinRefused)


# --- a cluster that is removed --------------------------------------------------------------------


def test_one_that_is_removed_drains_and_then_parts_from_all(story):
    """Its queue goes to its neighbors; what runs, and what is away, ends first."""
    node = story()
    node.hear(B, C)
    node.fill(1, 2)
    node.draws.coming.append(0.99)
    publish, away = node.tell(ev.Removed())
    assert not publish.report.accepting
    assert away == node.forward(2, C)
    assert node.arrive(3) == [ev.Accepted(3), node.forward(3, B)]
    assert heard_till(node, 10.0, B, C) == []
    node.end(1)
    assert heard_till(node, 20.0, B, C) == []
    node.tell(answered(2))
    node.tell(answered(3))
    assert heard_till(node, 20.1, B, C) == [ev.Disconnect(B), ev.Disconnect(C)]
    assert node.machine.drained


# --- other delays ---------------------------------------------------------------------------------


@pytest.mark.parametrize("drains", [True, False])
def test_an_operator_does_not_undo_a_removal_nor_the_other_way(story, drains):
    """Each has its own say."""
    node = story()
    node.tell(ev.Drain() if drains else ev.Resume())
    node.tell(ev.Removed())
    node.tell(ev.Resume())
    assert node.machine.draining
    node.tell(ev.Drain() if drains else ev.Resume())
    node.tell(ev.Restored())
    assert node.machine.draining == drains
    node.tell(ev.Resume())
    assert not node.machine.draining
    assert node.wake(MANY_S) == []


def test_another_delay_counts_at_once(story):
    """What was learned of the way was learned of another one, and silence is judged by the new."""
    node = story(delay_s=0.02)
    node.hear(B, C)
    node.fill(1, 2)
    node.arrive(3, away=True)
    node.tell(ev.ForwardAnswered(3, Answer(Outcome.DONE, ("a", "c")), 0.2, 0.2))
    assert node.machine.neighbors.knowledge().loads.delays_s == (0.02, 0.2)
    assert node.tell(ev.DelayChanged(C, 0.4)) == []
    assert node.machine.neighbors.knowledge().loads.delays_s == (0.02, 0.4)
    node.wake(0.6)
    assert node.machine.neighbors.known == [True, False], "it is to be heard within 0.95 s - 0.4 s"
    assert node.tell(ev.DelayChanged(9, 1.0)) == []
