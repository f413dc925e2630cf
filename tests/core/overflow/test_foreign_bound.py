"""How many of the neighbors' requests wait at a cluster that goes by load, whatever happens."""

from __future__ import annotations

from random import Random

import pytest

from spillover.core.overflow import events as ev
from spillover.core.overflow.machine import NodeMachine
from spillover.core.overflow.settings import NodeSettings
from spillover.model.load import LoadNow, LoadReport
from spillover.model.request import Outcome, Refusal, Request
from support.few import all_in_soak

B = 0


class Crowded:
    """A cluster with overloaded neighbors, in which anything happens; looked at from outside, with
    what the pool itself holds."""

    def __init__(self, seed):
        self.random = random = Random(seed)
        self.servers = random.randrange(1, 4)
        told = NodeSettings(cluster="a", servers=self.servers, policy="adaptive", queue_limit=9999)
        self.machine = NodeMachine(told, [("b", 0.01), ("c", 0.05)], random, 0.0)
        self.now_s, self.refs, self.sequence = 0.0, 0, 0
        self.running, self.away = [], []
        self.most = self.refused = self.pulled = 0

    def feed(self, event):
        for command in self.machine.handle(event, self.now_s):
            if isinstance(command, ev.Start):
                self.running.append(command.ref)
            elif isinstance(command, ev.Forward):
                self.away.append(command.ref)
            elif isinstance(command, ev.Refuse):
                assert command.origin != ev.HOME
                self.refused += command.reason is Refusal.QUEUE_FULL
            elif isinstance(command, ev.Reply | ev.Stop):
                self.away = [ref for ref in self.away if ref != command.ref]

    def load(self):
        self.sequence += 1
        return LoadNow(1, self.sequence, self.random.randrange(-3, 20), 1.2, accepting=True)

    def arrive(self, *, is_home):
        self.refs += 1
        request = Request(f"r{self.refs}", True, None, () if is_home else ("b",))
        if is_home:
            self.feed(ev.Arrived(self.refs, request, self.now_s + 1e6))
            self.look(self.refs)
        else:
            pulled = self.random.random() < 0.2
            self.pulled += pulled
            arrived = ev.Arrived(self.refs, request, self.now_s + 1e6, B, self.load(), pulled)
            self.feed(arrived)

    def look(self, ref):
        """How many that neighbors have pushed here stand before this home request."""
        before = 0
        for visit in self.machine.servers:
            if visit.ref == ref:
                self.most = max(self.most, before)
                assert before <= 2 * self.servers, "home work waits for more than was promised"
            before += not (visit.is_home or visit.pulled or visit.tried)

    def step(self):
        random, chance = self.random, self.random.random()
        self.now_s += 0.01 * random.random()
        if chance < 0.35:
            self.arrive(is_home=False)
        elif chance < 0.5:
            self.arrive(is_home=True)
        elif chance < 0.75 and self.running:
            ref = self.running.pop(random.randrange(len(self.running)))
            self.feed(ev.ServiceEnded(ref, Outcome.DONE, 0.04))
        elif chance < 0.85 and self.away:
            ref = self.away.pop(random.randrange(len(self.away)))
            self.feed(random.choice((ev.ForwardRefused, ev.ForwardLost))(ref))
        elif chance < 0.9:
            self.feed(ev.WorkAsked(random.randrange(2), self.load()))
        else:
            self.sequence += 1
            told = {"ahead": random.randrange(-3, 20), "departure_s": 0.02}
            report = LoadReport(1, self.sequence, 0.5, 0.5, 3, 2, True, ("a",), **told)
            self.feed(ev.ReportReceived(random.randrange(2), report))
        self.machine.check()


@pytest.mark.parametrize("seed", all_in_soak(range(6), 3))
def test_a_home_request_finds_few_foreign_ones_before_it(seed):
    """2 m at most of those that neighbors pushed, whatever happens. What was asked for has had a
    server; what comes back from a neighbor had its place before."""
    cluster = Crowded(seed)
    for _ in range(1000):
        cluster.step()
    assert cluster.most >= 2 * cluster.servers - 1, "the bound was never reached"
    assert cluster.refused
    assert cluster.pulled
