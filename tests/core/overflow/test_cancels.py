"""Cancellations through several clusters, whose machines are joined directly: what one sends, the
next one is handed in the same instant."""

import time
from collections import deque
from random import Random

import pytest

from spillover.core.overflow import events as ev
from spillover.core.overflow.machine import NodeMachine
from spillover.core.overflow.settings import NodeSettings
from spillover.model.request import Answer, Outcome, Request

LINE = "abc"


class AlwaysOn(Random):
    """Draws that send a request on wherever the policy leaves a choice."""

    def random(self):
        return 0.999


class Line:
    """Clusters a, b, c in a line, one server each. At a and b one runs and one waits, so that all
    else is handed on to c, which keeps it. `answers` are those that clients get, by ref."""

    def __init__(self, **told):
        self.now_s = 0.0
        self.machines = {}
        for place, cluster in enumerate(LINE):
            neighbors = [(y, 0.0) for y in (LINE[place - 1 : place] + LINE[place + 1 : place + 2])]
            settings = NodeSettings(cluster=cluster, servers=1, policy="paper", **told)
            self.machines[cluster] = NodeMachine(settings, neighbors, AlwaysOn(), 0.0)
        self.ways = {}
        """(cluster, ref) of a forward: where it is (cluster, ref) at the neighbor; and back."""
        self.origins = {}
        self.answers = {}
        self.started = []
        self.refs = 0
        self.coming = deque()
        for cluster in (*LINE, *LINE):
            self.feed(cluster, ev.ReportAsked())
        self.feed("c", ev.PolicySet("isolated"))
        for cluster in "aabb":
            self.submit(cluster)

    def neighbor(self, cluster, y):
        return self.machines[cluster].neighbors.ids[y]

    def feed(self, cluster, event):
        """Hand an event in, and all that follows from it."""
        self.coming.append((cluster, event))
        while self.coming:
            at, now = self.coming.popleft()
            for command in self.machines[at].handle(now, self.now_s):
                self.carry_out(at, command)

    def carry_out(self, at, command):
        kind, there = type(command), None
        if kind in {ev.Publish, ev.Heartbeat}:
            for y in self.machines[at].neighbors.ids:
                index = self.machines[y].neighbors.index[at]
                self.coming.append((y, ev.ReportReceived(index, command.report)))
        elif kind is ev.Forward:
            y = self.neighbor(at, command.neighbor)
            self.refs += 1
            self.ways[at, command.ref] = (y, self.refs)
            self.origins[y, self.refs] = (at, command.ref)
            origin = self.machines[y].neighbors.index[at]
            self.coming.append((y, ev.Arrived(self.refs, command.request, 1e9, origin)))
        elif kind in {ev.Recall, ev.AskCancel}:
            there = self.ways[at, command.ref]
            event = ev.Cancelled if kind is ev.Recall else ev.CancelAsked
            self.coming.append((there[0], event(there[1])))
        elif kind in {ev.Reply, ev.Refuse}:
            back = self.origins.pop((at, command.ref), None)
            if back is None:
                self.answers[command.ref] = command
                return
            self.ways.pop(back)
            event = ev.ForwardRefused(back[1])
            if kind is ev.Reply:
                event = ev.ForwardAnswered(back[1], command.answer, 0.0, 0.0)
            self.coming.append((back[0], event))
        elif kind is ev.Start:
            self.started.append((at, command.ref))

    def submit(self, cluster="a", deadline_s=1e6):
        """A client's request; its ref."""
        self.refs += 1
        ref = self.refs
        self.feed(cluster, ev.Arrived(ref, Request(f"r{ref}", keyed=True, work=None), deadline_s))
        return ref

    def outcome(self, ref):
        return self.answers[ref].answer.outcome if ref in self.answers else None

    def end(self):
        """Let all that runs end, and what starts then; nothing is left of anything."""
        while self.started:
            at, ref = self.started.pop(0)
            self.feed(at, ev.ServiceEnded(ref, Outcome.DONE, 0.04))
        for cluster, machine in self.machines.items():
            machine.check()
            assert not machine.register.visits, cluster
            assert machine.queue_length == machine.register.away == 0
            assert machine.ledger.imbalance() == 0
        assert not self.ways
        assert not self.origins


@pytest.mark.parametrize("kind", [ev.Cancelled, ev.CancelAsked])
def test_a_cancellation_reaches_the_last_cluster(kind):
    """From a over b to c, where one runs and one waits. All three ledgers say so."""
    line = Line()
    running, waiting = line.submit(), line.submit()
    assert line.started[-1][0] == "c"
    line.feed("a", kind(waiting))
    line.feed("a", kind(running))
    assert [line.outcome(r) for r in (running, waiting)] == [Outcome.CANCELLED] * 2
    assert len(line.machines["c"].servers.stuck) == 1
    line.end()
    assert line.machines["a"].ledger.home["cancelled"] == 2
    assert line.machines["b"].ledger.foreign["cancelled"] == 2
    assert line.machines["c"].ledger.foreign["cancelled"] == 2


