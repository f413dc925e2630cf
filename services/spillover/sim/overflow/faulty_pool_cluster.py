"""A cluster with a pool of unlike servers that may go wrong: all of it as any cluster, and one
server by itself. A server that is *down* fails what it runs, and runs nothing until it is up.
"""

from __future__ import annotations

from typing import cast

from spillover.core.overflow import events as ev
from spillover.model.faults import IN, TokensFault
from spillover.model.topology import Cluster
from spillover.model.unlike_servers import UnlikeServers
from spillover.sim.engine.world import World, stream
from spillover.sim.overflow.faulty_cluster import FaultyCluster
from spillover.sim.overflow.pool_servers import PoolServers


class FaultyPoolCluster(FaultyCluster):
    """One such cluster, over all of its lives."""

    def _make_servers(self, cluster: Cluster, world: World, seed: int) -> PoolServers:
        pool = cast("UnlikeServers", cluster.pool)
        random, service_s = stream(seed, f"failing/{cluster.id}"), cluster.service_ms / 1e3
        self.pool_servers = PoolServers(world, self.clock, random, pool, service_s, self.feed)
        self.servers_out: set[str] = set()
        """Ids of those that an operator has taken out."""
        return self.pool_servers

    @property
    def sound(self) -> bool:
        return super().sound and not self.servers_out

    def restart(self) -> None:
        """Begin another life; what an operator has said in the one before is forgotten, and that a
        server is down is found out at once."""
        self.servers_out.clear()
        super().restart()
        for number in sorted(self.pool_servers.down):
            self.feed(ev.ServersDown(number))

    def take_down(self, server: str) -> None:
        """Have a server fail what it runs, and run nothing until `bring_up`."""
        number = self.pool_servers.number[server]
        self.pool_servers.down.add(number)
        self.deliver(self._lose, number)

    def _lose(self, number: int) -> None:
        self.feed(ev.ServersDown(number))
        self.pool_servers.lose(number)

    def bring_up(self, server: str) -> None:
        """Have a server that was down run jobs again."""
        number = self.pool_servers.number[server]
        self.pool_servers.down.discard(number)
        self.deliver(self.feed, ev.ServersUp(number))

    def set_tokens(self, fault: TokensFault) -> None:
        """Have an operator change limits, and take servers out or back in."""
        self.deliver(self._set_tokens, fault)

    def _set_tokens(self, fault: TokensFault) -> None:
        for server, said in fault.servers:
            (self.servers_out.discard if said == IN else self.servers_out.add)(server)
        servers_in = {server: said == IN for server, said in fault.servers}
        self.feed(ev.TokensSet(dict(fault.classes), servers_in))
