"""Addresses for clusters that have none, and a check that those given are free."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from urllib.parse import urlsplit

from spillover.model.errors import InputError, RunError
from spillover.model.ids import ClusterId
from spillover.model.topology import ClusterNode, Topology
from spillover.testbed.file_lock import try_lock

FIRST_PORT = 8101
LAST_PORT = 65_535
LOCK_POLL_S = 0.05


def with_addresses(
    topology: Topology, source: str, first_port: int = FIRST_PORT, *, is_secure: bool = False
) -> Topology:
    """Returns the topology with a url for every cluster: the one given, else the first free
    loopback port from `first_port` up, https where `is_secure`. Raises InputError, naming the field
    of `source`, if a given address is not free.

    A port that is free now can be taken a moment later: see `start_lock`.
    """
    given_ports: set[int] = set()
    for index, cluster in enumerate(topology.clusters):
        if cluster.url is not None:
            given_ports.add(_free_port_of(cluster.url, source, f"clusters[{index}].url"))
        if isinstance(cluster.nodes, tuple):
            for number, node in enumerate(cluster.nodes):
                field = f"clusters[{index}].nodes[{number}].url"
                given_ports.add(_free_port_of(node.url, source, field))
    urls: dict[ClusterId, str] = {}
    nodes: dict[ClusterId, tuple[ClusterNode, ...]] = {}
    port, scheme = first_port, "https" if is_secure else "http"
    for cluster in topology.clusters:
        if cluster.url is not None or isinstance(cluster.nodes, tuple):
            continue
        chosen = []
        for _ in range(cluster.nodes):
            port = _next_free(port, given_ports, first_port)
            chosen.append(f"{scheme}://127.0.0.1:{port}")
            port += 1
        if cluster.nodes > 1:
            nodes[cluster.id] = tuple([ClusterNode(url=url) for url in chosen])
        else:
            urls[cluster.id] = chosen[0]
    return _with_doors(topology, urls, nodes, given_ports, first_port, scheme)


def _free_port_of(url: str, source: str, field: str) -> int:
    """Returns the port of a url that was given. Raises InputError if it is not free."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    problem = _why_not_free(parts.hostname or "127.0.0.1", port)
    if problem is not None:
        expected = f"expected an address that is free, got {url} ({problem})"
        raise InputError(source, field, expected)
    return port


def _with_doors(
    topology: Topology,
    urls: Mapping[ClusterId, str],
    nodes: Mapping[ClusterId, tuple[ClusterNode, ...]],
    given_ports: set[int],
    first_port: int,
    scheme: str,
) -> Topology:
    """Returns the topology with these addresses, and with a proxy_url for every node of a cluster
    that passes requests on, behind all others."""
    chosen = [*urls.values(), *(node.url for each in nodes.values() for node in each)]
    ports = [urlsplit(url).port or 80 for url in chosen]
    port = max([first_port, *given_ports, *ports]) + 1

    def door() -> str:
        nonlocal port
        port = _next_free(port, given_ports, first_port) + 1
        return f"{scheme}://127.0.0.1:{port - 1}"

    clusters = []
    for cluster in topology.clusters:
        if cluster.id in nodes:
            each = nodes[cluster.id]
            if cluster.passes:
                each = tuple([replace(node, proxy_url=door()) for node in each])
            cluster = replace(cluster, nodes=each)  # noqa: PLW2901
        else:
            cluster = replace(cluster, url=urls.get(cluster.id, cluster.url))  # noqa: PLW2901
            if cluster.passes and cluster.proxy_url is None and cluster.nodes == 1:
                cluster = replace(cluster, proxy_url=door())  # noqa: PLW2901
        clusters.append(cluster)
    return replace(topology, clusters=tuple(clusters))


def free_urls(count: int, first_port: int) -> list[str]:
    """Returns so many urls on loopback, of the first free ports from `first_port` up."""
    urls: list[str] = []
    port = first_port
    for _ in range(count):
        port = _next_free(port, set(), first_port)
        urls.append(f"http://127.0.0.1:{port}")
        port += 1
    return urls


@asynccontextmanager
async def start_lock(timeout_s: float) -> AsyncIterator[None]:
    """Between looking for free ports and having bound them, one testbed at a time on a machine:
    two that start together would else mix, each taking the other's nodes for its own.

    The lock is on the directory for temporary files itself, so that nothing is left behind.
    Raises RunError if another testbed has not started by then.
    """
    limit_s = time.monotonic() + timeout_s
    directory = os.open(tempfile.gettempdir(), os.O_RDONLY)
    try:
        while not try_lock(directory):
            if time.monotonic() > limit_s:
                raise RunError(f"another testbed has been starting for {timeout_s:.0f} s")
            await asyncio.sleep(LOCK_POLL_S)
        yield
    finally:
        os.close(directory)


def passed_over(wanted: Topology, given: Topology, first_port: int) -> list[int]:
    """Returns the ports from `first_port` up that clusters of `wanted` without a url would have,
    and have not in `given`, since somebody else uses them."""
    before = [cluster.url for cluster in wanted.clusters]
    ports = [urlsplit(cluster.url or "").port or 80 for cluster in given.clusters]
    nodes = [node for one in given.clusters if isinstance(one.nodes, tuple) for node in one.nodes]
    taken = {*ports, *(urlsplit(node.url).port or 80 for node in nodes)}
    alone = [cluster.nodes == 1 for cluster in wanted.clusters]
    rows = zip(ports, before, alone, strict=True)
    chosen = [port for port, url, is_alone in rows if url is None and is_alone]
    return [port for port in range(first_port, max(chosen, default=0)) if port not in taken]


def _next_free(port: int, given_ports: set[int], first_port: int) -> int:
    while port <= LAST_PORT:
        if port not in given_ports and _why_not_free("127.0.0.1", port) is None:
            return port
        port += 1
    raise RunError(f"no free port between {first_port} and {LAST_PORT}")


def _why_not_free(host: str, port: int) -> str | None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.strerror or str(error)
    return None
