"""Work that surely was not begun, and queues that nothing here can serve for now."""

from spillover.core.overflow import events as ev
from spillover.core.overflow.events import Forward
from spillover.model.request import Outcome, Refusal


def forwards(commands):
    return [(c.ref, c.neighbor) for c in commands if isinstance(c, Forward)]


def test_what_was_not_begun_goes_to_a_neighbor(story):
    """The servers are down by then: its server is free, and the neighbor gets it."""
    node = story()
    node.hear(0)
    node.arrive(1)
    node.tell(ev.ServersDown())
    assert forwards(node.tell(ev.NotStarted(1, "nobody there"))) == [(1, 0)]
    assert node.machine.servers.busy == 0
    told = node.machine.decider.log.tell("r1")
    assert [record["event"] for record in told] == ["decided", "not_started", "decided"]


def test_without_a_neighbor_it_waits_for_the_servers(story):
    """New requests are refused meanwhile; when the servers are up again it starts first."""
    node = story()
    node.arrive(1)
    node.tell(ev.ServersDown())
    assert node.tell(ev.NotStarted(1, "nobody there")) == []
    assert node.machine.queue_length == 1
    (refused,) = node.arrive(2)
    assert (type(refused), refused.reason) == (ev.Refuse, Refusal.NO_SERVERS)
    started = [c.ref for c in node.tell(ev.ServersUp()) if isinstance(c, ev.Start)]
    assert started == [1]


def test_it_waits_no_longer_than_its_deadline(story):
    node = story()
    node.arrive(1, deadline_s=5.0)
    node.tell(ev.ServersDown())
    node.tell(ev.NotStarted(1, "nobody there"))
    (reply,) = node.wake(5.0)
    assert reply.answer.outcome is Outcome.EXPIRED
    assert "nobody there" in reply.answer.problem, "its client hears why it took so long"
    assert reply.answer.has_not_run


def test_what_waited_for_servers_is_told_whether_it_may_have_run(story):
    """A client's library sends again by itself what has not. A neighbor or a service that was lost
    with a request may have run it."""
    node = story(neighbors=("b",))
    node.hear(0)
    node.arrive(1, deadline_s=5.0)
    node.arrive(3, deadline_s=7.0)
    assert forwards(node.arrive(2, away=True, deadline_s=6.0)) == [(2, 0)]
    node.tell(ev.LinkDown(0))
    node.tell(ev.ForwardLost(2))
    node.tell(ev.ServersDown())
    node.tell(ev.NotStarted(1, "nobody there", may_have_run=True))
    never_ran = [ref for ref in (1, 2, 3) if node.machine.surely_never_ran(ref)]
    assert never_ran == [3], "as those are told who wait when the node ends"
    told = {}
    for now_s in (5.0, 6.0, 7.0):
        (reply,) = [c for c in node.wake(now_s) if isinstance(c, ev.Reply)]
        assert reply.answer.outcome is Outcome.EXPIRED
        told[reply.ref] = reply.answer.has_not_run
    assert told == {1: False, 2: False, 3: True}


def test_a_neighbor_that_refused_is_offered_the_queue_again(story):
    """As long as nothing here serves it, at each report that says it accepts."""
    node = story()
    node.arrive(1)
    node.arrive(2)
    node.tell(ev.ServersDown())
    node.hear(0)
    assert node.machine.queue_length == 0
    assert node.tell(ev.ForwardRefused(2)) == []
    assert node.machine.queue_length == 1
    report = node.machine.neighbors.by_handle[0].report
    again = ev.ReportReceived(0, type(report)(1, 2, 1.0, 1.0, 0, 1, True, ("a",)))
    assert forwards(node.tell(again)) == [(2, 0)]


# --- refused with an answer that can be passed on -----------------------------------------------


def refused_with(node, ref, status=429):
    """What runs the work has said so; publishing left out."""
    told = node.tell(ev.NotStarted(ref, "upstream said no", True, 0.1, None, status))
    return [command for command in told if not isinstance(command, ev.Publish)]


