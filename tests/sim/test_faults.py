"""Federations under faults, in virtual time: what is promised holds whatever is lost.

The network here is not the simulator's, which loses nothing. Forwards and answers vanish or break,
clusters crash with all they hold and come back as another life, links are cut in one direction,
clients cancel, operators drain. A seed is a whole history; a test that fails has it in its name.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

import pytest

from spillover.core import node_events as ev
from spillover.core.node import NodeMachine
from spillover.core.node_settings import NodeSettings
from spillover.model.request import Outcome, Request
from spillover.sim.world import World, stream

LINKS = {("a", "b"): 0.005, ("b", "c"): 0.02, ("c", "d"): 0.001, ("a", "d"): 0.01, ("a", "c"): 0.0}
GOSSIP_S = 0.1
FAULTS_S = 6.0
"""How long there are faults; then all heals."""

REQUESTS = 1000
GIVEN_UP_S = 5.0
"""After so long without a word a forward counts as lost (decision 0008)."""

RECALLED_S = 0.061
"""A cancellation that nobody waits for needs the ways of all hops to get to where the work is."""

CUT_NOTICED_S = 1.3
"""A cut in one direction is noticed there within a second, and told by the next report."""


@dataclass(eq=False)
class Leg:
    """One forward: who handed it to whom, in which of their lives, and under which ref there."""

    sender: Node
    sender_life: int
    receiver: Node
    command: ev.Forward
    receiver_life: int = -1
    there: int | None = None
    over: bool = False
    """The sender does not wait for it any more."""


@dataclass
class Client:
    """One request from outside and what its client was told."""

    request: Request
    home: Node
    life: int
    deadline_s: float
    told: list = field(default_factory=list)
    told_s: float = math.inf
    confirmed: bool = False
    """Its cancellation was asked for, to be confirmed."""


class Node:
    """One cluster: its machine, and what the network knows of it."""

    def __init__(self, cluster, net):
        self.id = cluster
        self.net = net
        self.neighbors = [y for pair in LINKS if cluster in pair for y in pair if y != cluster]
        self.life = 0
        self.refs = 0
        self.begin()

    def begin(self):
        """A new life, with nothing of the one before."""
        self.life += 1
        self.alive = True
        self.incoming = {}
        self.outgoing = {}
        self.serving = set()
        self.callers = {}
        net, told = self.net, {"cluster": self.id, "servers": 2, "queue_limit": 6}
        settings = NodeSettings(
            policy=net.random.choice(["paper", "two-choice"]),
            gossip_period_s=GOSSIP_S,
            epoch=self.life,
            max_hops=3,
            **told,
        )
        ways = [(y, net.delay_s(self.id, y)) for y in self.neighbors]
        random = stream(net.seed, f"{self.id}/{self.life}")
        self.machine = NodeMachine(settings, ways, random, net.world.now_s)
        self.armed_s = math.inf
        self.arm()

    def feed(self, event, life=None):
        """An event for this cluster, in the life given or in any."""
        if not self.alive or life not in {None, self.life}:
            return
        for command in self.machine.handle(event, self.net.world.now_s):
            getattr(self.net, f"on_{type(command).__name__.lower()}")(self, command)
        self.machine.check()
        self.arm()

    def arm(self):
        due_s = self.machine.next_deadline()
        if due_s < self.armed_s:
            self.armed_s = due_s
            self.net.world.at(due_s, self.wake, self.life, due_s)

    def wake(self, life, due_s):
        if (life, due_s) == (self.life, self.armed_s):
            self.armed_s = math.inf
            self.feed(ev.Woke(), life)

    def receive(self, request, deadline_s, origin, caller):
        """A request comes in; its ref. The caller is told of the answer or (None) the refusal."""
        assert self.id not in request.path, "a cluster was visited twice"
        self.refs += 1
        ref = self.refs
        self.callers[ref] = caller
        self.feed(ev.Arrived(ref, request, deadline_s, origin))
        return ref


class Net:
    """The clusters, the links between them, and what goes wrong there."""

    def __init__(self, seed):
        self.seed = seed
        self.random = stream(seed, "faults")
        self.world = World()
        self.cuts = set()
        self.changed_s = {}
        """When each direction of a link was last cut or mended."""
        self.healed = False
        self.starts = Counter()
        self.started_s = {}
        self.harmed = set()
        """Requests of which something was lost on the way."""
        self.seen = Counter()
        self.nodes = {cluster: Node(cluster, self) for cluster in "abcd"}
        self.clients = []

    def delay_s(self, x, y):
        return LINKS[min(x, y), max(x, y)]

    def soon(self, x, y, happen, *args):
        """A message's time from x to y later."""
        self.world.at(self.world.now_s + self.delay_s(x.id, y.id), happen, *args)

    def is_cut(self, x, y):
        return (x.id, y.id) in self.cuts

    def chance(self, probability):
        return not self.healed and self.random.random() < probability

    # --- forwards and what comes back ---------------------------------------------------------

    def on_forward(self, x, command):
        y = self.nodes[x.neighbors[command.neighbor]]
        leg = x.outgoing[command.ref] = Leg(x, x.life, y, command)
        self.seen["forwards"] += 1
        if self.is_cut(x, y):
            since_s = max(self.changed_s[x.id, y.id], self.changed_s.get((y.id, x.id), 0.0))
            assert self.world.now_s <= since_s + CUT_NOTICED_S, "sent into a cut long known"
        if self.is_cut(x, y) or self.chance(0.03):
            self.vanish(leg)
        else:
            self.soon(x, y, self.arrive, leg)

    def vanish(self, leg):
        """The sender finds out at once, from a reset, or after a long silence."""
        self.harmed.add(leg.command.request.id)
        after_s = GIVEN_UP_S if self.random.random() < 0.5 else 0.02
        self.world.at(self.world.now_s + after_s, self.lose, leg)

    def lose(self, leg):
        if not leg.over:
            self.seen["lost"] += 1
            self.hang_up(leg)
            leg.sender.feed(ev.ForwardLost(leg.command.ref), leg.sender_life)

    def arrive(self, leg):
        x, y, command = leg.sender, leg.receiver, leg.command
        if x.life != leg.sender_life or not x.alive:
            return
        if not y.alive:
            self.soon(y, x, self.come_back, leg, ev.ForwardRefused(command.ref))
            return
        leg.receiver_life = y.life
        origin = y.neighbors.index(x.id)
        there = leg.there = y.refs + 1
        y.incoming[there] = leg

        def caller(answer):
            del y.incoming[there]
            self.answer(leg, answer)

        y.receive(command.request, command.deadline_s, origin, caller)

    def answer(self, leg, answer):
        """The receiver has an answer or (None) refuses."""
        x, y, ref = leg.sender, leg.receiver, leg.command.ref
        if self.is_cut(y, x) or self.chance(0.03):
            self.vanish(leg)
            return
        way_s = self.delay_s(x.id, y.id)
        event = ev.ForwardRefused(ref)
        if answer is not None:
            event = ev.ForwardAnswered(ref, answer, way_s, way_s)
        self.seen["refused" if answer is None else "answered"] += 1
        self.soon(y, x, self.come_back, leg, event)

    def come_back(self, leg, event):
        if not leg.over:
            leg.over = True
            leg.sender.outgoing.pop(leg.command.ref, None)
            leg.sender.feed(event, leg.sender_life)

    def hang_up(self, leg):
        """The sender lets go; the receiver sees that, unless the way there is cut."""
        x, y = leg.sender, leg.receiver
        leg.over = True
        if x.life == leg.sender_life:
            x.outgoing.pop(leg.command.ref, None)
        if self.is_cut(x, y):
            self.harmed.add(leg.command.request.id)
        else:
            self.soon(x, y, self.tell_receiver, leg, ev.Cancelled)

    def tell_receiver(self, leg, kind):
        if leg.there in leg.receiver.incoming and leg.receiver_life == leg.receiver.life:
            leg.receiver.feed(kind(leg.there))

    def on_recall(self, x, command):
        self.hang_up(x.outgoing[command.ref])

    def on_askcancel(self, x, command):
        leg = x.outgoing[command.ref]
        if self.is_cut(x, leg.receiver) or self.chance(0.1):
            self.harmed.add(leg.command.request.id)
        else:
            self.soon(x, leg.receiver, self.tell_receiver, leg, ev.CancelAsked)

    # --- services and clients -----------------------------------------------------------------

    def on_accepted(self, x, command):
        pass

    def on_start(self, x, command):
        name, now_s = command.request.id, self.world.now_s
        self.starts[name] += 1
        self.started_s[name] = now_s
        assert command.deadline_s > now_s, "expired work started"
        x.serving.add(command.ref)
        service_s = command.request.work
        self.world.at(now_s + service_s, self.served, x, x.life, command.ref, Outcome.DONE)

    def on_stop(self, x, command):
        """Every other handler cannot be stopped."""
        if command.ref % 2:
            now_s = self.world.now_s
            self.world.at(now_s, self.served, x, x.life, command.ref, Outcome.CANCELLED)

    def served(self, x, life, ref, outcome):
        if life == x.life and ref in x.serving:
            x.serving.remove(ref)
            x.feed(ev.ServiceEnded(ref, outcome, 0.04), life)

    def on_reply(self, x, command):
        x.callers.pop(command.ref)(command.answer)

    def on_refuse(self, x, command):
        x.callers.pop(command.ref)(None)

    def on_publish(self, x, command):
        self.tell(x, command.report)

    def on_beat(self, x, _command):
        self.tell(x, None)

    def tell(self, x, report):
        for y in map(self.nodes.get, x.neighbors):
            if not self.is_cut(x, y):
                event = ev.Heard(y.neighbors.index(x.id), report)
                self.soon(x, y, y.feed, event, y.life)

    def come(self, number):
        """A client comes to a cluster, mostly to a, and may change its mind."""
        random, now_s = self.random, self.world.now_s
        home = self.nodes[random.choice("aaabcd")]
        if not home.alive:
            return
        request = Request(f"r{number}", random.random() < 0.5, random.expovariate(25))
        deadline_s = now_s + random.choice([0.1, 0.3, 1.0, 7.0, math.inf])
        client = Client(request, home, home.life, deadline_s)
        self.clients.append(client)

        def caller(answer):
            client.told.append(answer)
            client.told_s = self.world.now_s

        ref = home.receive(request, deadline_s, ev.HOME, caller)
        if random.random() < 0.3:
            client.confirmed = random.random() < 0.5
            kind = ev.CancelAsked if client.confirmed else ev.Cancelled
            self.world.at(now_s + random.random() * 0.3, home.feed, kind(ref), home.life)

    # --- faults -------------------------------------------------------------------------------

    def go_wrong(self):
        """One fault, mended a while later."""
        node = self.nodes[self.random.choice("abcd")]
        x, y = self.random.choice([*LINKS, *(pair[::-1] for pair in LINKS)])
        fault = self.random.choice(["crash", "cut", "cut", "drain", "servers", "policy"])
        mended_s = self.world.now_s + self.random.choice([0.2, 1.0, 2.5])
        self.seen[fault] += 1
        if fault == "crash" and node.alive:
            self.crash(node)
            self.world.at(mended_s, self.restart, node)
        elif fault == "cut" and (x, y) not in self.cuts:
            self.cut(x, y)
            self.world.at(mended_s, self.mend, x, y)
        elif fault == "drain":
            node.feed(ev.Drain())
            self.world.at(mended_s, node.feed, ev.Resume())
        elif fault == "servers":
            node.feed(ev.ServersDown())
            self.world.at(mended_s, node.feed, ev.ServersUp())
        elif fault == "policy":
            node.feed(ev.PolicySet(self.random.choice(["isolated", "paper", "two-choice"])))

    def cut(self, x, y):
        self.cuts.add((x, y))
        self.changed_s[x, y] = self.world.now_s

    def mend(self, x, y):
        self.cuts.remove((x, y))
        self.changed_s[x, y] = self.world.now_s

    def crash(self, node):
        """All that it held is gone; those that gave it work find out, or not for long."""
        node.alive = False
        for leg in node.incoming.values():
            self.vanish(leg)
        for leg in list(node.outgoing.values()):
            self.hang_up(leg)
        for y in map(self.nodes.get, node.neighbors):
            self.soon(node, y, y.feed, ev.LinkDown(y.neighbors.index(node.id)), y.life)

    def restart(self, node):
        node.begin()
        for y in map(self.nodes.get, node.neighbors):
            self.soon(node, y, y.feed, ev.ReportAsked(), y.life)

    def run(self):
        for number in range(REQUESTS):
            self.world.at(self.random.random() * FAULTS_S, self.come, number)
        for _ in range(14):
            self.world.at(self.random.random() * FAULTS_S, self.go_wrong)
        self.world.at(FAULTS_S + 2.6, setattr, self, "healed", True)
        end_s = FAULTS_S + 2.6 + 2 * GIVEN_UP_S
        self.world.run(lambda: self.world.now_s > end_s)


