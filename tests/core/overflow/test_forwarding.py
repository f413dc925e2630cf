"""Stories of requests that leave: decisions, relays, refusals, losses and recalls."""

import pytest

from spillover.core.overflow import events as ev
from spillover.model.request import Answer, Outcome, Refusal


def test_a_draw_below_p_keeps_and_one_above_forwards(story):
    """One server, one waiting: P = 1/2. Two idle neighbors share the other half evenly."""
    node = story()
    node.hear(0, 1)
    node.fill(1, 2)
    node.draws.coming.extend([0.5, 0.8, 0.4])
    assert node.arrive(3) == [ev.Accepted(3), node.forward(3, 0)]
    assert node.arrive(4) == [ev.Accepted(4), node.forward(4, 1)]
    assert node.arrive(5) == [ev.Accepted(5)]
    assert node.ledger == {
        "home.accepted": 5,
        "home.running": 1,
        "home.queued": 2,
        "home.away": 2,
    }


def test_an_answer_comes_home_with_all_that_it_cost(story):
    """The way there counts into the system time, the way back stands apart."""
    node = story()
    node.hear(0, 1)
    node.fill(1, 2)
    node.arrive(3, away=True)
    there = Answer(Outcome.DONE, ("a", "c"), "result", queued_s=0.5, network_s=0.125, service_s=1.0)
    (reply,) = node.tell(ev.ForwardAnswered(3, there, 0.25, 0.375), 4.0)
    assert reply == ev.Reply(
        3,
        ev.HOME,
        Answer(
            Outcome.DONE,
            ("a", "c"),
            "result",
            queued_s=0.5,
            network_s=0.375,
            service_s=1.0,
            return_s=0.375,
        ),
        0.0,
    )
    assert reply.answer.total_s == 1.875
    assert node.ledger["home.done"] == 1


def test_what_it_took_to_open_a_connection_is_no_way(story):
    """It counts for the request, but not for the next one, which finds one open."""

    def told(*legs_s):
        node = story()
        node.hear(0, 1)
        node.fill(1, 2)
        node.arrive(3, away=True)
        (reply,) = node.tell(ev.ForwardAnswered(3, Answer(Outcome.DONE, ("a", "c")), *legs_s), 4.0)
        return reply.answer.network_s, node.machine.neighbors.by_handle[1].way_s

    assert told(0.5, 0.125, 0.25) == (0.5, 0.25)
    assert told(0.25, 0.125) == (0.25, 0.25)


def test_a_foreign_request_is_relayed_onward_and_its_answer_passed_back(story):
    """From b through a to c: the path grows, b is not asked again, b gets the answer."""
    node = story()
    node.hear(0, 1)
    node.fill(1, 2)
    commands = node.arrive(3, away=True, path=("x", "b"))
    assert commands == [ev.Accepted(3), node.forward(3, 1)]
    assert commands[1].request.path == ("x", "b", "a")
    assert node.ledger["foreign.handed_on"] == 1
    there = Answer(Outcome.DONE, ("x", "b", "a", "c"), 7, network_s=0.25, return_s=0.125)
    (reply,) = node.tell(ev.ForwardAnswered(3, there, 0.5, 0.5), 4.0)
    assert (reply.ref, reply.origin) == (3, 0)
    assert (reply.answer.network_s, reply.answer.return_s) == (0.75, 0.625)
    assert node.ledger["foreign.answered"] == node.ledger["foreign.received"] == 1


def test_a_refused_forward_is_decided_again_without_that_neighbor(story):
    """First c is full, then b is: each is asked once, then the request joins the own queue. The
    time lost on the ways counts as network."""
    node = story()
    node.hear(0, 1)
    node.fill(1, 2)
    assert node.arrive(3, 1.0, away=True)[1] == node.forward(3, 1)
    node.draws.coming.append(0.99)
    assert node.tell(ev.ForwardRefused(3), 1.25) == [node.forward(3, 0)]
    node.draws.coming.append(0.99)
    assert node.tell(ev.ForwardRefused(3), 1.75) == []
    assert node.machine.queue_length == 2
    node.end(1, 2.0)
    assert node.end(2, 3.0)[1] == node.start(3, 3.0)
    (reply,) = node.end(3, 4.0, service_s=1.0)
    assert reply.answer == Answer(
        Outcome.DONE, ("a",), queued_s=1.25, network_s=0.75, service_s=1.0
    )


def test_a_keyed_request_whose_neighbor_dies_is_decided_again(story):
    """The client gave it a key, so running it twice is allowed."""
    node = story()
    node.hear(0, 1)
    node.fill(1, 2)
    node.arrive(3, away=True)
    node.draws.coming.append(0.99)
    assert node.tell(ev.ForwardLost(3), 1.0) == [node.forward(3, 0)]


