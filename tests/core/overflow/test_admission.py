"""What a cluster takes into its queue: limits by origin, waits beyond deadlines, servers that are
gone. How it fares under long overload is in tests/sim/overflow/test_overload.py."""

import pytest

from spillover.core.overflow import events as ev
from spillover.core.overflow.settings import NodeSettings
from spillover.model.load import LoadReport
from spillover.model.request import Outcome, Refusal
from spillover.policy.overflow.admission import FOREIGN_SHARE


def refusal(commands):
    """The reason of the one refusal, None if there is none."""
    reasons = [c.reason for c in commands if isinstance(c, ev.Refuse)]
    assert len(reasons) <= 1
    return reasons[0] if reasons else None


def kinds(commands):
    return [type(command) for command in commands]


@pytest.mark.parametrize(
    ("queue_limit", "foreign"), [(0, 0), (1, 1), (9, 9), (10, 9), (100, 90), (10_000, 9_000)]
)
def test_the_last_tenth_of_a_queue_is_for_clients(queue_limit, foreign):
    """A short queue has no tenth to keep."""
    told = NodeSettings(cluster="a", servers=1, policy="paper", queue_limit=queue_limit)
    assert told.foreign_limit == foreign


def test_neighbors_are_refused_before_clients_are(story):
    """Limit 20: from 18 on nothing of neighbors, at 20 nothing of clients either. What neighbors
    are told changes with it, and a place that comes free is theirs again."""
    node = story(queue_limit=20, policy="isolated")
    node.arrive(0)
    for ref in range(1, 21):
        assert node.machine.accepting == (ref <= 18), ref
        if ref > 18:
            assert refusal(node.arrive(100 + ref, path=("b",))) is Refusal.QUEUE_FULL
        assert refusal(node.arrive(ref)) is None
    assert refusal(node.arrive(21)) is Refusal.QUEUE_FULL
    for ref in (1, 2, 3):
        assert (node.machine.accepting, node.machine.accept_probability) == (False, 0.0)
        node.tell(ev.Cancelled(ref))
    assert node.machine.accept_probability == 1 / 18
    assert kinds(node.arrive(30, path=("b",))) == [ev.Accepted]
    assert refusal(node.arrive(31, path=("b",))) is Refusal.QUEUE_FULL


def test_what_would_wait_beyond_its_deadline_is_not_taken(story):
    """Five servers of 40 ms, never varying: 50 that wait are about 400 ms. One second is enough,
    100 ms are not. What a neighbor sends must fit into three quarters of its time."""
    node = story(servers=5)
    for ref in range(55):
        node.arrive(ref)
    for ref, (left_s, expected) in enumerate(
        [(0.1, Refusal.TOO_LATE), (0.4, Refusal.TOO_LATE), (0.5, None), (1.0, None)]
    ):
        for path, time_s in (((), left_s), (("b",), left_s / FOREIGN_SHARE)):
            reason = refusal(node.arrive(f"{ref}{path}", path=path, deadline_s=time_s))
            assert reason == expected, (left_s, path)
    assert refusal(node.arrive("b", path=("b",), deadline_s=0.5)) is Refusal.TOO_LATE


def test_a_short_queue_is_no_reason_to_refuse(story):
    """Fewer wait than there are servers: the wait depends on what runs just now."""
    node = story(servers=3)
    for ref in range(6):
        assert kinds(node.arrive(ref, deadline_s=0.001))[0] is ev.Accepted
    assert refusal(node.arrive(6, deadline_s=0.001)) is Refusal.TOO_LATE


def test_a_varying_service_needs_a_margin(story):
    """The same mean, once even and once not: the uneven one takes less in before a deadline."""
    taken = []
    for times_s in ([0.04], [0.01, 0.07]):
        node = story(servers=1, service_s=0.04)
        for ref in range(200):
            node.arrive(-ref)
            node.end(-ref, service_s=times_s[ref % len(times_s)])
        refs = range(1, 100)
        taken.append(sum(refusal(node.arrive(ref, deadline_s=1.0)) is None for ref in refs))
    even, uneven = taken
    assert 22 <= even <= 25
    assert even / 2 < uneven < even - 2


def test_what_is_too_late_here_is_tried_elsewhere(story):
    """A client's request goes to the neighbors first, whatever the draw, and to none twice."""
    node = story(servers=1)
    node.hear(0, 1)
    for ref in range(30):
        node.arrive(ref)
    first = node.arrive(30, deadline_s=0.5)
    assert first == [ev.Accepted(30), node.forward(30, 0, 0.5)]
    assert node.tell(ev.ForwardRefused(30), 0.1) == [node.forward(30, 1, 0.5)]
    assert refusal(node.arrive(31, path=("b",), deadline_s=0.5)) is Refusal.TOO_LATE
    node.hear(0, 1, sequence=2, accepting=False)
    assert refusal(node.arrive(32, deadline_s=0.5)) is Refusal.TOO_LATE


