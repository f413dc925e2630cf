"""Nodes for benchmarks: topologies made for measuring, and what is asked of a running one."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Container, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from spillover.live.http1.client import HttpClient, Response
from spillover.model.errors import RunError
from spillover.model.ids import ClusterId
from spillover.model.topology import Cluster, Link, Topology
from spillover.testbed.certified import Certify
from spillover.testbed.supervisor import Testbed
from spillover_lab.bench.servers import Server

FOREVER_MS = 3_600_000.0
"""The length of a service that outlasts every benchmark."""
DEADLINE_MS = 80_000_000.0
ANSWER_WITHIN_S = 10.0
STATE_WITHIN_S = 30.0
STATE_POLL_S = 0.02


def cluster(name: str, *, servers: int, queue_limit: int, service_ms: float = 0.0) -> Cluster:
    """Returns a cluster whose servers sleep."""
    return Cluster(
        id=ClusterId(name), servers=servers, queue_limit=queue_limit, service_ms=service_ms
    )


def topology_of(clusters: Iterable[Cluster], links: Iterable[tuple[str, str]] = ()) -> Topology:
    """Returns a topology with links without delay, and deadlines that no request of a benchmark
    meets."""
    return Topology(
        name="bench",
        clusters=tuple(clusters),
        links=tuple(Link(between=(ClusterId(a), ClusterId(b))) for a, b in links),
        default_deadline_ms=DEADLINE_MS,
    )


@asynccontextmanager
async def running_nodes(
    topology: Topology, seed: int, certify: Certify | None = None
) -> AsyncIterator[Mapping[str, Server]]:
    """Starts the clusters' processes, and gives them by cluster; with `certify` they have
    certificates. What they still do at the end is given up."""
    async with Testbed(topology, seed=seed, drain_timeout_s=0.0, certify=certify) as bed:
        yield {str(node.cluster): Server(node.url, node.process.pid) for node in bed.nodes.values()}


def request_body(service_ms: float, payload_bytes: int) -> bytes:
    """Returns the body of a POST whose payload takes that many bytes as JSON."""
    payload = {"service_ms": service_ms, "pad": ""}
    payload["pad"] = "x" * (payload_bytes - len(json.dumps(payload)))
    return json.dumps({"payload": payload}).encode()


async def answer_of(server: Server, body: bytes) -> bytes:
    """Returns a node's answer to a request, as it came. Raises RunError if that is no result."""
    return (await ask(server.url, "POST", "/requests", body=body, statuses=(200,))).body


async def state_of(server: Server) -> dict[str, Any]:
    """Returns what `/state` says."""
    state: dict[str, Any] = json.loads((await ask(server.url, "GET", "/state")).body)
    return state


async def until_state(server: Server, **wanted: int) -> None:
    """Wait until these entries of `/state` are as wanted. Raises RunError if they never are."""
    limit_s = time.monotonic() + STATE_WITHIN_S
    while True:
        state = await state_of(server)
        found = {name: state.get(name) for name in wanted}
        if found == wanted:
            return
        if time.monotonic() > limit_s:
            raise RunError(f"{server.url}: expected {wanted} in time, got {found}")
        await asyncio.sleep(STATE_POLL_S)


async def ask(
    url: str,
    method: str,
    path: str,
    *,
    body: bytes = b"",
    headers: Sequence[tuple[bytes, bytes]] = (),
    statuses: Container[int] = range(1000),
) -> Response:
    """Returns the answer, asked for on a connection of its own, so that none is left that counts.
    Raises RunError for any other status."""
    client = HttpClient(url)
    try:
        response = await client.request(
            method, path, headers=headers, body=body, timeout_s=ANSWER_WITHIN_S
        )
    finally:
        await client.close()
    if response.status not in statuses:
        said = response.body[:200].decode("utf-8", "replace")
        raise RunError(f"{url}{path}: expected another status, got {response.status}: {said}")
    return response