def judge(net):
    """What must hold once all has healed."""
    for node in net.nodes.values():
        machine = node.machine
        assert node.alive
        assert not machine.register.visits, f"{node.id} still holds {machine.ledger.as_dict()}"
        assert machine.servers.busy == len(machine.servers.stuck) == 0
        assert machine.ledger.imbalance() == 0
        assert not node.callers
        assert not node.incoming
        assert not node.outgoing
        assert all(machine.neighbors.accepting), "the federation did not heal"
    for client in net.clients:
        judge_client(net, client)


def judge_client(net, client):
    name, started = client.request.id, net.starts[client.request.id]
    assert client.request.keyed or started <= 1, f"{name} ran {started} times without a key"
    if client.life != client.home.life:
        assert len(client.told) <= 1
        return
    assert len(client.told) == 1, f"{name} was answered {len(client.told)} times"
    (answer,) = client.told
    assert client.told_s <= client.deadline_s, f"{name} was answered after its deadline"
    outcome = "refused" if answer is None else answer.outcome
    net.seen[outcome] += 1
    if answer is None:
        assert started == 0, f"{name} ran although it was refused"
        return
    assert len(set(answer.path)) == len(answer.path)
    assert answer.path[0] == client.home.id
    if outcome is Outcome.DONE:
        assert started >= 1
    if outcome is Outcome.UNKNOWN:
        assert not client.request.keyed
        assert name in net.harmed
    if outcome is Outcome.CANCELLED and name not in net.harmed:
        limit_s = client.told_s + (0.0 if client.confirmed else RECALLED_S)
        assert net.started_s.get(name, 0.0) <= limit_s, f"{name} ran after all"


@pytest.mark.parametrize("seed", range(30))
def test_promises_hold_under_faults(seed):
    """One answer from each home that lives, no unkeyed work twice, nothing left anywhere."""
    net = Net(seed)
    net.run()
    judge(net)


def test_the_histories_are_eventful():
    """All that can happen has happened in six of them; else they would prove little."""
    seen = Counter()
    for seed in range(6):
        net = Net(seed)
        net.run()
        judge(net)
        seen.update(net.seen)
    events = ["forwards", "lost", "refused", "answered", "crash", "cut", "drain", "servers"]
    for what in [*events, *(outcome for outcome in Outcome if outcome is not Outcome.FAILED)]:
        assert seen[what] >= 3, (what, seen)
