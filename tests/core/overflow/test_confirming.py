"""Stories of a machine whose acceptances are confirmed later, or not at all."""

from random import Random

import pytest

from spillover.core.overflow import events as ev
from spillover.core.overflow.confirming import ConfirmingMachine
from spillover.core.overflow.settings import NodeSettings
from spillover.model.load import LoadReport
from spillover.model.request import Answer, Outcome, Refusal, Request
from support.few import all_in_soak


@pytest.fixture
def late(story):
    """The maker of stories whose machine asks to be confirmed."""

    def make(**settings):
        node = story()
        told = {"cluster": "a", "servers": 1, "policy": "paper", **settings}
        ways = [("b", 0.0), ("c", 0.0)]
        node.machine = ConfirmingMachine(NodeSettings(**told), ways, node.draws, 0.0)
        return node

    return make


def confirm(node, ref, deadline_s=100.0, origin=ev.HOME):
    return ev.Confirm(ref, node.requests[ref], origin, deadline_s)


def full(node):
    """The first runs, the second waits."""
    for ref in (1, 2):
        node.arrive(ref)
        node.tell(ev.Confirmed(ref))


def test_what_may_not_start_yet_keeps_its_turn(late):
    """Its server comes free before it is confirmed: it holds it, and starts with the word."""
    node = late()
    node.arrive(1)
    node.tell(ev.Confirmed(1))
    node.arrive(2)
    node.arrive(3)
    node.tell(ev.Confirmed(3))
    (reply,) = node.end(1, 1.0)
    assert reply.ref == 1
    assert node.machine.surely_never_ran(2)
    assert node.tell(ev.Confirmed(2), 2.0) == [ev.Accepted(2), node.start(2, 2.0)]
    assert not node.machine.surely_never_ran(2)


def test_a_forward_leaves_with_the_confirmation(late):
    node = late()
    node.hear(0, 1)
    full(node)
    assert node.arrive(3, away=True) == [confirm(node, 3)]
    assert node.ledger["home.away"] == 1
    assert node.tell(ev.Confirmed(3)) == [ev.Accepted(3), node.forward(3, 1)]


@pytest.mark.parametrize("path", [(), ("b",)], ids=["client", "neighbor"])
@pytest.mark.parametrize("where", ["running", "queued", "away"])
def test_what_cannot_be_confirmed_is_refused_and_leaves_nothing(late, where, path):
    """Wherever it was to go: its place and its server are free again, for the next that waits."""
    node = late()
    node.hear(0, 1)
    if where != "running":
        full(node)
    before = node.ledger
    node.arrive(3, away=where == "away", path=path)
    origin = 0 if path else ev.HOME
    commands = node.tell(ev.NotConfirmed(3, Refusal.MEMORY_FULL))
    (refused,) = commands
    assert (refused.ref, refused.origin, refused.reason) == (3, origin, "memory_full")
    gone = {"foreign.received": 1, "foreign.answered": 1} if path else {}
    assert node.ledger == before | gone
    assert node.tell(ev.NotConfirmed(3, Refusal.MEMORY_FULL)) == []
    told = node.machine.decider.log.tell("r3")[-1]
    assert (told["outcome"], told["reason"]) == ("refused", "memory_full")


def test_a_server_that_was_held_in_vain_takes_the_next(late):
    """Which was confirmed before."""
    node = late()
    node.arrive(1)
    node.arrive(2)
    node.tell(ev.Confirmed(2))
    refused, start = node.tell(ev.NotConfirmed(1, Refusal.MEMORY_FULL), 1.0)
    assert isinstance(refused, ev.Refuse)
    assert start == node.start(2, 1.0)
    assert node.ledger == {"home.accepted": 1, "home.running": 1}


@pytest.mark.parametrize(
    "event", [ev.Cancelled, ev.CancelAsked, None], ids=["left", "asked", "late"]
)
@pytest.mark.parametrize("where", ["running", "queued", "away"])
@pytest.mark.parametrize("is_confirmed", [True, False])
def test_what_ends_before_it_is_confirmed_never_begins(late, where, event, is_confirmed):
    """Cancelled or expired: the answer waits for the word, whatever that is, since it is an answer
    to what nobody has begun. Nothing is stopped, recalled or held for it."""
    node = late()
    node.hear(0, 1)
    if where != "running":
        full(node)
    node.arrive(3, away=where == "away", deadline_s=5.0)
    asked_away = event is ev.CancelAsked and where == "away"
    commands = node.wake(5.0) if event is None else node.tell(event(3), 1.0)
    assert commands == []
    told = ev.Confirmed(3) if is_confirmed else ev.NotConfirmed(3, Refusal.MEMORY_FULL)
    commands = node.tell(told, 5.0)
    if asked_away and is_confirmed:  # its time is over besides
        assert commands[-1].answer.outcome is Outcome.EXPIRED
    if is_confirmed:
        assert commands[0] == ev.Accepted(3)
    (reply,) = [command for command in commands if not isinstance(command, ev.Accepted)]
    assert reply.answer.outcome in (Outcome.CANCELLED, Outcome.EXPIRED)
    assert node.machine.servers.busy == (where != "running")
    assert not node.machine.servers.stuck


