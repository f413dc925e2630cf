"""Clusters that become neighbors of others while work is under way, and cease to be."""

from __future__ import annotations

from collections import Counter

import pytest

from spillover.core.overflow import events as ev
from spillover.core.overflow.parting import PART_S_MAX
from spillover.model.request import Outcome
from spillover.model.topology import Cluster, Link, Topology
from spillover.sim.engine.world import World, stream
from spillover.sim.overflow.federation import build_federation, request_of
from support.few import few_at_first

DELAY_S = 0.005

SLOWER = 4.0
"""So that a link closes within the spell in which it is parted from."""

SETTLED = 0.6
"""Of a spell: by then nothing runs there that was sent before."""


class Play:
    """Clusters of which only a and b are linked, and load at a that it cannot bear alone, for six
    spells of one second, or `slower`."""

    def __init__(self, seed, *, keyed=False, slower=1.0):
        told = {"servers": 2, "service_ms": 40 * slower, "queue_limit": 20}
        clusters = tuple(Cluster(id=i, **told) for i in "abc")
        linked = Link(between=("a", "b"), delay_ms=DELAY_S * 1e3)
        self.world, self.keyed, self.slower = World(), keyed, slower
        topology = Topology(name="pairs", clusters=clusters, links=(linked,))
        self.clusters = build_federation(topology, self.world, seed)
        self.ends, self.ran_at = Counter(), Counter()
        times = stream(seed, "times")
        for number in range(600):
            self.world.at(times.random() * 6 * slower, self.submit, number)

    def submit(self, number):
        request = request_of(number, None, 0.04 * self.slower, "default", keyed=self.keyed)
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

    def part(self, one, other):
        for cluster, old in ((one, other), (other, one)):
            handle = self.clusters[cluster].machine.neighbors.index[old]
            self.clusters[cluster].feed(ev.Part(handle))

    def until(self, spells):
        """What ran where since the last time."""
        reached = []
        self.world.at(spells * self.slower, reached.append, True)
        self.world.run(lambda: reached)
        for cluster in self.clusters.values():
            cluster.machine.check()
        ran_at, self.ran_at = self.ran_at, Counter()
        return ran_at


@pytest.mark.parametrize("seed", few_at_first(range(4), 1))
def test_work_follows_who_is_a_neighbor(seed):
    """b, b and c, c alone, nobody, c under another handle, nobody: each request ends once, and none
    is lost with a link."""
    play = Play(seed, slower=SLOWER)
    table = play.clusters["a"].machine.neighbors
    assert set(play.until(1)) == {"a", "b"}
    play.join("a", "c")
    assert set(play.until(2)) == {"a", "b", "c"}
    play.part("a", "b")
    play.until(2 + SETTLED)
    assert set(play.until(3)) == {"a", "c"}
    play.part("a", "c")
    play.until(3 + SETTLED)
    assert set(play.until(4)) == {"a"}
    assert table.index == {}
    play.join("c", "a")
    assert table.index == {"c": 2}
    assert set(play.until(5)) == {"a", "c"}
    play.part("a", "c")
    play.until(5 + SETTLED)
    assert set(play.until(6)) == {"a"}
    play.until(20)
    assert play.ends.total() == 600
    assert play.ends[Outcome.UNKNOWN] == 0
    for cluster in play.clusters.values():
        assert not cluster.machine.register.visits
        assert cluster.machine.servers.busy == 0


def test_nothing_is_lost_where_a_link_is_parted_from():
    """No request has a key, and some are away when both ends hear of it."""
    play = Play(2)
    a, b = play.clusters["a"], play.clusters["b"]
    assert set(play.until(1)) == {"a", "b"}
    assert a.machine.register.away
    play.part("a", "b")
    play.until(4)
    assert a.machine.neighbors.ids == b.machine.neighbors.ids == ()
    assert set(play.until(20)) == {"a"}
    assert play.ends.total() == 600
    assert play.ends[Outcome.UNKNOWN] == 0


def test_one_that_is_parted_from_and_does_not_know_goes_on_until_it_pauses():
    """What it sends is taken for as long as the link stays, and so nothing is lost then either."""
    play = Play(2)
    a, b = play.clusters["a"], play.clusters["b"]
    play.until(1)
    b.feed(ev.Part(0))
    assert set(play.until(5)) == {"a", "b"}
    play.until(20)
    assert (a.machine.neighbors.known, b.machine.neighbors.ids) == ([False], ())
    assert play.ends.total() == 600
    assert play.ends[Outcome.UNKNOWN] == 0


@pytest.mark.slow
def test_one_that_only_the_other_side_has_left_refuses_what_it_is_sent():
    """After a minute in which it has been sent work all the while. It says nothing more then, so
    that soon nothing is sent there."""
    play = Play(1, keyed=True, slower=1.2 * PART_S_MAX / 6)
    play.until(0.1)
    b = play.clusters["b"]
    b.feed(ev.Part(0))
    assert set(play.until(5)) == {"a", "b"}
    play.until(5.4)
    assert b.machine.neighbors.ids == ()
    received = b.machine.ledger.foreign["received"]
    play.until(20)
    assert b.machine.ledger.foreign["received"] == received
    assert play.clusters["a"].machine.neighbors.known == [False]
    assert play.ends.total() == 600
