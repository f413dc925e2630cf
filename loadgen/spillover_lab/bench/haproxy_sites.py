"""What an operator builds today: one HAProxy for each site, in front of servers that take one
request at a time, and a rule that sends requests to a neighbor once the own queue is long.

A request is sent on once at most. Which sites there are, and how far apart, is the topology's.
Servers and ways are emulated, all servers in one process and all ways in another.

A server takes one request at a time, for as long as its payload says, and answers as a node does.
Servers are as fast as those of a node's handler `sleep`, or HAProxy would pay for our slowness: a
chain of services on one server lasts exactly the sum of its service times. The service of a request
that was there before the last one's ideal end begins at that instant, others' when they come here.

The time that a request has taken counts from the home's door, as HAProxy notes it in a header, to
the ideal end of its service. What a cluster's delivery takes is added, since it occupies no server
of a node either.

Ways are connections on which everything takes as long as on the links of nodes, by the same
`EmulatedLink`. Opening one takes no time here, which favors HAProxy a little; it keeps them open.
"""

from __future__ import annotations

import asyncio
import math
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from random import Random
from typing import TypeAlias, cast

import msgspec

from spillover.live.engine.alarms import finest_alarm
from spillover.live.engine.timers import Timers
from spillover.live.handlers.service_payload import ServicePayload
from spillover.live.overflow.emulated_link import EmulatedLink
from spillover.live.process.listening import bind_socket
from spillover.model.ids import ClusterId
from spillover.model.topology import Cluster, Topology
from spillover_lab.bench.relays import running_haproxy
from spillover_lab.bench.servers import HOST, OK, READY_WITHIN_S, Door, listen
from spillover_lab.processes.child import Child

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
        servers = Child("the emulated servers", serve, topology)
        stack.enter_context(servers)
        server_ports = await servers.receive(READY_WITHIN_S)
        doors = {c: stack.enter_context(bind_socket(HOST, 0)) for c in topology.cluster_ids}
        ports = {cluster: door.getsockname()[1] for cluster, door in doors.items()}
        far_ends = {
            (cluster, neighbor.id): (ports[neighbor.id], neighbor.delay_ms / 1e3)
            for cluster in topology.cluster_ids
            for neighbor in topology.neighbors(cluster)
        }
        relaying = stack.enter_context(Child("the ways", relay, far_ends))
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


# --- servers, and the ways between sites ----------------------------------------------------------


HOME_HEADER = "x-home"
CAME_HEADER = "x-came-us"
"""The site that a client asked, and when it did: microseconds since 1970."""

Way: TypeAlias = tuple[ClusterId, ClusterId]
"""A site opens connections to another one."""


class Body(msgspec.Struct):
    """What clients send, as far as it matters here."""

    payload: ServicePayload


_decode = msgspec.json.Decoder(Body).decode
_encode = msgspec.json.Encoder().encode


async def serve(topology: Topology, ready: Connection) -> None:
    """Runs the servers until the benchmark ends the process. Tells the ports of each cluster's
    servers, in their order, as soon as they listen."""
    timers = Timers(asyncio.get_running_loop(), finest_alarm)
    ports: list[list[int]] = []
    with ExitStack() as stack:
        for cluster in topology.clusters:
            delays_s = {str(n.id): n.delay_ms / 1e3 for n in topology.neighbors(cluster.id)}
            servers = [
                EmulatedServer(cluster, delays_s, timers) for _ in range(cluster.server_count)
            ]
            ports.append([await listen(server.take, stack) for server in servers])
        ready.send(ports)
        await asyncio.get_running_loop().create_future()


class EmulatedServer:
    """One server of a cluster; `delays_s` is how far away its neighbors are, by name."""

    def __init__(self, cluster: Cluster, delays_s: Mapping[str, float], timers: Timers) -> None:
        self._cluster = cluster
        self._delays_s = delays_s
        self._timers = timers
        self._busy = False
        self._last_end_s = 0.0

    def take(self, door: Door, body: bytes) -> None:
        """Serve a request and answer it; by 500 if it is one too many, which spoils the run."""
        if self._busy:
            door.answer(b"500 Busy", b"{}")
            return
        home = door.headers[HOME_HEADER.encode()].decode()
        came_s = int(door.headers[CAME_HEADER.encode()]) / 1e6
        self._busy = True
        cluster, now_s = self._cluster, time.time()
        own = str(cluster.id)
        service_ms = _decode(body).payload.service_ms
        if service_ms is None:
            service_ms = cluster.service_ms
        is_waiting = came_s + self._delays_s.get(home, 0.0) <= self._last_end_s
        start_s = self._last_end_s if is_waiting else now_s
        self._last_end_s = start_s + service_ms / 1e3
        answer = {
            "id": "",
            "cluster": own,
            "path": [own] if home == own else [home, own],
            "hops": int(home != own),
            "timing_ms": {"total": (self._last_end_s - came_s) * 1e3 + cluster.delivery_ms},
        }

        def ended(_: float) -> None:
            self._busy = False
            door.answer(OK, _encode(answer))

        self._timers.at(self._timers.clock() + self._last_end_s - now_s, ended)


async def relay(ways: Mapping[Way, tuple[int, float]], ready: Connection) -> None:
    """Runs the ways until the benchmark ends the process. To each belong the port at its far end
    and its delay, in s. Tells the ports at the near ends, as soon as they listen."""
    loop = asyncio.get_running_loop()
    timers = Timers(loop, finest_alarm)
    ports = {}
    with ExitStack() as stack:
        for way, (port, delay_s) in ways.items():
            listening = stack.enter_context(bind_socket(HOST, 0))
            # Nothing is ever lost: there is nothing to draw.
            there, back = (EmulatedLink(timers, Random(0), delay_s) for _ in range(2))
            accept = partial(_accept, loop, there, back, port)
            await loop.create_server(accept, sock=listening)
            ports[way] = listening.getsockname()[1]
        ready.send(ports)
        await loop.create_future()


def _accept(
    loop: asyncio.AbstractEventLoop, there: EmulatedLink, back: EmulatedLink, port: int
) -> _End:
    near, far = _End(there), _End(back)
    near.other, far.other = far, near
    near.opening = loop.create_task(_open(loop, near, far, port))
    return near


async def _open(loop: asyncio.AbstractEventLoop, near: _End, far: _End, port: int) -> None:
    try:
        await loop.create_connection(lambda: far, HOST, port)
    except OSError:
        near.close()


class _End(asyncio.Protocol):
    """One of the two ends of a connection. What comes here leaves the other one a delay later."""

    def __init__(self, link: EmulatedLink) -> None:
        self._link = link
        self._transport: asyncio.WriteTransport | None = None
        self._early: list[bytes] = []
        self._closed = False
        self.other = self
        self.opening: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)
        self._transport.writelines(self._early)
        if self._closed:
            self.close()

    def data_received(self, data: bytes) -> None:
        self._link.send(partial(self.other.write, data), _never)

    def connection_lost(self, _: Exception | None) -> None:
        self._closed = True
        self._transport = None
        self._link.send(self.other.close, _never)

    def write(self, data: bytes) -> None:
        """Lets it leave here; later, if there is no connection yet."""
        if self._transport is not None:
            self._transport.write(data)
        elif not self._closed:
            self._early.append(data)

    def close(self) -> None:
        """After all that was written."""
        self._closed = True
        if self._transport is not None:
            self._transport.close()


def _never() -> None:
    raise AssertionError("a link without faults has lost something")