def test_what_is_confirmed_too_late_does_not_start(late):
    """No timer has rung yet."""
    node = late()
    node.arrive(1, deadline_s=1.0)
    accepted, reply = node.tell(ev.Confirmed(1), 1.0)
    assert accepted == ev.Accepted(1)
    assert reply.answer.outcome is Outcome.EXPIRED
    assert node.machine.servers.busy == 0


def test_a_cancel_of_what_is_to_leave_goes_the_same_way(late):
    """Handed over, then cancelled: its link knows that it has not left."""
    node = late()
    node.hear(0, 1)
    full(node)
    node.arrive(3, away=True)
    assert node.tell(ev.CancelAsked(3)) == []
    assert node.tell(ev.Confirmed(3)) == [
        ev.Accepted(3),
        node.forward(3, 1),
        ev.AskCancel(3, 1),
    ]


def test_a_forward_to_one_that_has_left_is_decided_again(late):
    """It surely was not delivered."""
    node = late()
    node.hear(0, 1)
    full(node)
    node.arrive(3, away=True)
    node.part_from(1)
    node.draws.coming.append(0.99)
    assert node.tell(ev.Confirmed(3)) == [ev.Accepted(3), node.forward(3, 0)]


def test_what_is_refused_is_not_asked_about(late):
    """Nothing is to be remembered of it."""
    node = late(queue_limit=0)
    node.arrive(1)
    (refused,) = node.arrive(2)
    assert isinstance(refused, ev.Refuse)


class Looker:
    """Feeds a machine and looks at what leaves it: nothing about what is not confirmed."""

    def __init__(self, seed):
        self.random = Random(seed)
        settings = NodeSettings(cluster="a", servers=2, policy="two-choice", queue_limit=4)
        neighbors = [("b", 0.0), ("c", 0.0)]
        self.machine = ConfirmingMachine(settings, neighbors, Random(seed), 0.0)
        self.asked, self.confirmed, self.ended = set(), set(), set()
        self.running, self.away = set(), set()
        self.now_s = 0.0

    def feed(self, event):
        for command in self.machine.handle(event, self.now_s):
            if hasattr(command, "ref"):
                self.look_at(command, command.ref)
        self.machine.check()

    def look_at(self, command, ref):
        kind = type(command)
        if kind is ev.Confirm:
            self.asked.add(ref)
            return
        assert ref in self.confirmed or (kind is ev.Refuse and ref not in self.asked), command
        if kind in {ev.Reply, ev.Refuse}:
            assert ref not in self.ended
            self.ended.add(ref)
            self.away.discard(ref)
        elif kind is ev.Start:
            assert command.at_s < command.deadline_s
            self.running.add(ref)
        elif kind is ev.Forward:
            self.away.add(ref)

    def some(self, refs):
        """Of these, each three times in ten."""
        return [ref for ref in sorted(refs) if self.random.random() < 0.3]

    def arrive(self, ref):
        choice = self.random.choice
        path = choice([(), (), ("b",)])
        request = Request(f"r{ref}", choice([True, False]), None, path)
        deadline_s = self.now_s + choice([0.3, 60.0])
        self.feed(ev.Arrived(ref, request, deadline_s, 0 if path else ev.HOME))

    def move_on(self):
        """Some are confirmed or cannot be, end, or come back."""
        choice = self.random.choice
        for ref in self.some(self.asked - self.confirmed):
            self.confirmed.add(ref)
            failed = ev.NotConfirmed(ref, Refusal.MEMORY_FULL)
            self.feed(choice([ev.Confirmed(ref), ev.Confirmed(ref), failed]))
        for ref in self.some(self.running):
            self.running.discard(ref)
            self.feed(ev.ServiceEnded(ref, Outcome.DONE, 0.1))
        for ref in self.some(self.away):
            self.away.discard(ref)
            answered = ev.ForwardAnswered(ref, Answer(Outcome.DONE, ("a", "b")), 0.0, 0.0)
            self.feed(choice([answered, ev.ForwardRefused(ref), ev.ForwardLost(ref)]))


@pytest.mark.parametrize("seed", all_in_soak(range(30), 2))
def test_whatever_happens_nothing_is_told_before_its_confirmation(seed):
    """Requests, ends, refusals, losses, cancels, drains and confirmations in any order: each is
    refused or answered once, and what is not confirmed is neither told, started nor sent."""
    looker = Looker(seed)
    random = looker.random
    for ref in range(1, 400):
        looker.now_s += random.expovariate(8.0)
        for y in (0, 1):
            report = LoadReport(1, ref, 1.0, 1.0, 0, 2, True, ("a",))
            looker.feed(ev.ReportReceived(y, report))
        looker.arrive(ref)
        looker.move_on()
        looker.feed(random.choice([ev.Cancelled, ev.CancelAsked])(random.randint(1, ref)))
        looker.feed(random.choice([ev.TimerFired, ev.TimerFired, ev.Drain, ev.Resume])())
    assert len(looker.confirmed) > 100
    waiting = looker.asked - looker.confirmed
    assert looker.ended | {*looker.machine.register.visits} | waiting == set(range(1, 400))
