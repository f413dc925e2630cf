"""Stories of one cluster alone: its servers, its queue, deadlines and cancellations."""

from __future__ import annotations

from random import Random
from statistics import mean

import pytest

from spillover.core.overflow import events as ev
from spillover.core.overflow.servers import FifoServers
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


@pytest.mark.parametrize("servers", [1, 2])
def test_a_request_that_comes_too_late_is_expired_on_arrival(story, servers):
    """Not refused (its deadline is what ended it), not started, and not in the decision log."""
    node = story(servers=servers)
    node.fill(1)
    assert node.arrive(2, 5.0, deadline_s=5.0) == [ev.Accepted(2), reply(2, Outcome.EXPIRED)]
    assert node.machine.decider.log.of("r2") == []


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


def test_deadlines_that_pass_together_all_end(story):
    """After a long pause one timer ends all that is overdue, the earliest first."""
    node = story()
    node.fill(1)
    for ref, deadline_s in ((2, 3.0), (3, 2.0), (4, 9.0)):
        node.arrive(ref, deadline_s=deadline_s)
    assert [command.ref for command in node.wake(5.0)] == [3, 2]
    assert 5.0 < node.machine.next_deadline() <= 9.0


def test_cancel_in_the_queue(story):
    """The place is given up; those behind move on."""
    node = story()
    node.fill(1, 2, 3)
    assert node.tell(ev.Cancelled(2), 0.5) == [reply(2, Outcome.CANCELLED, queued_s=0.5)]
    assert node.end(1, 1.0)[1] == node.start(3, 1.0)
    assert node.ledger == {
        "home.accepted": 3,
        "home.done": 1,
        "home.cancelled": 1,
        "home.running": 1,
    }


def test_cancel_while_running(story):
    """The handler is told to stop; its server is free when it has."""
    node = story()
    node.fill(1, 2)
    assert node.tell(ev.Cancelled(1)) == [ev.Stop(1), reply(1, Outcome.CANCELLED)]
    assert len(node.machine.servers.stuck) == 1
    assert node.end(1, 0.5, Outcome.CANCELLED) == [node.start(2, 0.5)]


def test_a_handler_that_gives_up_by_itself_is_cancelled(story):
    """An async handler may cancel itself: an end like others, with no Stop before it."""
    node = story()
    node.fill(1)
    assert node.end(1, outcome=Outcome.CANCELLED) == [reply(1, Outcome.CANCELLED, service_s=0.25)]


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


def test_the_mean_service_time_follows_what_is_seen(story):
    """The first guess counts as four services, so that a wrong one is soon forgotten; later each
    new service time is a sixty-fourth of the mean."""
    node = story(service_s=0.5)
    means = []
    for ref in range(200):
        node.arrive(ref)
        node.end(ref, service_s=1.5)
        means.append(node.machine.servers.service_s)
    assert means[0] == pytest.approx(0.5 + 1 / 5)
    assert means[1] == pytest.approx((4 * 0.5 + 2 * 1.5) / 6)
    assert means[59] == pytest.approx((4 * 0.5 + 60 * 1.5) / 64)
    assert means[199] == pytest.approx(1.5 - (4 / 64) * (63 / 64) ** 140)
    assert node.machine.servers.service_spread_s < 0.25


def test_the_spread_of_service_times_is_known():
    """Of many exponential ones it is about their mean, of equal ones none."""
    for even, expected_s in ((True, 0.0), (False, 0.25)):
        random, seen = Random(1), []
        servers = FifoServers(1, 1.0, 0.0)
        for ref in range(5000):
            servers.served(ref, 0.25 if even else random.expovariate(4.0))
            seen.append(servers.service_spread_s)
        assert mean(seen[500:]) == pytest.approx(expected_s, rel=0.05, abs=1e-3)


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


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.CANCELLED])
def test_nobody_waits_in_vain_behind_services_that_come_to_nothing(story, outcome):
    """Each takes a second where 40 ms were guessed. Of ten clients with 2.5 s each all are let in
    at first; once that is known, those are refused at once who could only wait until too late."""
    node = story(neighbors=())
    refs, refused = iter(range(1000)), []
    for begin_s in range(0, 30, 3):
        told = []
        for ref, _ in zip(refs, range(10), strict=False):
            told += node.arrive(ref, float(begin_s), deadline_s=begin_s + 2.5)
        refused.append(sum(isinstance(one, ev.Refuse) for one in told))
        now_s = begin_s
        while starts := [one.ref for one in told if isinstance(one, ev.Start)]:
            node.wake(now_s + 0.5)
            now_s += 1.0
            told = node.end(starts[0], now_s, outcome, service_s=1.0)
    assert (refused[0], refused[-1]) == (0, 8)
