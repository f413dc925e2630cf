"""A federation in which things may go wrong is built here, and the faults of a schedule happen to
it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from spillover.core.overflow import events as ev
from spillover.model.faults import (
    IN,
    ClusterFault,
    Direction,
    Fault,
    FaultSchedule,
    LinkFault,
    TokensFault,
    node_of,
)
from spillover.model.ids import ClusterId
from spillover.model.topology import Cluster, Topology
from spillover.model.unlike_servers import UnlikeServers
from spillover.sim.engine.world import World, stream
from spillover.sim.overflow.faulty_cluster import FaultyCluster, Watch, nodes_of
from spillover.sim.overflow.federation import make_siblings
from spillover.sim.overflow.network import Channel, build_channels
from spillover.sim.overflow.pool_servers import PoolDoor, PoolServers


class FaultyPoolCluster(FaultyCluster):
    """A cluster with a pool of unlike servers that may go wrong, over all of its lives: all of it
    as any cluster, and one server by itself. A server that is *down* fails what it runs, and runs
    nothing until it is up. Several nodes send to the same servers."""

    pool_servers: PoolDoor

    def _make_servers(self, cluster: Cluster, world: World, seed: int) -> PoolDoor:
        pool = cast("UnlikeServers", cluster.pool)
        random, service_s = stream(seed, f"failing/{cluster.id}"), cluster.service_ms / 1e3
        if isinstance(self.first, FaultyPoolCluster):
            servers = self.first.pool_servers.servers
        else:
            servers = PoolServers(world, random, pool, service_s, cluster.node_count)
        self.pool_servers = PoolDoor(servers, self.clock, self.feed, self.node)
        return self.pool_servers

    @property
    def sound(self) -> bool:
        return super().sound and not self.pool_servers.servers.out

    def restart(self) -> None:
        """Begin another life; what an operator has said in the one before is forgotten, unless
        another node knows, and that a server is down is found out at once."""
        if not any(node.alive for node in self.faulty_nodes):
            self.pool_servers.servers.out.clear()
        super().restart()
        for number in sorted(self.pool_servers.servers.down):
            self.feed(ev.ServersDown(number))

    def take_down(self, server: str) -> None:
        """Have a server fail what it runs, and run nothing until `bring_up`."""
        number = self.pool_servers.servers.number[server]
        self.pool_servers.servers.down.add(number)
        self.deliver(self._lose, number)

    def _lose(self, number: int) -> None:
        self.feed(ev.ServersDown(number))
        self.pool_servers.lose(number)

    def bring_up(self, server: str) -> None:
        """Have a server that was down run jobs again."""
        number = self.pool_servers.servers.number[server]
        self.pool_servers.servers.down.discard(number)
        self.deliver(self.feed, ev.ServersUp(number))

    def set_tokens(self, fault: TokensFault) -> None:
        """Have an operator change limits, and take servers out or back in."""
        self.deliver(self._set_tokens, fault)

    def _set_tokens(self, fault: TokensFault) -> None:
        for server, said in fault.servers:
            out = self.pool_servers.servers.out
            (out.discard if said == IN else out.add)(server)
        servers_in = {server: said == IN for server, said in fault.servers}
        self.feed(ev.TokensSet(dict(fault.classes), servers_in))


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
    for each in topology.clusters:
        numbers = range(2, each.node_count + 1)
        first = clusters[each.id]
        more = [type(first)(topology, each.id, world, seed, watch, node, first) for node in numbers]
        make_siblings([first, *more])
    nodes = nodes_of(clusters)
    channels = build_channels(topology, world, seed)
    for node in nodes:
        node.connect(clusters, channels)
    for node in nodes:
        for end in node.ends.values():
            end.listener.begin()
        node.to_siblings.begin()
    return clusters, channels


class Faults:
    """Makes the schedule's faults happen at their times. `happened` counts them; `on_death` hears
    of nodes that die."""

    def __init__(
        self,
        schedule: FaultSchedule,
        world: World,
        clusters: Mapping[ClusterId, FaultyCluster],
        channels: Mapping[Direction, Channel],
        on_death: Callable[[FaultyCluster], None] = lambda _: None,
    ) -> None:
        self._on_death = on_death
        self._clusters = clusters
        self._channels = channels
        self.happened = 0
        for fault in schedule.faults:
            world.at(fault.at_s, self._happen, fault)

    @property
    def healed(self) -> bool:
        """Returns whether all is now as if nothing had ever gone wrong, what clocks show aside."""
        sound = all(node.sound for node in nodes_of(self._clusters))
        return sound and not any(channel.impaired for channel in self._channels.values())

    @property
    def longest_delay_s(self) -> float:
        """Returns the longest delay of the links as they are now, one way."""
        return max((channel.delay_s for channel in self._channels.values()), default=0.0)

    def _happen(self, fault: Fault) -> None:
        self.happened += 1
        if isinstance(fault, LinkFault):
            if (named := node_of(fault.directions[0][0])) is not None:
                self._cut_siblings(fault, named[0])
                return
            for direction in fault.directions:
                self._channels[direction].change(fault)
            return
        cluster = self._clusters[fault.cluster]
        if isinstance(fault, TokensFault) or fault.action in {"down", "up"}:
            _happen_to_pool(cluster, fault)
            return
        for node in cluster.faulty_nodes:
            if fault.node in {None, node.node}:
                _happen_to(node, fault)
                if fault.action == "crash":
                    self._on_death(node)

    def _cut_siblings(self, fault: LinkFault, cluster: ClusterId) -> None:
        nodes = {node.node: node for node in self._clusters[cluster].faulty_nodes}
        one, other = [nodes[int(end.rpartition("/")[2])] for end in fault.directions[0]]
        for here, there in ((one, other), (other, one)):
            streams = here.to_siblings
            (streams.cut_off if fault.action == "cut" else streams.heal)(there.node)


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
        case "drain" | "undrain":
            cluster.drain(drains=fault.action == "drain")
        case "clock":
            cluster.set_clock(fault.rate, fault.offset_ms / 1e3)
        case "swallows" | "late" | "hangs":
            cluster.door.change(fault)
        case "slow":
            cluster.servers.trouble(fault.server).slowness = fault.factor
        case "failing":
            cluster.servers.trouble(fault.server).fail(fault)


def _happen_to_pool(cluster: FaultyCluster, fault: ClusterFault | TokensFault) -> None:
    """Have it happen to a pool, as the schedule was checked for. Operators tell one node that is
    there, which tells the others."""
    nodes = [node for node in cluster.faulty_nodes if isinstance(node, FaultyPoolCluster)]
    if isinstance(fault, TokensFault):
        there = [node for node in nodes if node.alive] or nodes
        there[0].set_tokens(fault)
    elif fault.server is not None:
        for node in nodes:
            (node.take_down if fault.action == "down" else node.bring_up)(fault.server)
