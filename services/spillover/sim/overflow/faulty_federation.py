"""The clusters of a topology in which things go wrong, joined by its links."""

from __future__ import annotations

from spillover.model.faults import Direction
from spillover.model.ids import ClusterId
from spillover.model.topology import Topology
from spillover.sim.engine.world import World
from spillover.sim.overflow.faulty_cluster import FaultyCluster, Watch
from spillover.sim.overflow.faulty_pool_cluster import FaultyPoolCluster
from spillover.sim.overflow.network import Channel, build_channels


def build_faulty_federation(
    topology: Topology, world: World, seed: int, watch: Watch | None = None
) -> tuple[dict[ClusterId, FaultyCluster], dict[Direction, Channel]]:
    """Returns all clusters of a topology, joined by its links, all up and heard by their neighbors;
    and the channels of the links."""
    clusters = {
        each.id: (FaultyCluster if each.pool is None else FaultyPoolCluster)(
            topology, each.id, world, seed, watch
        )
        for each in topology.clusters
    }
    channels = build_channels(topology, world, seed)
    for cluster in clusters.values():
        cluster.connect(clusters, channels)
    for cluster in clusters.values():
        for end in cluster.ends.values():
            end.listener.begin()
    return clusters, channels