def passed(commands, ref, status=429, origin=ev.HOME):
    """Whether these pass the refusal on, and nothing else."""
    began, reply = commands
    assert began == ev.Began(ref, origin, began.so_far)
    assert (reply.ref, reply.origin, reply.answer.outcome) == (ref, origin, Outcome.FAILED)
    assert (reply.answer.upstream_status, reply.answer.problem) == (status, "upstream said no")
    return True


def test_where_nobody_else_takes_it_the_refusal_is_the_answer(story):
    node = story()
    node.arrive(1, size_bytes=7)
    assert passed(refused_with(node, 1), 1)
    assert (node.ledger["home.failed"], node.machine.held.request_bytes) == (1, 0)
    assert node.machine.truncated == 0
    told = node.machine.decider.log.tell("r1")
    events = [record["event"] for record in told]
    assert events == ["decided", "not_started", "decided", "answer_began", "ended"]


def test_what_comes_back_refused_is_not_tried_here_again(story):
    """By nobody: the refusal stands, also where a server is free by then."""
    node = story(servers=2)
    node.hear(0, 1)
    node.arrive(1)
    (first,) = forwards(refused_with(node, 1))
    (second,) = forwards(node.tell(ev.ForwardRefused(1), 10.0))
    assert {first[1], second[1]} == {0, 1}
    assert passed(node.tell(ev.ForwardRefused(1)), 1)


def test_a_neighbors_request_goes_back_to_it(story):
    """Its home decides who else may take it."""
    node = story()
    node.arrive(1, path=("b",))
    (refused,) = refused_with(node, 1)
    assert (type(refused), refused.ref, refused.upstream_status) == (ev.Refuse, 1, 429)


def test_a_home_without_servers_tells_what_a_neighbors_service_said(story):
    """Once nobody has taken it until its deadline."""
    node = story()
    node.tell(ev.ServersDown())
    node.hear(0)
    assert forwards(node.arrive(1, keyed=True, deadline_s=5.0)) == [(1, 0)]
    assert forwards(node.tell(ev.ForwardRefused(1, None, 429))) == []
    (reply,) = [c for c in node.tell(ev.TimerFired(), 5.0) if isinstance(c, ev.Reply)]
    assert (reply.answer.outcome, reply.answer.upstream_status) == (Outcome.EXPIRED, 429)
    assert "behind cluster b answered 429" in reply.answer.problem


def test_what_may_have_run_elsewhere_is_not_told_to_be_refused(story):
    """With a key it is tried here again, and ends as any such request."""
    node = story()
    node.hear(0)
    node.arrive(1, keyed=True)
    assert forwards(refused_with(node, 1)) == [(1, 0)]
    node.tell(ev.ForwardLost(1))
    assert node.machine.register.visits[1].state in {"running", "queued"}
    assert "home.failed" not in node.ledger


def test_where_work_fails_what_a_neighbor_refuses_goes_to_the_next_one(story):
    """Also while a server is free: only what finds out whether work still fails is tried here."""
    node = story(service_s=0.05)
    node.hear(0, 1)
    ref = 900
    while not node.machine.health.degraded:
        ref += 1
        node.arrive(ref)
        node.end(ref, outcome=Outcome.FAILED)
    ((_, first),) = forwards(node.arrive(1, 0.1))
    assert forwards(node.tell(ev.ForwardRefused(1), 0.2)) == [(1, 1 - first)]
    assert node.machine.servers.busy == 0


def test_what_may_have_run_is_decided_again_once(story):
    """A request that its service dies of must not end one start of it after the other."""
    node = story()
    node.arrive(1)
    lost = ev.NotStarted(1, "the connection broke", may_have_run=True)
    node.tell(ev.ServersDown())
    assert node.tell(lost) == []
    assert [c.ref for c in node.tell(ev.ServersUp()) if isinstance(c, ev.Start)] == [1]
    node.tell(ev.ServersDown())
    replies = [c for c in node.tell(lost) if isinstance(c, ev.Reply)]
    assert [reply.answer.outcome for reply in replies] == [Outcome.FAILED]
