"""Federations under faults, in virtual time: what is promised holds whatever is lost.

Random faults from the product and everything checked by its checkers; on top of that what no fault
file knows: clients that cancel, operators that drain and change policies, handlers that fail them.
A seed is a whole history; a test that fails has it in its name.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache

import pytest

from spillover.core.overflow import events as ev
from spillover.inputs.random_faults import random_faults
from spillover.model.faults import FaultSchedule, LinkFault
from spillover.model.request import Outcome, Request
from spillover.model.topology import Cluster, Link, Topology
from spillover.sim.engine.world import World, stream
from spillover.sim.overflow.checkers import SETTLE_S, Checker
from spillover.sim.overflow.faults import Faults, build_faulty_federation
from support.few import all_in_soak

DELAYS_S = {
    ("a", "b"): 0.005,
    ("b", "c"): 0.02,
    ("c", "d"): 0.001,
    ("a", "d"): 0.01,
    ("a", "c"): 0.0,
}
TOPOLOGY = Topology(
    name="four",
    clusters=tuple(Cluster(id=x, servers=2, queue_limit=6) for x in "abcd"),
    links=tuple(Link(between=pair, delay_ms=s * 1e3) for pair, s in DELAYS_S.items()),
    gossip_period_ms=100,
    max_hops=3,
)
PASSED = replace(
    TOPOLOGY,
    clusters=tuple(replace(one, handler="proxy:http://127.0.0.1:9") for one in TOPOLOGY.clusters),
)
"""The same, where answers begin before they end."""

FAULTS_S = 6.0
"""How long there are faults; then all heals."""

REQUESTS = 1000
LOSS = 0.03
"""Of all messages, as long as there are faults."""

CUT_NOTICED_S = 1.3
"""A cut in one direction is noticed there within a second, and told by the next report."""


@dataclass
class Asked:
    """One request from outside, and what became of it."""

    request: Request
    deadline_s: float
    outcome: str | None = None
    told_s: float = math.inf
    confirmed: bool | None = None
    """Whether its cancellation was to be confirmed, None if it was not cancelled."""


class Noting(Checker):
    """A checker that also notes of which requests something was lost on the way."""

    def __init__(self, seed):
        super().__init__(seed, TOPOLOGY.max_hops)
        self.harmed = set()

    def before(self, cluster, event, now_s):
        super().before(cluster, event, now_s)
        if isinstance(event, ev.ForwardLost):
            visit = cluster.machine.register.visits.get(event.ref)
            self.harmed.add(visit.request.id if visit is not None else None)


class History:
    """One federation for a while, with clients and operators."""

    def __init__(self, seed, topology=TOPOLOGY):
        self.world, self.random = World(), stream(seed, "history")
        self.checker = Noting(seed)
        self.clusters, channels = build_faulty_federation(topology, self.world, seed, self.checker)
        self.passes = topology is PASSED
        faults = random_faults(TOPOLOGY, seed, FAULTS_S)
        self.seen = Counter(fault.action for fault in faults.faults)
        everywhere = {"directions": tuple(channels), "action": "link"}
        loss = [LinkFault(at_s=t, loss=p, **everywhere) for t, p in ((0, LOSS), (FAULTS_S, 0))]
        lossy = FaultSchedule("lossy", (loss[0], *faults.faults, loss[1]))
        lossy.check(TOPOLOGY)
        self.faults = Faults(lossy, self.world, self.clusters, channels)
        self.asked = []
        self.started_s = {}
        for cluster in self.clusters.values():
            self.watch(cluster)
        for number in range(REQUESTS):
            self.world.at(self.random.random() * FAULTS_S, self.come, number)
        for _ in range(8):
            self.world.at(self.random.random() * FAULTS_S * 0.7, self.operate)

    def watch(self, cluster):
        """Note when work starts; every other handler cannot be stopped."""
        start, stop = cluster._interpreters[ev.Start], cluster._interpreters[ev.Stop]

        def started(command):
            self.started_s[command.request.id] = self.world.now_s
            start(command)

        cluster._interpreters[ev.Start] = started
        cluster._interpreters[ev.Stop] = lambda c: stop(c) if c.ref % 2 else None

    def come(self, number):
        """A client comes to a cluster, mostly to a, and may change its mind."""
        random, now_s = self.random, self.world.now_s
        home = self.clusters[random.choice("aaabcd")]
        keyed, work_s = random.random() < 0.5, random.expovariate(25)
        deadline_s = now_s + random.choice([0.1, 0.3, 1.0, 7.0, math.inf])
        if not home.alive or home.paused:
            return
        request = Request(f"r{number}", keyed, work_s)
        asked, client = Asked(request, deadline_s), self.checker.submitted(request, home)
        self.asked.append(asked)

        def told(outcome, tell):
            asked.outcome, asked.told_s = outcome, self.world.now_s
            tell(client)

        home.submit(
            request,
            deadline_s,
            lambda a: told(a.outcome, lambda c: self.checker.answered(c, a, self.world.now_s)),
            lambda _: told("refused", lambda c: self.checker.refused(c, self.world.now_s)),
            lambda: told("lost", lambda c: self.checker.lost(c, self.world.now_s)),
        )
        if random.random() < 0.3:
            self.world.at(now_s + random.random() * 0.3, self.cancel, asked, home, home._refs)

    def cancel(self, asked, home, ref):
        if asked.outcome is None:
            asked.confirmed = self.random.random() < 0.5
            kind = ev.CancelAsked if asked.confirmed else ev.Cancelled
            home.deliver(home.feed, kind(ref))

    def operate(self):
        """An operator does something, and undoes it a while later."""
        cluster = self.clusters[self.random.choice("abcd")]
        what = self.random.choice(["drain", "servers", "policy"])
        self.seen[what] += 1
        if what == "policy":
            policy = self.random.choice(["isolated", "paper", "two-choice"])
            cluster.deliver(cluster.feed, ev.PolicySet(policy))
            return
        begin, end = (
            (ev.Drain(), ev.Resume()) if what == "drain" else (ev.ServersDown(), ev.ServersUp())
        )
        cluster.deliver(cluster.feed, begin)
        until_s = self.world.now_s + self.random.choice([0.2, 1.0, 1.8])
        self.world.at(until_s, cluster.deliver, cluster.feed, end)

    def play(self):
        reached = []
        self.world.at(FAULTS_S + SETTLE_S, reached.append, True)
        self.world.run(lambda: reached)
        assert self.faults.healed
        self.checker.settled(self.clusters, self.world.now_s, healed=True)
        for cluster in self.clusters.values():
            self.judge_cluster(cluster)
        disturbed = self.passes or any(self.seen[action] for action in ("pause", "clock"))
        for asked in self.asked:
            self.judge_client(asked, disturbed=disturbed)
        self.seen.update(asked.outcome for asked in self.asked)
        self.seen.update(self.checker.seen)

    def judge_cluster(self, cluster):
        machine = cluster.machine
        assert machine.servers.busy == len(machine.servers.stuck) == 0
        assert not cluster._waiting
        assert not cluster._on_begun
        self.seen["truncated"] += machine.truncated
        assert not cluster.servers.running
        assert not cluster.foreign_requests
        assert not any(len(end.link) for end in cluster.ends.values())

    def judge_client(self, asked, *, disturbed):
        """What the checkers do not know of: cancellations, and deadlines by the true time, which
        only a home that stood still or whose clock is wrong may miss, or an answer that had begun
        before."""
        name = asked.request.id
        assert disturbed or asked.told_s <= asked.deadline_s + 1e-9, f"{name} was answered late"
        if asked.outcome is Outcome.CANCELLED:
            assert asked.confirmed is not None
            if asked.confirmed and name not in self.checker.harmed:
                self.seen["confirmed"] += 1
                assert self.started_s.get(name, 0.0) <= asked.told_s, f"{name} ran after all"


@cache
def played(seed, topology=TOPOLOGY):
    """The history of this seed, with what has happened in it; made once."""
    history = History(seed, topology)
    history.play()
    return history.seen


@pytest.mark.parametrize("seed", all_in_soak(range(24), 4))
def test_promises_hold_under_faults(seed):
    """One answer from each home that lives, no unkeyed work twice, nothing left anywhere."""
    played(seed)


@pytest.mark.parametrize("seed", all_in_soak(range(24), 4))
def test_promises_hold_where_answers_begin_before_they_end(seed):
    """Nothing is decided again once its answer has begun, and what breaks off is never done."""
    played(seed, PASSED)


def test_answers_break_off_in_these_histories():
    """Wherever that can happen; else they would prove little."""
    seen = Counter()
    for seed in range(4):
        seen.update(played(seed, PASSED))
    assert seen["ResponseBegan"] > 1000
    assert seen["truncated"] > 20
    for what in [*(outcome for outcome in Outcome if outcome is not Outcome.REJECTED), "refused"]:
        assert seen[what] >= 2, (what, seen)


@pytest.mark.slow
def test_the_histories_are_eventful():
    """Promises hold in all of these, in which all that can happen has happened."""
    seen = Counter()
    for seed in (*range(5), 6, 16):
        seen.update(played(seed))
    faults = ["crash", "pause", "slow", "clock", "failing"]
    faults += ["cut", "link", "drain", "servers", "policy"]
    events = [
        "NotStarted",
        "ForwardAnswered",
        "ForwardRefused",
        "ForwardLost",
        "LinkDown",
        "ReportAsked",
    ]
    outcomes = [outcome for outcome in Outcome if outcome is not Outcome.REJECTED]
    for what in [*faults, *events, *outcomes, "refused", "lost", "confirmed"]:
        assert seen[what] >= 2, (what, seen)


@pytest.mark.parametrize("directions", [(("a", "b"),), (("a", "b"), ("b", "a"))])
def test_nothing_is_sent_for_long_into_a_cut(directions):
    """A second and a report later nobody hands anything on there, while others are still used: what
    is lost there without a deadline stays away, which is fewer than may be."""
    world, forwards = World(), []
    roomy = tuple(replace(one, queue_limit=30) for one in TOPOLOGY.clusters)
    clusters, channels = build_faulty_federation(replace(TOPOLOGY, clusters=roomy), world, 1)
    cut = LinkFault(at_s=1.0, action="cut", directions=directions)
    Faults(FaultSchedule("cut", (cut,)), world, clusters, channels)
    a = clusters["a"]
    forward = a._interpreters[ev.Forward]

    def noted(command):
        forwards.append((world.now_s, a.machine.neighbors.ids[command.neighbor]))
        forward(command)

    a._interpreters[ev.Forward] = noted
    for number in range(800):
        request = Request(f"r{number}", True, 0.04)
        world.at(
            number / 200,
            lambda request=request: a.submit(request, math.inf, lambda _: None, lambda _: None),
        )
    reached = []
    world.at(4.0, reached.append, True)
    world.run(lambda: reached)
    to_b_s = [at_s for at_s, cluster in forwards if cluster == "b"]
    assert [at_s for at_s in to_b_s if at_s < 1.0]
    assert max(to_b_s) < 1.0 + CUT_NOTICED_S
    assert max(at_s for at_s, cluster in forwards if cluster != "b") > 3.5
