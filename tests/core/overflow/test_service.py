"""Stories of one cluster alone: its servers, its queue, deadlines and cancellations."""

import pytest

from spillover.core.overflow import events as ev
from spillover.model.request import Answer, Outcome, Refusal


def reply(ref, outcome, delay_s=0.0, origin=ev.HOME, path=("a",), **costs):
    return ev.Reply(ref, origin, Answer(outcome, path, **costs), delay_s)


def test_what_waits_starts_in_the_order_it_came(story):
    """One server, three requests: each starts when the one before has ended."""
    node = story()
    node.fill(1)
    assert node.arrive(2, 0.5) == [ev.Accepted(2)]
    assert node.arrive(3, 0.75) == [ev.Accepted(3)]
    assert node.end(1, 1.0, service_s=1.0, result="one") == [
        reply(1, Outcome.DONE, result="one", service_s=1.0),
        node.start(2, 1.0),
    ]
    assert node.end(2, 2.0, service_s=1.0) == [
        reply(2, Outcome.DONE, queued_s=0.5, service_s=1.0),
        node.start(3, 2.0),
    ]
    assert node.end(3, 3.0, service_s=1.0) == [reply(3, Outcome.DONE, queued_s=1.25, service_s=1.0)]
    assert node.ledger == {"home.accepted": 3, "home.done": 3}


def test_delivery_does_not_occupy_the_server(story):
    """The answer leaves 6 ms late; the next request starts at once all the same."""
    node = story(delivery_s=0.006)
    node.fill(1, 2)
    assert node.end(1, 0.04, service_s=0.04) == [
        reply(1, Outcome.DONE, delay_s=0.006, network_s=0.006, service_s=0.04),
        node.start(2, 0.04),
    ]


def test_delivery_can_make_an_answer_late(story):
    """Served before the deadline, delivered after it: expired, at once and without the result."""
    node = story(delivery_s=0.25)
    node.arrive(1, deadline_s=1.0)
    assert node.end(1, 0.875, service_s=0.875, result="late") == [
        reply(1, Outcome.EXPIRED, service_s=0.875)
    ]
    node.arrive(2, deadline_s=2.0)
    assert node.end(2, 1.75, service_s=0.875, result="just in time") == [
        reply(2, Outcome.DONE, 0.25, result="just in time", network_s=0.25, service_s=0.875)
    ]


def test_a_deadline_in_the_queue_ends_the_wait(story):
    """The client is told at the deadline, not when a server would have been free."""
    node = story()
    node.fill(1)
    node.arrive(2, 0.5, deadline_s=1.5)
    assert node.machine.next_deadline() <= 1.5
    assert node.wake(1.5) == [reply(2, Outcome.EXPIRED, queued_s=1.0)]
    assert node.end(1, 2.0) == [reply(1, Outcome.DONE, service_s=0.25)]
    assert node.ledger == {"home.accepted": 2, "home.done": 1, "home.expired": 1}


def test_expired_work_never_starts_even_if_no_alarm_rang(story):
    """A server comes free at the very deadline, before the timer was looked at."""
    node = story()
    node.fill(1)
    node.arrive(2, deadline_s=1.0)
    node.arrive(3)
    assert node.end(1, 1.0) == [
        reply(1, Outcome.DONE, service_s=0.25),
        reply(2, Outcome.EXPIRED, queued_s=1.0),
        node.start(3, 1.0),
    ]


def test_a_deadline_while_running_leaves_the_server_stuck(story):
    """A sync handler cannot be stopped: its client gets 504, its server stays busy until it
    returns, and what it returns is not wanted any more."""
    node = story()
    node.arrive(1, deadline_s=1.0)
    node.fill(2)
    assert node.wake(1.0) == [ev.Stop(1), reply(1, Outcome.EXPIRED)]
    assert (node.machine.servers.busy, len(node.machine.servers.stuck)) == (1, 1)
    assert node.ledger == {"home.accepted": 2, "home.expired": 1, "home.queued": 1}
    assert node.end(1, 3.0, result="unwanted") == [node.start(2, 3.0)]
    assert (node.machine.servers.busy, len(node.machine.servers.stuck)) == (1, 0)


def test_a_full_queue_refuses_and_says_when_to_come_back(story):
    """Nobody known to help: 429, with the time in which the queue and one more will be served."""
    node = story(queue_limit=2, service_s=0.5, servers=2)
    node.fill(1, 2, 3, 4)
    assert node.arrive(5) == [ev.Refuse(5, ev.HOME, Refusal.QUEUE_FULL, 3 * 0.5 / 2)]
    assert not node.machine.accepting
    assert node.machine.accept_probability == 0.0
    assert node.ledger == {"home.accepted": 4, "home.running": 2, "home.queued": 2}
    node.end(1, 1.0)
    assert node.machine.accepting
    assert node.machine.accept_probability == 2 / (1 + 2)


def test_a_late_event_counts_at_the_instant_it_was_meant_for(story):
    """The loop was late: a request joined the queue at 1.25 although the service had ideally ended
    at 1.0. It starts when it came, not before, and has waited no time."""
    node = story()
    node.fill(1)
    node.arrive(2, 1.25)
    node.arrive(3, 1.5)
    assert node.end(1, 1.0, service_s=1.0) == [
        reply(1, Outcome.DONE, service_s=1.0),
        node.start(2, 1.25),
    ]
    assert node.end(2, 2.25, service_s=1.0) == [
        reply(2, Outcome.DONE, service_s=1.0),
        node.start(3, 2.25),
    ]
    assert node.end(3, 3.25, service_s=1.0) == [
        reply(3, Outcome.DONE, queued_s=0.75, service_s=1.0)
    ]


def test_what_nobody_waits_for_counts_into_the_mean_all_the_same(story):
    """A handler that ran on beyond its deadline: without the long ones the mean would be too low,
    and too many requests would be let in."""
    node = story(service_s=0.5)
    node.arrive(1, deadline_s=1.0)
    node.wake(1.0)
    node.end(1, 3.0, service_s=3.0)
    assert node.machine.servers.service_s == pytest.approx(0.5 + 2.5 / 5)
    node.arrive(2, deadline_s=4.0)
    node.wake(4.0)
    node.end(2, 4.0, Outcome.CANCELLED, service_s=1.0)
    assert node.machine.servers.service_s == pytest.approx(1.0), "stopped early: says nothing"


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.CANCELLED])
def test_what_takes_long_to_come_to_nothing_makes_services_long(story, outcome):
    """A service that hangs, or fails late: a server is taken for as long. What comes to nothing
    soon does not make services short, or a cluster that fails at everything would look fast."""
    node = story(service_s=0.5)
    node.arrive(1)
    node.end(1, 3.0, outcome, service_s=3.0)
    assert node.machine.servers.service_s == pytest.approx(0.5 + 2.5 / 5)
    for ref in range(2, 50):
        node.arrive(ref, 3.0 + ref)
        node.end(ref, outcome=outcome, service_s=0.001)
        node.wake(4.0 + ref)  # what has failed takes a server for as long as a success
    assert node.machine.servers.service_s == pytest.approx(0.5 + 2.5 / 5)
