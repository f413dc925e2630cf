"""Clusters that become neighbors of others while work is under way, and cease to be."""

from __future__ import annotations

from collections import Counter

import pytest

from spillover.core.overflow import events as ev
from spillover.model.request import Outcome
from spillover.model.topology import Cluster, Link, Topology
from spillover.sim.engine.world import World, stream
from spillover.sim.overflow.federation import build_federation, request_of
from support.few import few_at_first

DELAY_S = 0.005
SPELL_S = 1.0


class Play:
    """Clusters of which only a and b are linked, and load at a that it cannot bear alone."""

    def __init__(self, seed, *, keyed):
        clusters = tuple(Cluster(id=i, servers=2, service_ms=40, queue_limit=20) for i in "abc")
        linked = Link(between=("a", "b"), delay_ms=DELAY_S * 1e3)
        self.world, self.keyed = World(), keyed
        topology = Topology(name="pairs", clusters=clusters, links=(linked,))
        self.clusters = build_federation(topology, self.world, seed)
        self.ends, self.ran_at = Counter(), Counter()
        times = stream(seed, "times")
        for number in range(600):
            self.world.at(times.random() * 6 * SPELL_S, self.submit, number)

    def submit(self, number):
        request = request_of(number, None, 0.04, "default", keyed=self.keyed)
        deadline_s = self.world.now_s + 30.0
        self.clusters["a"].submit(request, deadline_s, self.answered, self.refused)

    def answered(self, answer):
        self.ends[answer.outcome] += 1
        if answer.outcome is Outcome.DONE:
            self.ran_at[answer.path[-1]] += 1

    def refused(self, _):
        self.ends["refused"] += 1

    def join(self, one, other):
        for cluster, new in ((one, other), (other, one)):
            self.clusters[cluster].feed(ev.Join(new, DELAY_S))

    def leave(self, one, other):
        for cluster, old in ((one, other), (other, one)):
            handle = self.clusters[cluster].machine.neighbors.index[old]
            self.clusters[cluster].feed(ev.Leave(handle))

    def part(self, one, other):
        for cluster, old in ((one, other), (other, one)):
            handle = self.clusters[cluster].machine.neighbors.index[old]
            self.clusters[cluster].feed(ev.Part(handle))

    def until(self, at_s):
        """What ran where since the last time."""
        reached = []
        self.world.at(at_s, reached.append, True)
        self.world.run(lambda: reached)
        for cluster in self.clusters.values():
            cluster.machine.check()
        ran_at, self.ran_at = self.ran_at, Counter()
        return ran_at


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("seed", few_at_first(range(4), 1))
def test_work_follows_who_is_a_neighbor(seed, keyed):
    """b, b and c, c alone, c under another handle, nobody: each request ends once, and what is not
    known to have run is run again only with a key."""
    play = Play(seed, keyed=keyed)
    table = play.clusters["a"].machine.neighbors
    settle_s = 0.3
    assert set(play.until(SPELL_S)) == {"a", "b"}
    play.join("a", "c")
    assert set(play.until(2 * SPELL_S)) == {"a", "b", "c"}
    play.leave("a", "b")
    play.until(2 * SPELL_S + settle_s)
    assert set(play.until(3 * SPELL_S)) == {"a", "c"}
    play.leave("a", "c")
    play.join("c", "a")
    assert table.index == {"c": 2}
    play.until(3 * SPELL_S + settle_s)
    assert set(play.until(4 * SPELL_S)) == {"a", "c"}
    play.leave("a", "c")
    play.until(4 * SPELL_S + settle_s)
    assert set(play.until(5 * SPELL_S)) == {"a"}
    play.until(20 * SPELL_S)
    assert play.ends.total() == 600
    assert play.ends[Outcome.UNKNOWN] == 0 or not keyed
    for cluster in play.clusters.values():
        assert not cluster.machine.register.visits
        assert cluster.machine.servers.busy == 0


def test_nothing_is_lost_where_a_link_is_parted_from():
    """No request has a key, and some are away when both ends hear of it."""
    play = Play(2, keyed=False)
    a, b = play.clusters["a"], play.clusters["b"]
    assert set(play.until(SPELL_S)) == {"a", "b"}
    assert a.machine.register.away
    play.part("a", "b")
    play.until(4 * SPELL_S)
    assert a.machine.neighbors.ids == b.machine.neighbors.ids == ()
    assert set(play.until(20 * SPELL_S)) == {"a"}
    assert play.ends.total() == 600
    assert play.ends[Outcome.UNKNOWN] == 0


def test_one_that_is_parted_from_and_does_not_know_goes_on_until_it_pauses():
    """What it sends is taken for as long as the link stays, and so nothing is lost then either."""
    play = Play(2, keyed=False)
    a, b = play.clusters["a"], play.clusters["b"]
    play.until(SPELL_S)
    b.feed(ev.Part(0))
    assert set(play.until(5 * SPELL_S)) == {"a", "b"}
    play.until(20 * SPELL_S)
    assert (a.machine.neighbors.known, b.machine.neighbors.ids) == ([False], ())
    assert play.ends.total() == 600
    assert play.ends[Outcome.UNKNOWN] == 0


def test_one_that_only_the_other_side_has_left_refuses_what_it_is_sent():
    """And says nothing more, so that soon nothing is sent there."""
    play = Play(1, keyed=True)
    play.until(SPELL_S)
    b = play.clusters["b"]
    b.feed(ev.Leave(0))
    received = b.machine.ledger.foreign["received"]
    play.until(20 * SPELL_S)
    assert b.machine.ledger.foreign["received"] == received
    assert play.clusters["a"].machine.neighbors.known == [False]
    assert play.ends.total() == 600
