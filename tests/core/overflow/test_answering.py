"""Answers that begin before they end: from then on nothing is decided about them."""

import pytest

from spillover.core.overflow import events as ev
from spillover.model.causes import Cause
from spillover.model.load import LoadReport
from spillover.model.request import DONE, FAILED, Answer, Outcome

THERE = ev.SoFar(("a", "b"), 0.5, 0.25, 0.125)


def began(story, ref, now_s=None, **told):
    return story.tell(ev.ResponseBegan(ref, **told), now_s)


def away(story, *, keyed=True, **told):
    """A story in which request 2 is away to b, and its answer has begun."""
    one = story(queue_limit=0, **told)
    one.hear(0)
    one.arrive(1)
    one.arrive(2, away=True, keyed=keyed)
    assert one.ledger["home.away"] == 1
    began(one, 2, so_far=THERE, leg_s=0.1)
    return one


def only(commands, kind):
    (command,) = [one for one in commands if isinstance(one, kind)]
    return command


def test_it_is_told_what_it_took_until_then(story):
    one = story()
    one.arrive(1, now_s=1.0)
    [command] = began(one, 1, now_s=1.5, service_s=0.5)
    assert command == ev.Began(1, ev.HOME, ev.SoFar(("a",), 0.0, 0.0, 0.5))
    assert began(one, 1) == []
    one = story(queue_limit=0)
    one.hear(0)
    one.arrive(1)
    one.arrive(2, away=True)
    [command] = began(one, 2, now_s=1.0, so_far=THERE, leg_s=0.1)
    assert command == ev.Began(2, ev.HOME, ev.SoFar(("a", "b"), 0.5, pytest.approx(0.35), 0.125))


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("event", [ev.ForwardLost(2), ev.ForwardRefused(2)])
def test_what_breaks_off_has_failed_and_is_not_tried_again(story, keyed, event):
    one = away(story, keyed=keyed)
    [reply] = one.tell(event, 0.75)
    assert reply.answer.network_s == pytest.approx(0.75), "whoever waited for it sees where"
    assert (reply.ref, reply.answer.outcome) == (2, FAILED)
    assert reply.answer.problem == "the answer broke off after it had begun: cluster b was lost"
    assert one.machine.truncated == 1
    assert one.ledger == {"home.accepted": 2, "home.running": 1, "home.failed": 1}


def test_what_breaks_off_at_a_neighbor_has_failed_for_the_cause_that_the_neighbor_tells(story):
    """Over any number of hops in the words of where it broke."""
    one = away(story)
    broke_off = "the answer broke off after it had begun: "
    problem = f"{broke_off}at cluster c: the service was silent"
    [reply] = one.tell(ev.ForwardLost(2, Cause.TIMEOUT, problem), 0.75)
    told = f"{broke_off}at cluster b: at cluster c: the service was silent"
    assert (reply.answer.cause, reply.answer.problem) == (Cause.TIMEOUT, told)


def test_a_neighbor_that_ends_is_not_this_node_that_ends(story):
    one = away(story)
    [reply] = one.tell(ev.ForwardLost(2, Cause.NODE, "the node ended"), 0.75)
    problem = "the answer broke off after it had begun: at cluster b: the node ended"
    assert (reply.answer.cause, reply.answer.problem) == (Cause.NEIGHBOR, problem)


def test_what_surely_was_not_done_was_when_its_answer_had_begun(story):
    one = story()
    one.fill(1, 2)
    began(one, 1)
    commands = one.tell(ev.NotStarted(1, "upstream closed", True, 0.1))
    reply = only(commands, ev.Reply)
    assert (reply.ref, reply.answer.outcome) == (1, FAILED)
    assert reply.answer.problem == "the answer broke off after it had begun: upstream closed"
    assert one.machine.truncated == 1


@pytest.mark.parametrize("kind", [ev.Cancelled, ev.CancelAsked])
def test_a_cancel_stops_or_recalls_it_at_once(story, kind):
    """Whoever asks need not wait for what came of it: it surely ran."""
    one = story()
    one.arrive(1)
    began(one, 1)
    stop, reply = one.tell(kind(1))
    assert (stop, reply.answer.outcome) == (ev.Stop(1), Outcome.CANCELLED)
    assert one.machine.servers.busy == 1
    one.end(1, outcome=Outcome.CANCELLED)
    assert (one.machine.servers.busy, one.machine.truncated) == (0, 0)
    one = away(story)
    recall, reply = one.tell(kind(2))
    assert (recall, reply.answer.outcome) == (ev.Recall(2, 0), Outcome.CANCELLED)
    assert one.machine.truncated == 0


def test_its_end_counts_all_of_it(story):
    one = away(story)
    answer = Answer(DONE, ("a", "b"), None, None, 0.5, 0.25, 9.0)
    reply = only(one.tell(ev.ForwardAnswered(2, answer, 0.1, 0.1)), ev.Reply)
    told = reply.answer
    assert (told.queued_s, told.network_s, told.service_s) == (0.5, pytest.approx(0.35), 9.0)


def test_what_was_asked_is_not_held_for_as_long_as_the_answer_takes(story):
    one = story(held_limit_bytes=800)
    one.arrive(1, size_bytes=600)
    refusal = only(one.arrive(2, size_bytes=600), ev.Refuse)
    assert refusal.reason.value == "memory_full"
    began(one, 1)
    assert one.machine.held.request_bytes == 0
    assert only(one.arrive(3, size_bytes=600), ev.Accepted).ref == 3
    assert one.requests[1].work is None


def test_the_story_tells_when_it_began(story):
    one = away(story)
    one.tell(ev.ForwardLost(2))
    events = [told["event"] for told in one.machine.decider.log.tell("r2")]
    assert events[-3:] == ["answer_began", "lost_at", "ended"]


@pytest.mark.parametrize("here", [True, False])
@pytest.mark.parametrize("there", [True, False])
def test_requests_pass_only_where_they_pass(story, here, there):
    """A neighbor that is unlike accepts nothing, whatever it says, and is asked for nothing."""
    one = story(passes=here, policy="adaptive")
    report = LoadReport(1, 1, 1.0, 1.0, 9, 1, True, ("a",), ahead=9, departure_s=1.0, passes=there)
    one.tell(ev.ReportReceived(0, report))
    assert one.machine.neighbors.accepting == [here is there, False]
    asked = [c for c in one.wake(0.3) if isinstance(c, ev.AskForWork)]
    assert bool(asked) == (here is there)
    publish = only(one.tell(ev.ReportAsked()), ev.Publish)
    assert publish.report.passes is here
