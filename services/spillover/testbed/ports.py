"""Addresses for clusters that have none, and a check that those given are free."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from spillover.model.errors import InputError, RunError
from spillover.model.ids import ClusterId
from spillover.model.topology import Topology

FIRST_PORT = 8101
LAST_PORT = 65_535


def with_addresses(topology: Topology) -> Topology:
    """The topology with a url for every cluster: the one given, else the first free loopback port
    from 8101 up. Raises InputError, naming the field, if a given address is not free.

    A port that is free now can be taken a moment later; the node then says so itself.
    """
    given = {cluster.url for cluster in topology.clusters if cluster.url is not None}
    for index, cluster in enumerate(topology.clusters):
        if cluster.url is not None:
            parts = urlsplit(cluster.url)
            problem = _why_not_free(parts.hostname or "127.0.0.1", parts.port or 80)
            if problem is not None:
                expected = f"expected an address that is free, got {cluster.url} ({problem})"
                raise InputError(topology.name, f"clusters[{index}].url", expected)
    urls: dict[ClusterId, str] = {}
    port = FIRST_PORT
    for cluster in topology.clusters:
        if cluster.url is None:
            port = _next_free(port, given)
            urls[cluster.id] = f"http://127.0.0.1:{port}"
            port += 1
    return topology.with_urls(urls)


def _next_free(port: int, given: set[str]) -> int:
    while f"http://127.0.0.1:{port}" in given or _why_not_free("127.0.0.1", port) is not None:
        port += 1
        if port > LAST_PORT:
            raise RunError(f"no free port between {FIRST_PORT} and {LAST_PORT}")
    return port


def _why_not_free(host: str, port: int) -> str | None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.strerror or str(error)
    return None
