"""Has the faults of a schedule happen to a simulated federation."""

from __future__ import annotations

from collections.abc import Mapping

from spillover.model.faults import (
    ClusterFault,
    Direction,
    Fault,
    FaultSchedule,
    LinkFault,
    TokensFault,
)
from spillover.model.ids import ClusterId
from spillover.sim.engine.world import World
from spillover.sim.overflow.faulty_cluster import FaultyCluster
from spillover.sim.overflow.faulty_pool_cluster import FaultyPoolCluster
from spillover.sim.overflow.network import Channel


class Faults:
    """Makes the schedule's faults happen at their times. `happened` counts them."""

    def __init__(
        self,
        schedule: FaultSchedule,
        world: World,
        clusters: Mapping[ClusterId, FaultyCluster],
        channels: Mapping[Direction, Channel],
    ) -> None:
        self._clusters = clusters
        self._channels = channels
        self.happened = 0
        for fault in schedule.faults:
            world.at(fault.at_s, self._happen, fault)

    @property
    def healed(self) -> bool:
        """Returns whether all is now as if nothing had ever gone wrong, what clocks show aside."""
        sound = all(cluster.sound for cluster in self._clusters.values())
        return sound and not any(channel.impaired for channel in self._channels.values())

    @property
    def longest_delay_s(self) -> float:
        """Of the links as they are now, one way."""
        return max((channel.delay_s for channel in self._channels.values()), default=0.0)

    def _happen(self, fault: Fault) -> None:
        self.happened += 1
        if isinstance(fault, LinkFault):
            for direction in fault.directions:
                self._channels[direction].change(fault)
            return
        cluster = self._clusters[fault.cluster]
        if isinstance(fault, ClusterFault) and fault.action not in {"down", "up"}:
            _happen_to(cluster, fault)
        elif isinstance(cluster, FaultyPoolCluster):  # as the schedule was checked for
            _happen_to_pool(cluster, fault)


def _happen_to(cluster: FaultyCluster, fault: ClusterFault) -> None:
    match fault.action:
        case "crash":
            cluster.crash()
        case "restart":
            cluster.restart()
        case "pause":
            cluster.pause()
        case "resume":
            cluster.resume()
        case "slow":
            cluster.servers.trouble(fault.server).slowness = fault.factor
        case "clock":
            cluster.set_clock(fault.rate, fault.offset_ms / 1e3)
        case "failing":
            cluster.servers.trouble(fault.server).fail(fault)


def _happen_to_pool(cluster: FaultyPoolCluster, fault: ClusterFault | TokensFault) -> None:
    if isinstance(fault, TokensFault):
        cluster.set_tokens(fault)
    elif fault.server is not None:
        (cluster.take_down if fault.action == "down" else cluster.bring_up)(fault.server)