def test_a_request_without_a_key_whose_neighbor_dies_is_never_run_twice(story):
    """It may have run there: the client is told that nobody knows, the ledger says failed, and a
    late answer changes nothing."""
    node = story()
    node.hear(0, 1)
    node.fill(1, 2)
    node.arrive(3, away=True, keyed=False)
    problem = "cluster c was lost before it answered"
    unknown = Answer(Outcome.UNKNOWN, ("a",), problem=problem, network_s=1.0)
    assert node.tell(ev.ForwardLost(3), 1.0) == [ev.Reply(3, ev.HOME, unknown, 0.0)]
    assert node.ledger["home.failed"] == 1
    late = Answer(Outcome.DONE, ("a", "c"))
    assert node.tell(ev.ForwardAnswered(3, late, 0.0, 0.0), 2.0) == []


def test_a_relay_that_loses_an_unkeyed_request_tells_the_one_before(story):
    """Cluster b hears that the outcome is unknown; for the ledger here the request was answered."""
    node = story()
    node.hear(0, 1)
    node.fill(1, 2)
    node.arrive(3, away=True, keyed=False, path=("b",))
    (reply,) = node.tell(ev.ForwardLost(3))
    assert (reply.origin, reply.answer.outcome) == (0, Outcome.UNKNOWN)
    assert node.ledger["foreign.answered"] == 1


def test_an_unknown_outcome_told_by_a_neighbor_fails_here_too(story):
    """The relay c lost it: home passes that on to the client."""
    node = story()
    node.hear(0, 1)
    node.fill(1, 2)
    node.arrive(3, away=True, keyed=False)
    there = Answer(Outcome.UNKNOWN, ("a", "c"), problem="cluster d was lost")
    (reply,) = node.tell(ev.ForwardAnswered(3, there, 0.0, 0.0))
    assert reply.answer.outcome is Outcome.UNKNOWN
    assert node.ledger["home.failed"] == 1


def test_a_deadline_while_away_recalls_the_request(story):
    """The client gets 504 now; the neighbor is asked to drop it; what it still says is ignored."""
    node = story()
    node.hear(0, 1)
    node.fill(1, 2)
    node.arrive(3, away=True, deadline_s=2.0)
    expired = Answer(Outcome.EXPIRED, ("a",), network_s=2.0)
    assert node.wake(2.0) == [ev.Recall(3, 1), ev.Reply(3, ev.HOME, expired, 0.0)]
    for late in (
        ev.ForwardAnswered(3, Answer(Outcome.DONE, ("a", "c")), 0.0, 0.0),
        ev.ForwardRefused(3),
        ev.ForwardLost(3),
    ):
        assert node.tell(late, 2.5) == []
    assert node.ledger["home.expired"] == 1


def test_a_full_cluster_forwards_what_clients_send(story):
    """Keeping is impossible: whatever the draw, the request leaves."""
    node = story(queue_limit=1)
    node.hear(0, 1)
    node.fill(1, 2)
    assert node.arrive(3) == [ev.Accepted(3), node.forward(3, 0)]


def test_a_full_cluster_takes_back_what_was_refused_elsewhere(story):
    """It was accepted once and is not dropped: it waits beyond the limit. While it does, nothing
    else is sent away in its place, else the queue could grow with every refusal."""
    node = story(queue_limit=1, neighbors=("b",))
    node.hear(0)
    node.fill(1, 2)
    node.arrive(3)
    assert node.tell(ev.ForwardRefused(3)) == []
    assert node.machine.queue_length == 2
    record = node.machine.decider.log.of("r3")[-1]
    assert (record.outcome, record.may_keep) == ("kept", False)
    assert node.arrive(4) == [ev.Refuse(4, ev.HOME, Refusal.QUEUE_FULL, 3 * 0.04)]


def test_what_is_away_is_bounded(story):
    """Limit 1: one is away, so another is neither kept nor forwarded, but the one that comes back
    refused may leave for the other neighbor: it takes its own place."""
    node = story(queue_limit=1)
    node.hear(0, 1)
    node.fill(1, 2)
    node.arrive(3)
    assert node.arrive(4) == [ev.Refuse(4, ev.HOME, Refusal.QUEUE_FULL, 2 * 0.04)]
    assert node.tell(ev.ForwardRefused(3)) == [node.forward(3, 1)]


def test_the_way_to_who_refused_counts_as_well(story):
    """Half a second to c and back, then a quarter to b: a client sees where its time went."""
    node = story(queue_limit=1)
    node.hear(0, 1)
    node.fill(1, 2)
    node.arrive(3)
    node.tell(ev.ForwardRefused(3), 0.5)
    (reply,) = node.tell(ev.ForwardAnswered(3, Answer(Outcome.DONE, ("a", "b")), 0.25, 0.0), 1.0)
    assert reply.answer.network_s == pytest.approx(0.75)


def test_a_link_that_goes_down_leaves_forwards_to_their_own_fate(story):
    """The stream of reports has ended; the request's own connection may live and answer."""
    node = story()
    node.hear(0, 1)
    node.fill(1, 2)
    node.arrive(3, away=True)
    (publish,) = node.tell(ev.LinkDown(1))
    assert publish.report.hears == ("b",)
    assert node.ledger["home.away"] == 1
    (reply,) = node.tell(ev.ForwardAnswered(3, Answer(Outcome.DONE, ("a", "c")), 0.0, 0.0))
    assert reply.answer.outcome is Outcome.DONE
