"""The policy `shared` where servers are unlike: one pool of all servers, without distance.

Tokens, classes and types are those of the clusters, and each server keeps its speed and the service
time of its cluster. A job takes the longest available token of all classes that its type may join
anywhere, and waits where there is none; it is refused where every cluster would refuse it. Servers
that are alike are in it one by one, with one token each, and serve every type.
"""

from __future__ import annotations

from dataclasses import replace

from spillover.core.overflow import events as ev
from spillover.model.errors import InputError
from spillover.model.ids import ClusterId
from spillover.model.topology import Cluster, Topology
from spillover.model.unlike_servers import QUEUE, REFUSE, JobType, Server, ServerClass
from spillover.sim.engine.world import World
from spillover.sim.overflow.federation import PoolCluster

OTHERS = "others"
"""Stands for all types that no pool names: only servers that are alike serve them."""


class SharedPool(PoolCluster):
    """The one cluster that stands for all of a topology."""

    def __init__(self, whole: Cluster, topology: Topology, world: World, seed: int) -> None:
        """`whole` is the cluster as if all servers were alike."""
        pools = [cluster.pool for cluster in topology.clusters if cluster.pool is not None]
        disciplines = {pool.discipline for pool in pools}
        if len(disciplines) > 1:
            expected = "expected one discipline in all clusters that have one, got ps and fcfs"
            raise InputError("--policy shared", "", expected)
        self._named = {kind.id for pool in pools for kind in pool.types}
        self._services_s: list[float] = []
        """By server: the service time of its cluster."""
        parts = _Parts(dict.fromkeys((*sorted(self._named), OTHERS), ()))
        for cluster in topology.clusters:
            parts.add(cluster)
            added = len(parts.servers) - len(self._services_s)
            self._services_s += [cluster.service_ms / 1e3] * added
        refuses = all(cluster.on_block == REFUSE for cluster in topology.clusters)
        whole = replace(
            whole,
            servers=tuple(parts.servers),
            classes=tuple(parts.classes),
            types=tuple(
                JobType(id=kind, classes=joins) for kind, joins in parts.joins.items() if joins
            ),
            on_block=REFUSE if refuses else QUEUE,
            discipline=disciplines.pop(),
        )
        one = replace(topology, clusters=(whole,), links=(), policy="isolated")
        super().__init__(one, ClusterId(whole.id), world, seed)

    def type_of(self, kind: str) -> str:
        """Returns under which type requests of this one come."""
        return kind if kind in self._named else OTHERS

    def _start(self, command: ev.Start) -> None:
        if command.request.work is None:
            command.request.work = self._services_s[command.server]
        super()._start(command)


class _Parts:
    """What the pool is made of. Servers and classes are numbered anew; `joins` is by type."""

    def __init__(self, joins: dict[str, tuple[str, ...]]) -> None:
        self.servers: list[Server] = []
        self.classes: list[ServerClass] = []
        self.joins = joins

    def add(self, cluster: Cluster) -> None:
        """Add the servers of a cluster."""
        pool = cluster.pool
        if pool is None:
            for _ in range(cluster.server_count):
                class_id = self._class((self._server(1.0),), 1)
                for kind in self.joins:
                    self.joins[kind] += (class_id,)
            return
        servers = {each.id: self._server(each.rate) for each in pool.servers}
        classes = {
            each.id: self._class(tuple(servers[one] for one in each.servers), each.tokens)
            for each in pool.classes
        }
        for kind in pool.types:
            self.joins[kind.id] += tuple(classes[one] for one in kind.classes)

    def _server(self, rate: float) -> str:
        self.servers.append(Server(id=f"s{len(self.servers)}", rate=rate))
        return self.servers[-1].id

    def _class(self, servers: tuple[str, ...], tokens: int | None) -> str:
        name = f"c{len(self.classes)}"
        self.classes.append(ServerClass(id=name, servers=servers, tokens=tokens))
        return name