def test_a_confirmed_cancellation_tells_where_the_request_ended():
    """Whoever asked learns the path; who only hung up learns nothing of it."""
    line = Line()
    asked, hung_up = line.submit(), line.submit()
    line.feed("a", ev.CancelAsked(asked))
    line.feed("a", ev.Cancelled(hung_up))
    assert line.answers[asked].answer.path == ("a", "b", "c")
    assert line.answers[hung_up].answer.path == ("a",)


def test_a_cancel_that_comes_too_late_gets_the_answer(story):
    """Finished there before the word came: done is done."""
    node = story()
    node.hear(0, 1)
    node.fill(1, 2)
    node.arrive(3, away=True)
    assert node.tell(ev.CancelAsked(3)) == [ev.AskCancel(3, 1)]
    assert node.tell(ev.CancelAsked(3)) == [], "asked once"
    assert node.ledger["home.away"] == 1
    (reply,) = node.tell(ev.ForwardAnswered(3, Answer(Outcome.DONE, ("a", "c"), 7), 0.0, 0.0))
    assert (reply.answer.outcome, reply.answer.result) == (Outcome.DONE, 7)
    assert node.ledger["home.done"] == 1


@pytest.mark.parametrize("event", [ev.ForwardRefused, ev.ForwardLost])
@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("free", [True, False])
def test_a_cancel_that_is_under_way_ends_what_comes_back(story, event, keyed, free):
    """Neither decided again nor started, though a server may be free and a neighbor idle."""
    node = story()
    node.hear(0, 1)
    node.fill(1, 2)
    node.arrive(3, away=True, keyed=keyed)
    node.tell(ev.CancelAsked(3))
    if free:
        node.end(1)
        node.end(2)
    (reply,) = node.tell(event(3), 1.0)
    assert (reply.ref, reply.answer.outcome) == (3, Outcome.CANCELLED)
    assert node.ledger["home.cancelled"] == 1


def test_a_deadline_ends_the_wait_for_a_confirmation(story):
    """The neighbor is silent: the client has its answer at the deadline, and the work is recalled.
    So does one who hangs up."""
    node = story()
    node.hear(0, 1)
    node.fill(1, 2)
    node.arrive(3, away=True, deadline_s=5.0)
    node.arrive(4, away=True)
    node.tell(ev.CancelAsked(3))
    node.tell(ev.CancelAsked(4))
    recall, reply = node.wake(5.0)
    assert (recall, reply.answer.outcome) == (ev.Recall(3, 1), Outcome.EXPIRED)
    recall, reply = node.tell(ev.Cancelled(4))
    assert (recall, reply.answer.outcome) == (ev.Recall(4, 1), Outcome.CANCELLED)


def test_what_is_here_is_cancelled_at_once(story):
    """In the queue and on the server; what has ended or never was stays as it is."""
    node = story()
    node.fill(1, 2)
    (reply,) = node.tell(ev.CancelAsked(2), 0.5)
    assert (reply.answer.outcome, reply.answer.queued_s) == (Outcome.CANCELLED, 0.5)
    stop, reply = node.tell(ev.CancelAsked(1))
    assert (stop, reply.answer.outcome) == (ev.Stop(1), Outcome.CANCELLED)
    for ref in (1, 2, 77):
        assert node.tell(ev.CancelAsked(ref)) == []
    assert node.ledger == {"home.accepted": 2, "home.cancelled": 2}


def seconds_to_leave(length, leaving):
    """Processor time that so many need to leave the middle of a queue of this length."""
    settings = NodeSettings(cluster="a", servers=1, policy="isolated", queue_limit=length)
    machine = NodeMachine(settings, [], Random(1), 0.0)
    for ref in range(length + 1):
        machine.handle(ev.Arrived(ref, Request("r", keyed=True, work=None), 1e6), 0.0)
    assert machine.queue_length == length
    first = (length - leaving) // 2
    started_s = time.process_time()
    for ref in range(first, first + leaving):
        machine.handle(ev.Cancelled(ref), 1.0)
    passed_s = time.process_time() - started_s
    machine.check()
    assert machine.queue_length == length - leaving
    return passed_s


@pytest.mark.slow
def test_leaving_the_middle_of_a_long_queue_is_cheap():
    """Twenty times as long, the same work: looking for the place would take twenty times the time.
    The best of three short ones, since others use this machine too."""
    short = min(seconds_to_leave(1_000, 500) for _ in range(3))
    long = seconds_to_leave(20_000, 500)
    assert long < 6 * short
