"""The settings of a cluster: all but its neighbors."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple

from spillover.core.overflow.held import UNLIMITED_BYTES
from spillover.model.ids import ClusterId
from spillover.model.server_bounds import ServerBounds
from spillover.model.topology import Cluster, Topology
from spillover.model.type_groups import TypeGroups
from spillover.model.unlike_servers import UnlikeServers

_USUAL: Final[dict[str, Any]] = {
    field.name: field.default for owner in (Cluster, Topology) for field in fields(owner)
}

NO_GROUPS: Final = TypeGroups((), frozenset())


class Carried(NamedTuple):
    """The numbers of requests that were here when limits were last changed: none was sent away."""

    away: int = 0
    visits: int = 0
    request_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """The settings of a cluster at its start, and those that a configuration changes. `service_s`
    is the first guess of the mean service."""

    cluster: ClusterId
    servers: int
    """The number of servers. If it is learned, this is the number at the start, then the believed
    one."""
    policy: str
    shadow: str | None = None
    node: int = 1
    nodes: int = 1
    """The number of nodes of the site; this one is `node`, counted from 1."""
    service_s: float = _USUAL["service_ms"] / 1e3
    delivery_s: float = _USUAL["delivery_ms"] / 1e3
    queue_limit: int = _USUAL["queue_limit"]
    held_limit_bytes: int = UNLIMITED_BYTES
    max_hops: int = _USUAL["max_hops"]
    gossip_period_s: float = _USUAL["gossip_period_ms"] / 1e3
    epoch: int = 1
    records_max: int = 8192
    bounds: ServerBounds | None = None
    """The bounds of the number of servers; None where it is not learned."""
    pool: UnlikeServers | None = None
    """The pool; None where the servers are alike."""
    type_groups: TypeGroups = NO_GROUPS
    failure_statuses: tuple[int, ...] | None = None
    """The statuses of the cluster's service that count against it; see
    `model.service_statuses.is_failure`."""
    asks: bool = False
    """True if the cluster asks its service whether it is well again, by a request of its own."""
    passes: bool = False
    """True if requests pass through to a service as they are, and answers as they come."""
    affinity: bool = False
    """True if clients' requests have sessions. The work that is missing where a session has not run
    is then weighed between the cluster and its neighbors."""
    counts_work: bool = False
    """True if requests state their sizes, and waiting requests are counted by how long they are
    expected to run. It is only for one node alone, with servers that are alike."""
    foreign_limit: int = field(init=False)
    """The length of the queue up to which neighbors' requests are taken; see `admission`."""
    away_limit: int = field(init=False)
    """The number of requests that may be away. A cluster without a queue still hands on what its
    servers could be doing. If the number of servers is learned, its largest value counts, since
    links are made once and for all."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "foreign_limit", self.queue_limit - self.queue_limit // 10)
        servers = self.servers if self.bounds is None else self.bounds.max
        object.__setattr__(self, "away_limit", max(self.queue_limit, servers))

    @classmethod
    def of(
        cls, topology: Topology, cluster_id: str, *, node: int = 1, epoch: int = 1
    ) -> NodeSettings:
        """Returns the settings of one node of a cluster of a topology, in seconds."""
        cluster = topology.cluster(cluster_id)
        return cls(
            cluster=cluster.id,
            servers=cluster.server_count,
            policy=topology.policy,
            shadow=topology.shadow,
            node=node,
            nodes=cluster.node_count,
            service_s=cluster.service_ms / 1e3,
            delivery_s=cluster.delivery_ms / 1e3,
            queue_limit=cluster.queue_limit,
            held_limit_bytes=cluster.held_part_bytes or UNLIMITED_BYTES,
            max_hops=topology.max_hops,
            gossip_period_s=topology.gossip_period_ms / 1e3,
            epoch=epoch,
            bounds=cluster.bounds,
            pool=cluster.pool,
            type_groups=topology.type_groups,
            failure_statuses=cluster.failure_statuses,
            asks=cluster.probe is not None,
            passes=cluster.passes,
            affinity=cluster.weighs_between_sites,
            counts_work=cluster.counts_work,
        )
