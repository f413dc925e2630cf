"""The policy `shared`: one queue for all clusters, without distance. What no federation can beat.

One FIFO before all servers, wherever they are; no links, no reports, no decisions. It is the same
machine as a cluster's, told that it has all the servers and room for all that the queues hold, so
that deadlines and refusals are those of the other policies.

What is unlike: each server keeps the service time of its cluster, and of the free ones the fastest
is taken. The delivery is the mean over the servers: it occupies none of them, so that only its
mean tells. Every request counts as served at its home, without a hop.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from spillover.core.overflow import events as ev
from spillover.model.ids import ClusterId
from spillover.model.request import Answer, Outcome
from spillover.model.schedule import Arrival, Schedule
from spillover.model.topology import Cluster, Topology
from spillover.sim.engine.world import World
from spillover.sim.overflow.alike import check_alike
from spillover.sim.overflow.federation import SimCluster, request_of
from spillover.sim.overflow.run import PROGRESS_EVERY, OverflowRun, check_length

SHARED = "shared"
"""The policy's name, and the id of the one cluster that stands for all."""


@dataclass(frozen=True, slots=True)
class ServerKind:
    """Servers with the same service time."""

    service_s: float
    servers: int


class SharedRun(OverflowRun):
    """The outcome of one run; the topology is the one that was asked for."""

    def as_dict(self) -> dict[str, Any]:
        return super().as_dict() | {"policy": SHARED}


def merged(topology: Topology) -> Topology:
    """Returns all clusters as one, with every server and the sum of the queues, and no links."""
    clusters = topology.clusters
    whole = Cluster(
        id=ClusterId(SHARED),
        servers=sum(cluster.server_count for cluster in clusters),
        service_ms=_mean_over_servers(clusters, [cluster.service_ms for cluster in clusters]),
        delivery_ms=_mean_over_servers(clusters, [cluster.delivery_ms for cluster in clusters]),
        queue_limit=sum(cluster.queue_limit for cluster in clusters),
    )
    return replace(topology, clusters=(whole,), links=(), policy="isolated")


def server_kinds(topology: Topology) -> list[ServerKind]:
    """Returns the servers of all clusters by service time, the fastest first."""
    servers: Counter[float] = Counter()
    for cluster in topology.clusters:
        servers[cluster.service_ms / 1e3] += cluster.server_count
    return [ServerKind(service_s, servers[service_s]) for service_s in sorted(servers)]


def _mean_over_servers(clusters: tuple[Cluster, ...], values: list[float]) -> float:
    if len(set(values)) == 1:
        return values[0]
    weighted = (c.server_count * value for c, value in zip(clusters, values, strict=True))
    return sum(weighted) / sum(cluster.server_count for cluster in clusters)


class SharedQueue(SimCluster):
    """The one cluster, whose servers need not be alike."""

    def __init__(self, topology: Topology, world: World, seed: int) -> None:
        super().__init__(merged(topology), ClusterId(SHARED), world, seed)
        self._kinds = server_kinds(topology)
        self._free = [kind.servers for kind in self._kinds]
        self._kind_of: dict[int, int] = {}

    def _start(self, command: ev.Start) -> None:
        kind = next(k for k, free in enumerate(self._free) if free)
        self._free[kind] -= 1
        self._kind_of[command.ref] = kind
        if command.request.work is None:
            command.request.work = self._kinds[kind].service_s
        super()._start(command)

    def _served(self, ref: int, service_s: float) -> None:
        if ref in self._serving:
            self._release(ref)
        super()._served(ref, service_s)

    def _stop(self, command: ev.Stop) -> None:
        if command.ref in self._serving:
            self._release(command.ref)
        super()._stop(command)

    def _release(self, ref: int) -> None:
        self._free[self._kind_of.pop(ref)] += 1


def run_shared(
    topology: Topology,
    schedule: Schedule,
    seed: int,
    on_progress: Callable[[int], None] | None = None,
) -> SharedRun:
    """Send the schedule to the one queue and wait until every request has its answer.

    Raises InputError as `check_alike` and `check_length`, and for the same schedules as the other policies do.
    """
    check_alike(topology)
    check_length(topology, max((arrival.time_s for arrival in schedule), default=0.0))
    world = World()
    queue = SharedQueue(topology, world, seed)
    ids = topology.cluster_ids
    run = SharedRun(topology, {c: [] for c in ids}, {c: Counter() for c in ids})
    started_s = time.perf_counter()

    def ended(outcome: str) -> None:
        run.outcomes[outcome] += 1
        run.ended += 1
        if on_progress is not None and run.ended % PROGRESS_EVERY == 0:
            on_progress(run.ended)

    def submit(number: int, arrival: Arrival) -> None:
        def answered(answer: Answer) -> None:
            ended(answer.outcome)
            if answer.outcome is Outcome.DONE:
                run.system_time_ms[arrival.cluster].append(answer.total_s * 1e3)
                run.hops[arrival.cluster][0] += 1

        def refused(_: ev.Refuse) -> None:
            ended("refused")

        work = None if arrival.service_ms is None else arrival.service_ms / 1e3
        request = request_of(number, arrival.id, work, arrival.type)
        deadline_s = world.now_s + topology.default_deadline_ms / 1e3
        queue.submit(request, deadline_s, answered, refused)

    for number, arrival in enumerate(schedule):
        world.at(arrival.time_s, submit, number, arrival)
    world.run(lambda: run.ended == len(schedule))
    queue.machine.check()
    run.wall_s = time.perf_counter() - started_s
    run.events = world.happened
    run.queue_length_max = queue.queue_length_max
    return run