def test_what_comes_back_too_late_ends_at_once(story):
    """No cluster can end it in time. In the queue it would only make those behind it late, until
    nobody is served in time (tests/sim/overflow/test_overload.py)."""
    node = story(servers=1, neighbors=("b",))
    node.hear(0)
    for ref in range(30):
        node.arrive(ref)
    assert node.arrive(30, deadline_s=0.5)[1] == node.forward(30, 0, 0.5)
    (reply,) = node.tell(ev.ForwardRefused(30), 0.1)
    assert (reply.ref, reply.answer.outcome) == (30, Outcome.EXPIRED)
    assert node.machine.queue_length == 29


def test_stuck_servers_do_not_count(story):
    """Two of four are stuck: P and the wait are those of two. With all stuck neighbors are told to
    stay away and refused if they come; a client's request waits: the servers may come back."""
    node = story(servers=4, policy="isolated", service_s=0.5)
    node.fill(1, 2, 3, 4)
    for ref in range(5, 11):
        node.arrive(ref)
    assert node.machine.accept_probability == 4 / (6 + 4)
    node.tell(ev.Cancelled(1))
    node.tell(ev.Cancelled(2))
    assert node.machine.accept_probability == 2 / (6 + 2)
    assert refusal(node.arrive(11, deadline_s=2.0)) is Refusal.TOO_LATE
    node.tell(ev.Cancelled(3))
    node.tell(ev.Cancelled(4))
    assert (node.machine.accepting, node.machine.accept_probability) == (False, 0.0)
    assert refusal(node.arrive(12, path=("b",))) is Refusal.NO_SERVERS
    assert kinds(node.arrive(13)) == [ev.Accepted]
    assert node.end(1, 1.0)[0].ref == 5
    assert node.machine.accepting


def test_without_servers_the_queue_leaves_and_clients_are_sent_elsewhere(story):
    """All upstreams are gone: what waits goes to neighbors, what comes too; nothing starts though
    a server is free. When they are back, the queue is served in order."""
    node = story(servers=2)
    node.fill(1, 2, 3)
    node.hear(0, 1)
    node.hear(1, sequence=2, accepting=False)
    publish, handed_on = node.tell(ev.ServersDown(), 0.5)
    told = publish.report
    assert (told.accepting, told.accept_probability) == (True, 0.0)
    assert (told.relay_hops, told.relay_by) == (1, "b"), "it hands on what others send"
    assert handed_on == node.forward(3, 0)
    node.end(1, 1.0)
    assert node.arrive(4)[1:] == [node.forward(4, 0)]
    assert refusal(node.arrive(5, path=("b",))) is Refusal.NO_SERVERS
    for ref in (3, 4):
        assert node.tell(ev.ForwardRefused(ref), 2.0) == [], "waits: accepted once, never refused"
    node.hear(0, sequence=2, accepting=False)
    assert refusal(node.arrive(6)) is Refusal.NO_SERVERS
    assert node.machine.queue_length == 2
    started = node.tell(ev.ServersUp(), 3.0)
    assert started[0] == node.start(3, 3.0)
    assert isinstance(started[-1], ev.Publish)
    assert started[-1].report.accepting
    assert node.end(2, 4.0)[1] == node.start(4, 4.0)


def test_who_is_heard_again_is_told_at_once(story):
    """Reports are 10 s apart and tell whom we hear: a neighbor that has come, gone or come back
    must not take itself for heard, or unheard, for so long. Other reports and beats are no news."""
    node = story(gossip_period_s=10.0)
    node.tell(ev.TimerFired(), 0.0)
    report = LoadReport(1, 1, 1.0, 1.0, 0, 1, accepting=True, hears=("a",))
    later = LoadReport(1, 2, 1.0, 1.0, 0, 1, accepting=True, hears=("a",))
    told = []
    for now_s, event in (
        (0.5, ev.ReportReceived(0, None)),
        (1.0, ev.ReportReceived(0, report)),
        (1.1, ev.ReportReceived(0, None)),
        (1.2, ev.ReportReceived(0, later)),
        (1.3, ev.LinkDown(0)),
        (1.4, ev.LinkDown(0)),
        (1.5, ev.ReportReceived(0, report)),
        (2.5, ev.TimerFired()),
        (2.6, ev.ReportReceived(0, None)),
    ):
        told += [(now_s, c.report.hears) for c in node.tell(event, now_s) if type(c) is ev.Publish]
    assert told == [(1.0, ("b",)), (1.3, ()), (1.5, ("b",)), (2.5, ()), (2.6, ("b",))]
