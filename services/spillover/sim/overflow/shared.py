"""The policy `shared`: one queue for all clusters, without distance. What no federation can beat.

One FIFO before all servers, wherever they are; no links, no reports, no decisions. It is the same
machine as a cluster's, told that it has all the servers and room for all that the queues hold, so
that deadlines and refusals are those of the other policies.

What may be unlike: each server keeps the service time of its cluster, and of the free ones the
fastest is taken. The delivery is the mean over the servers: it occupies none of them, so that only
its mean tells. Every request counts as served at its home, without a hop. Where a cluster has a
list of servers, one pool of all takes the place of the one queue. Tokens, classes and types are
those of the clusters; a job may join all classes that its type may join anywhere. Servers that are
alike are in it one by one, with one token each, and serve every type.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from spillover.core.overflow import events as ev
from spillover.model.errors import InputError
from spillover.model.ids import ClusterId
from spillover.model.schedule import Schedule
from spillover.model.topology import Cluster, Topology
from spillover.model.unlike_servers import QUEUE, REFUSE, JobType, Server, ServerClass
from spillover.sim.engine.world import World
from spillover.sim.overflow.federation import PoolCluster, SimCluster, request_of
from spillover.sim.overflow.outcome import OverflowRun, new_run
from spillover.sim.overflow.run import check_length

SHARED = "shared"
"""The policy's name, and the id of the one cluster that stands for all."""

OTHERS = "others"
"""Stands for all types that no pool names: only servers that are alike serve them."""


@dataclass(frozen=True, slots=True)
class ServerKind:
    """Servers with the same service time."""

    service_s: float
    servers: int


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

    @staticmethod
    def type_of(kind: str) -> str:
        """Returns the type: any server fits."""
        return kind

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


class MergedPool:
    """The servers and classes of all clusters, numbered anew."""

    def __init__(self, topology: Topology) -> None:
        """Raises InputError where clusters serve in different ways."""
        clusters = topology.clusters
        pools = [cluster.pool for cluster in clusters if cluster.pool is not None]
        for what in ("discipline", "order"):
            said = sorted({getattr(pool, what) for pool in pools})
            if len(said) > 1:
                expected = f"expected one {what} in all clusters for policy shared"
                got = " and ".join(said)
                raise InputError(topology.name, "clusters", f"{expected}, got {got}")
        self._discipline, self._order = pools[0].discipline, pools[0].order
        self._refuses = all(cluster.on_block == REFUSE for cluster in clusters)
        self.named = {kind.id for pool in pools for kind in pool.types}
        self._joins: dict[str, tuple[str, ...]] = dict.fromkeys((*sorted(self.named), OTHERS), ())
        self._servers: list[Server] = []
        self._classes: list[ServerClass] = []
        self.services_s: list[float] = []
        """The service time of each server's cluster."""
        for cluster in clusters:
            self._add(cluster)
            added = len(self._servers) - len(self.services_s)
            self.services_s += [cluster.service_ms / 1e3] * added

    def in_one(self, whole: Cluster) -> Cluster:
        """Returns the cluster with this pool. Jobs wait there, unless all clusters refuse them."""
        types = [JobType(id=kind, classes=joins) for kind, joins in self._joins.items() if joins]
        return replace(
            whole,
            servers=tuple(self._servers),
            classes=tuple(self._classes),
            types=tuple(types),
            on_block=REFUSE if self._refuses else QUEUE,
            discipline=self._discipline,
            order=self._order,
        )

    def _add(self, cluster: Cluster) -> None:
        pool = cluster.pool
        if pool is None:
            for _ in range(cluster.server_count):
                class_id = self._class((self._server(1.0),), 1)
                for kind in self._joins:
                    self._joins[kind] += (class_id,)
            return
        servers = {each.id: self._server(each.rate) for each in pool.servers}
        classes = {
            each.id: self._class(tuple(servers[one] for one in each.servers), each.tokens)
            for each in pool.classes
        }
        for named in pool.types:
            self._joins[named.id] += tuple(classes[one] for one in named.classes)

    def _server(self, rate: float) -> str:
        self._servers.append(Server(id=f"s{len(self._servers)}", rate=rate))
        return self._servers[-1].id

    def _class(self, servers: tuple[str, ...], tokens: int | None) -> str:
        name = f"c{len(self._classes)}"
        self._classes.append(ServerClass(id=name, servers=servers, tokens=tokens))
        return name


class SharedPool(PoolCluster):
    """The one cluster, with all servers of a topology that has unlike ones in one pool."""

    def __init__(self, topology: Topology, world: World, seed: int) -> None:
        self._merged = MergedPool(topology)
        whole = merged(topology)
        (one,) = whole.clusters
        whole = replace(whole, clusters=(self._merged.in_one(one),))
        super().__init__(whole, one.id, world, seed)

    def type_of(self, kind: str) -> str:
        return kind if kind in self._merged.named else OTHERS

    def _start(self, command: ev.Start) -> None:
        if command.request.work is None:
            command.request.work = self._merged.services_s[command.server]
        super()._start(command)


def run_shared(
    topology: Topology,
    schedule: Schedule,
    seed: int,
    on_progress: Callable[[int], None] | None = None,
) -> OverflowRun:
    """Send the schedule to the one queue and wait until every request has its answer.

    Raises InputError as `check_length`, and for the same schedules as the other policies do.
    """
    check_length(topology, max((arrival.time_s for arrival in schedule), default=0.0))
    world, run = World(), new_run(topology, schedule, on_progress, SHARED)
    are_alike = all(cluster.pool is None for cluster in topology.clusters)
    queue = (SharedQueue if are_alike else SharedPool)(topology, world, seed)
    started_s = time.perf_counter()

    def submit(number: int) -> None:
        arrival = schedule[number]
        work = None if arrival.service_ms is None else arrival.service_ms / 1e3
        request = request_of(number, arrival.id, work, queue.type_of(arrival.type))
        deadline_s = world.now_s + topology.default_deadline_ms / 1e3
        answered, refused = partial(run.answered, arrival), partial(run.refused, arrival)
        queue.submit(request, deadline_s, answered, refused)

    world.at_each([arrival.time_s for arrival in schedule], submit)
    world.run(lambda: run.ended == len(schedule))
    queue.machine.check()
    run.wall_s = time.perf_counter() - started_s
    run.events = world.happened
    run.queue_length_max = queue.queue_length_max
    return run
