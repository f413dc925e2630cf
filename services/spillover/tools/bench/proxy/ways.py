"""Ways to the service, each of them processes that are measured from outside: straight to it, by
nodes of ours, and by HAProxy or nginx, as many of them in a row.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from urllib.parse import urlsplit

from spillover.live.http.client import HttpClient
from spillover.model.errors import RunError
from spillover.model.ids import ClusterId
from spillover.model.topology import Cluster, Topology
from spillover.testbed.supervisor import Testbed
from spillover.tools.bench.haproxy import find_haproxy, haproxy_relay
from spillover.tools.bench.load_process import PATH
from spillover.tools.bench.nginx import find_nginx, nginx_relay
from spillover.tools.bench.nodes import FOREVER_MS, topology_of, until_state
from spillover.tools.bench.proxy.readers import LONG
from spillover.tools.bench.proxy.service import serve_service, stream_target
from spillover.tools.bench.servers import HOST, READY_WITHIN_S, Server
from spillover.tools.bench.session import Session
from spillover.tools.bench.usage import cpu_s
from spillover.tools.processes.child import Child

DIRECT, HAPROXY, NGINX = "direct", "HAProxy", "nginx"
OURS = "nodes"
BODY = b'{"payload": {}}'
"""Of a request that asks for nothing."""
HOPS = {"local": 0, "one hop": 1, "two hops": 2}

SERVERS = 4096
"""More than ever are in use: nothing waits."""
DEADLINE_MS = 60_000.0
ANSWER_WITHIN_S = 10.0

HELD_PERIOD_MS = 10_000.0
"""Between the events of a stream that takes a server: one that says nothing is broken off."""
_PATIENT = f"Spillover-Deadline-Ms: {FOREVER_MS:.0f}"
_STREAMING = ("option http-no-delay", "option abortonclose", "timeout tunnel 600s")
"""Of HAProxy: what comes leaves at once, and a client that leaves is known of."""


@dataclass(frozen=True, slots=True)
class Way:
    """To the service, at `url`, through these processes."""

    name: str
    url: str
    pids: tuple[int, ...]

    def cpu_s(self) -> float:
        """Returns the CPU time that they have used together."""
        return sum(map(cpu_s, self.pids))


class Service(Child):
    """The service, and when its clients were lost. There on entry, ended on exit."""

    def __init__(self) -> None:
        super().__init__("the service", serve_service)
        self.url = ""

    async def ready(self) -> Service:
        self.url = f"http://{HOST}:{await self.receive(READY_WITHIN_S)}"
        return self

    async def lost(self) -> dict[int, int]:
        """Returns when connections were lost on which streams were, since this was last asked."""
        self.send(None)
        lost: dict[int, int] = await self.receive(ANSWER_WITHIN_S)
        return lost


@asynccontextmanager
async def running_service() -> AsyncIterator[Service]:
    """Starts the service."""
    with Service() as service:
        yield await service.ready()


def direct(service: Service) -> Way:
    """Returns the way without anything in between."""
    return Way(DIRECT, service.url, ())


@asynccontextmanager
async def nodes(service: Service, hops: int, seed: int) -> AsyncIterator[Way]:
    """Starts one node more than hops, whose doors pass requests to the service."""
    handler = f"proxy:{service.url}"
    async with _nodes(hops, handler, handler, "proxy_url", seed) as way:
        yield way


@asynccontextmanager
async def nodes_of_work(service: Service, hops: int, seed: int) -> AsyncIterator[Way]:
    """As `nodes`, but the service does what comes by `POST /requests`."""
    async with _nodes(hops, f"http:{service.url}/do", "sleep", "url", seed) as way:
        yield way


@asynccontextmanager
async def _nodes(hops: int, handler: str, busy: str, door: str, seed: int) -> AsyncIterator[Way]:
    """The last one runs what the first one gets. All others have their one server taken for
    good."""
    topology = chain_of(hops, handler, busy)
    names = topology.cluster_ids
    async with Testbed(topology, seed=seed, drain_timeout_s=0.0) as bed, AsyncExitStack() as stack:
        running = {cluster.id: cluster for cluster in bed.topology.clusters}
        pids = tuple(bed.nodes[name].process.pid for name in names)
        servers = [Server(running[name].url or "", bed.nodes[name].process.pid) for name in names]
        for place in reversed(range(hops)):
            told = running[names[place]], servers[place]
            stack.push_async_callback(await _occupied(*told, 0))
            if place < hops - 1:
                # Its neighbor is as busy. So that it hands all on, one has to wait here, which
                # would rather go there.
                await _tell(servers[place + 1], "drain")
                stack.push_async_callback(await _occupied(*told, 1))
                await _tell(servers[place + 1], "resume")
            elif hops == 1:
                stack.push_async_callback(await _occupied(*told, 1))
        yield Way(OURS, getattr(running[names[0]], door), pids)


def chain_of(hops: int, handler: str, busy: str) -> Topology:
    """Returns as many clusters and one more, in a row. All but the last one have one server, and
    take a service to last an hour: so what has to be done within a minute goes on, once one waits.

    Over one hop by a policy that leaves that one where it is. An adaptive neighbor would fetch it,
    and one of the next ones would wait in its place until it is fetched (decision 0043)."""
    names = [ClusterId(name) for name in "abc"[: hops + 1]]
    clusters = [Cluster(id=name, servers=1, service_ms=FOREVER_MS, handler=busy) for name in names]
    clusters[-1] = replace(clusters[-1], servers=SERVERS, service_ms=1.0, handler=handler)
    policy = "two-choice" if hops == 1 else "adaptive"
    topology = topology_of(clusters, pairwise(names))
    return replace(topology, default_deadline_ms=DEADLINE_MS, policy=policy)


async def _occupied(cluster: Cluster, node: Server, waiting: int) -> Callable[[], Awaitable[None]]:
    """Takes its one server for good; or has so many wait for it. Returns what lets it go."""
    if cluster.proxy_url is not None:
        url = cluster.proxy_url
        target = stream_target(0, period_ms=HELD_PERIOD_MS, count=LONG, size_bytes=100)
        asked = f"GET {target} HTTP/1.1\r\nHost: bench\r\n{_PATIENT}\r\n\r\n"
    else:
        url = cluster.url or ""
        fields = f"Content-Length: {len(BODY)}\r\n{_PATIENT}"
        asked = f"POST {PATH} HTTP/1.1\r\nHost: bench\r\n{fields}\r\n\r\n{BODY.decode()}"
    place = urlsplit(url)
    _, writer = await asyncio.open_connection(place.hostname, place.port)
    writer.write(asked.encode())
    await until_state(node, busy=1, queue_length=waiting)

    async def let_go() -> None:
        writer.transport.abort()

    return let_go


async def _tell(node: Server, what: str) -> None:
    client = HttpClient(node.url)
    try:
        answer = await client.request("POST", f"/admin/{what}", timeout_s=ANSWER_WITHIN_S)
    finally:
        await client.close()
    if answer.status not in (200, 202):
        raise RunError(f"{node.url}: expected that it does {what}, got {answer.status}")


async def check_hops(way: Way, hops: int) -> None:
    """Raises RunError unless a request to the nodes goes over so many hops."""
    client = HttpClient(way.url)
    try:
        answer = await client.request("POST", PATH, body=BODY, timeout_s=ANSWER_WITHIN_S)
    finally:
        await client.close()
    path = answer.headers.get(b"spillover-path")
    told = path.decode().split(",") if path else json.loads(answer.body).get("path", ())
    if answer.status != 200 or len(told) != hops + 1:
        raise RunError(f"expected an answer over {hops} hops, got {answer.status} by {told}")


def peers_of(session: Session) -> list[str]:
    """Returns the relays that are installed, and notes which are not."""
    found = {HAPROXY: find_haproxy(), NGINX: find_nginx()}
    for name, binary in found.items():
        if binary is None:
            session.note(f"{name} is not installed: no row beside it")
    return [name for name, binary in found.items() if binary is not None]


@asynccontextmanager
async def relays(name: str, service: Service, hops: int) -> AsyncIterator[Way]:
    """Starts one relay more than hops, in a row."""
    async with AsyncExitStack() as stack:
        url, pids = service.url, []
        for _ in range(hops + 1):
            relay = nginx_relay(url) if name == NGINX else haproxy_relay(url, *_STREAMING)
            server = await stack.enter_async_context(relay)
            url = server.url
            pids.append(server.pid)
        yield Way(name, url, tuple(pids))
