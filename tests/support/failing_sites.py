"""Federations in virtual time in which sites fail their work, and what comes of their clients'
requests. Everything is checked on the way (`sim.overflow.checkers`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from spillover.model.faults import ClusterFault, FaultSchedule
from spillover.model.request import Outcome
from spillover.model.topology import Cluster, Link, Topology
from spillover.sim.engine.world import World
from spillover.sim.overflow.checkers import Checker
from spillover.sim.overflow.faults import Faults, build_faulty_federation
from spillover.sim.overflow.federation import request_of

LOOK_S = 0.02


def two_sites(*, servers=2, service_ms=100.0, delay_ms=35.0, policy="paper"):
    """Paris and Tokyo, each with a capacity of 20 requests/s unless told otherwise."""
    clusters = tuple(
        Cluster(id=name, servers=servers, service_ms=service_ms) for name in ("paris", "tokyo")
    )
    link = Link(between=("paris", "tokyo"), delay_ms=delay_ms)
    return Topology(name="two-sites", clusters=clusters, links=(link,), policy=policy)


def failing(at_s=0.0, share=1.0, cluster="tokyo", **how):
    """A fault: from then on this share fails, 1 ms after it was started unless told otherwise."""
    how = {"fail_ms": 1.0, "status": 500, **how}
    return ClusterFault(at_s=at_s, action="failing", cluster=cluster, share=share, **how)


@dataclass
class Played:
    """What came of it: ends by home, the instants of errors, and of Tokyo's changes of state."""

    ends: list = field(default_factory=list)
    """(instant, home, outcome, where it was run)"""
    changes: dict = field(default_factory=dict)
    """By cluster: the instants at which it became degraded, and well again."""
    clusters: dict = field(default_factory=dict)

    def errors(self, home):
        """The instants at which clients of this home were not served."""
        return [at_s for at_s, at, outcome, _ in self.ends if at == home and outcome != "done"]

    def done_at(self, cluster, from_s, until_s):
        """How many were done by this cluster's servers between these instants."""
        return sum(
            outcome == "done" and place == cluster and from_s <= at_s < until_s
            for at_s, _, outcome, place in self.ends
        )


def draw_arrivals(seed, rates, lasts_s):
    """(instant, home) of all requests, in order."""
    random = Random(f"{seed}/failing sites")
    arrivals = []
    for home, rate in rates.items():
        at_s = random.expovariate(rate) if rate else lasts_s
        while at_s < lasts_s:
            arrivals.append((at_s, home))
            at_s += random.expovariate(rate)
    return sorted(arrivals)


def watch_health(world, clusters, lasts_s):
    """By cluster, filled in as time goes on: when it became degraded, and well again."""
    states = dict.fromkeys(clusters, False)
    changes = {name: [] for name in clusters}

    def look():
        for name, cluster in clusters.items():
            degraded = cluster.machine.health.degraded
            if degraded != states[name]:
                states[name] = degraded
                changes[name].append(world.now_s)
        if world.now_s < lasts_s:
            world.at(world.now_s + LOOK_S, look)

    world.at(0.0, look)
    return changes


def play(
    seed, faults, *, paris=40.0, tokyo=10.0, rates=None, lasts_s=30.0, keyed=False, topology=None
):
    """Requests come at these rates, at random, until `lasts_s`; the story goes on until each has
    come to an end. `rates` are by cluster, where it is not Paris and Tokyo."""
    topology = topology or two_sites()
    faults = sorted(faults, key=lambda fault: fault.at_s)
    world, played, checker = World(), Played(), Checker(seed, topology.max_hops)
    clusters, channels = build_faulty_federation(topology, world, seed, checker)
    Faults(FaultSchedule("failing", tuple(faults)), world, clusters, channels)
    played.clusters = clusters
    arrivals = draw_arrivals(seed, rates or {"paris": paris, "tokyo": tokyo}, lasts_s)

    def ended(home, outcome, place=None):
        played.ends.append((world.now_s, home, outcome, place))

    def submit(number):
        _, home = arrivals[number]
        request = request_of(number, None, None, "default", keyed=keyed)
        client = checker.submitted(request, clusters[home])

        def answered(answer):
            checker.answered(client, answer, world.now_s)
            ended(home, answer.outcome.value, answer.path[-1])

        def refused(reason):
            checker.refused(client, world.now_s)
            ended(home, f"refused: {reason}")

        deadline_s = world.now_s + topology.default_deadline_ms / 1e3
        clusters[home].submit(request, deadline_s, answered, refused)

    played.changes = watch_health(world, clusters, lasts_s)
    world.at_each([at_s for at_s, _ in arrivals], submit)
    world.run(lambda: len(played.ends) == len(arrivals))
    for cluster in clusters.values():
        cluster.machine.check()
    return played


def count_failed(played):
    """Of all clients' requests."""
    return sum(outcome == Outcome.FAILED for _, _, outcome, _ in played.ends)
