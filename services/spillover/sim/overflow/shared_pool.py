"""All servers of a topology as one pool: what `shared` runs where servers are unlike.

Tokens, classes and types are those of the clusters. A job may join all classes that its type may
join anywhere. Servers that are alike are in it one by one, with one token each, and serve every
type.
"""

from __future__ import annotations

from dataclasses import replace

from spillover.model.errors import InputError
from spillover.model.topology import Cluster, Topology
from spillover.model.unlike_servers import QUEUE, REFUSE, JobType, Server, ServerClass

OTHERS = "others"
"""Stands for all types that no pool names: only servers that are alike serve them."""


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
        """Types that pools name."""
        self._joins: dict[str, tuple[str, ...]] = dict.fromkeys((*sorted(self.named), OTHERS), ())
        self._servers: list[Server] = []
        self._classes: list[ServerClass] = []
        self.services_s: list[float] = []
        """By server: the service time of its cluster."""
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
