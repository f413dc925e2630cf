"""What an operator builds today: one HAProxy for each site, in front of servers that take one
request at a time, and a rule that sends requests to a neighbor once the own queue is long.

A request is sent on once at most. Which sites there are, and how far apart, is the topology's.
"""

from __future__ import annotations

import math
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from spillover.live.process.listening import bind_socket
from spillover.model.ids import ClusterId
from spillover.model.topology import Topology
from spillover.tools.bench.haproxy import running_haproxy
from spillover.tools.bench.peers import emulated_servers, relays
from spillover.tools.bench.peers.emulated_servers import CAME_HEADER, HOME_HEADER
from spillover.tools.bench.servers import HOST, READY_WITHIN_S
from spillover.tools.processes.child import Child

LONG_S = 3600.0
"""No request of a benchmark takes so long."""

_SITE = """\
global
    nbthread 1
defaults
    mode http
    balance leastconn
    http-reuse always
    timeout connect 5s
    timeout client {long_s:.0f}s
    timeout server {long_s:.0f}s
    timeout queue {queue_ms:.0f}ms
frontend site
    bind "fd@{descriptor}"
    acl spilled req.hdr(x-spilled) -m found
    acl full be_conn_free(own) le 0
    acl long queue(own) ge {threshold}
    http-request set-header {home_header} {site} unless spilled
    http-request set-header {came_header} %[date(0,us)] unless spilled
    use_backend neighbors if !spilled full long
    default_backend own
backend own
{own}
backend neighbors
    http-request set-header x-spilled 1
{neighbors}
"""


@dataclass(frozen=True, slots=True)
class Sites:
    """What runs: where clients ask, and the processes."""

    urls: Mapping[ClusterId, str]
    haproxies: tuple[int, ...]
    emulation: tuple[int, ...]
    """Servers and ways, which both are ours."""


@asynccontextmanager
async def running_sites(
    topology: Topology, threshold: int, queue_within_s: float = LONG_S
) -> AsyncIterator[Sites]:
    """Starts the sites. Requests that find no free server are sent to a neighbor if as many as
    `threshold` wait already; who has waited for `queue_within_s` is answered by 503.

    Raises InputError without HAProxy, RunError if something does not start.
    """
    async with AsyncExitStack() as stack:
        servers = Child("the emulated servers", emulated_servers.serve, topology)
        stack.enter_context(servers)
        server_ports = await servers.receive(READY_WITHIN_S)
        doors = {c: stack.enter_context(bind_socket(HOST, 0)) for c in topology.cluster_ids}
        ports = {cluster: door.getsockname()[1] for cluster, door in doors.items()}
        ways = {
            (cluster, neighbor.id): (ports[neighbor.id], neighbor.delay_ms / 1e3)
            for cluster in topology.cluster_ids
            for neighbor in topology.neighbors(cluster)
        }
        relaying = stack.enter_context(Child("the relays", relays.relay, ways))
        way_ports = await relaying.receive(READY_WITHIN_S)
        pids = []
        for cluster, own_ports in zip(topology.cluster_ids, server_ports, strict=True):
            neighbors = [way_ports[cluster, n.id] for n in topology.neighbors(cluster)]
            text = configuration(
                cluster, doors[cluster], threshold, queue_within_s, own_ports, neighbors
            )
            server = await stack.enter_async_context(running_haproxy(text, doors[cluster]))
            pids.append(server.pid)
        urls = {cluster: f"http://{HOST}:{port}" for cluster, port in ports.items()}
        yield Sites(urls, tuple(pids), (servers.pid, relaying.pid))


def configuration(
    site: ClusterId,
    door: socket.socket,
    threshold: int,
    queue_within_s: float,
    own_ports: list[int],
    neighbor_ports: list[int],
) -> str:
    """Returns what HAProxy is told at a site."""
    own = [f"    server s{n} {HOST}:{port} maxconn 1" for n, port in enumerate(own_ports)]
    neighbors = [f"    server n{n} {HOST}:{port}" for n, port in enumerate(neighbor_ports)]
    return _SITE.format(
        long_s=LONG_S,
        queue_ms=math.ceil(queue_within_s * 1e3),
        descriptor=door.fileno(),
        threshold=threshold,
        site=site,
        home_header=HOME_HEADER,
        came_header=CAME_HEADER,
        own="\n".join(own),
        neighbors="\n".join(neighbors),
    )
