"""Addresses for clusters that have none, and a check that those given are free."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from spillover.model.errors import InputError, RunError
from spillover.model.ids import ClusterId
from spillover.model.topology import Topology

FIRST_PORT = 8101
LAST_PORT = 65_535
LOCK_POLL_S = 0.05


def with_addresses(topology: Topology, source: str) -> Topology:
    """The topology with a url for every cluster: the one given, else the first free loopback port
    from 8101 up. Raises InputError, naming the field of `source`, if a given address is not free.

    A port that is free now can be taken a moment later: see `start_lock`.
    """
    given_ports: set[int] = set()
    for index, cluster in enumerate(topology.clusters):
        if cluster.url is not None:
            parts = urlsplit(cluster.url)
            port = parts.port or 80
            problem = _why_not_free(parts.hostname or "127.0.0.1", port)
            if problem is not None:
                expected = f"expected an address that is free, got {cluster.url} ({problem})"
                raise InputError(source, f"clusters[{index}].url", expected)
            given_ports.add(port)
    urls: dict[ClusterId, str] = {}
    port = FIRST_PORT
    for cluster in topology.clusters:
        if cluster.url is None:
            port = _next_free(port, given_ports)
            urls[cluster.id] = f"http://127.0.0.1:{port}"
            port += 1
    return topology.with_urls(urls)


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
        while not _try_lock(directory):
            if time.monotonic() > limit_s:
                raise RunError(f"another testbed has been starting for {timeout_s:.0f} s")
            await asyncio.sleep(LOCK_POLL_S)
        yield
    finally:
        os.close(directory)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _next_free(port: int, given_ports: set[int]) -> int:
    while port in given_ports or _why_not_free("127.0.0.1", port) is not None:
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
