"""Clusters whose acceptances are confirmed by something that takes its time, or fails."""

from __future__ import annotations

from collections import Counter

import pytest

from spillover.core.overflow import events as ev
from spillover.core.overflow.confirming import ConfirmingMachine
from spillover.inputs.topology_file import load_topology
from spillover.model.request import Outcome, Refusal
from spillover.sim.engine.world import World, stream
from spillover.sim.overflow.federation import SimCluster, build_federation, request_of

COUNT = 500


class Confirming(SimCluster):
    """Asks for confirmation, which comes `late_s` later, and fails for a `share`."""

    late_s = share = 0.0

    def _make_machine(self):
        random = stream(self._seed, f"node/{self.id}")
        return ConfirmingMachine(self._settings, self._neighbors, random, self._world.now_s)

    def listen(self, late_s, share):
        self.late_s, self.share = late_s, share
        self.failures, self.confirmed, self.failed = stream(1, self.id), set(), set()
        start = self._interpreters[ev.Start]

        def started(command):
            assert command.ref in self.confirmed, "started before it was confirmed"
            start(command)

        self._interpreters |= {ev.Confirm: self.ask, ev.Start: started}

    def ask(self, command):
        if self.late_s:
            late_s = self.late_s * self.failures.random()
            self._world.at(self._world.now_s + late_s, self.tell, command.ref)
        else:
            self.tell(command.ref)

    def tell(self, ref):
        fails = self.failures.random() < self.share
        (self.failed if fails else self.confirmed).add(ref)
        self.feed(ev.NotConfirmed(ref, Refusal.MEMORY_FULL) if fails else ev.Confirmed(ref))


def play(kind, *, late_s=0.0, share=0.0, seed=1):
    """Load at one cluster of five; the clusters, and how each request ended."""
    world, topology, ends = World(), load_topology("ring5"), {}
    if kind is SimCluster:
        clusters = build_federation(topology, world, seed)
    else:
        clusters = {c: kind(topology, c, world, seed) for c in topology.cluster_ids}
        for cluster in clusters.values():
            cluster.join(clusters)
            cluster.listen(late_s, share)
    times = stream(seed, "times")

    def submit(number):
        request = request_of(number, None, 0.04, "default")
        clusters["a"].submit(
            request,
            world.now_s + 0.4,
            lambda answer: ends.__setitem__(number, answer),
            lambda refusal: ends.__setitem__(number, refusal.reason),
        )

    for number in range(COUNT):
        world.at(times.random() * 1.5, submit, number)
    world.run(lambda: len(ends) == COUNT and world.now_s > 3.0)
    for cluster in clusters.values():
        cluster.machine.check()
        assert not cluster.machine.register.visits
        assert cluster.machine.servers.busy == 0
    return clusters, ends


def test_what_is_confirmed_in_the_same_call_goes_as_without():
    """The same answers, to the bit."""
    _, plain = play(SimCluster)
    _, asked = play(Confirming)
    assert asked == plain
    assert Counter(answer.outcome for answer in plain.values())[Outcome.DONE] > COUNT / 2
    assert any(len(answer.path) > 1 for answer in plain.values())


@pytest.mark.parametrize("share", [0.0, 0.3])
@pytest.mark.parametrize("late_s", [0.005, 0.2])
def test_what_is_confirmed_late_or_never_ends_all_the_same(late_s, share):
    """Each once; what cannot be confirmed at home is refused, and decided again by a neighbor that
    had sent it."""
    clusters, ends = play(Confirming, late_s=late_s, share=share)
    home = clusters["a"].machine.ledger.home
    refused = sum(end == Refusal.MEMORY_FULL for end in ends.values())
    assert home["accepted"] == sum(not isinstance(end, Refusal) for end in ends.values())
    done = sum(getattr(end, "outcome", None) is Outcome.DONE for end in ends.values())
    assert done > COUNT / 10
    for cluster in clusters.values():
        assert share or not cluster.failed
    assert refused <= len(clusters["a"].failed)
    assert bool(refused) == bool(share)
