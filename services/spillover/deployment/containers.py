"""The common parts of all deployments: a node's life in its container, the names that containers
can bear, and the topology as the nodes in them read it. The writers of compose files and manifests
are beside this.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

from spillover.inputs.topology_file import dump_topology
from spillover.model.dask_target import dask_target, is_dask_handler
from spillover.model.errors import InputError
from spillover.model.ids import ClusterId
from spillover.model.topology import MEMORY_LIMIT_BYTES_MIN, Cluster, ClusterNode, Topology
from spillover.model.upstream_urls import (
    is_http_handler,
    is_proxy_handler,
    passed_to,
    upstream_urls,
)

IMAGE = "spillover:local"
USER_ID = 10_001
TOPOLOGY_PATH = "/etc/spillover/topology.yaml"
CODE_PATH = "/work"
"""The working directory, and so importable: where the modules of python handlers lie."""

STORE_PATH = "/var/lib/spillover"
"""Where a producer of the queue keeps its objects; the image has it, so that the user owns it."""

EXTRAS = ("leases",)
"""The extras that deploy/Dockerfile puts into the image by default."""

TLS_PATH = "/etc/spillover-tls"
"""Where the three files of a node's certificate lie: not within a directory that is mounted."""
TLS_FILES = {"cert": "tls.crt", "key": "tls.key", "ca": "ca.crt"}
"""The names that Kubernetes and cert-manager give the files, by the names that `spillover node`
gives them."""

TOKENS_PATH = "/etc/spillover-tokens"
"""Where the files of the Secret lie that API tokens are in."""
TOKENS_FILE, PRODUCERS_FILE = "tokens.yaml", "producers"
"""The file of API tokens, and the secret of the one with the role submit that producers of the
queue show each other."""

SECRET_MODE = 0o440
"""The mode of secrets that whatever user the container has may read: its group is 0, as that of the
files is."""

API_PORT = 8080
PEER_PORT = 8081
"""The port of its own at which neighbors come in, which no deployment publishes."""
PROXY_PORT = 8082
"""The port for the clients of a service that a cluster with a `proxy:` handler is in front of."""

DRAIN_TIMEOUT_S = 30
DRAIN_SPARE_S = 10
"""The time for the rest of an orderly end: whoever ends a node waits longer than the node
drains."""

HEALTH_COMMAND = ("python", "-IS", "/opt/healthcheck.py")

CPUS = 1.0
MEMORY_MB = 256
"""The memory of a site, in MB. An idle node takes 55 MB, a request that waits 1.4 KB and its
payload."""

NODE_MB = 128
"""The part of it for the node itself, with room to spare, where held bytes have a limit."""

LABEL_LENGTH_MAX = 40
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")

_MARK = "# Written by `spillover topology "


def check_names(topology: Topology, source: str) -> None:
    """Raise InputError, naming the field of `source`, for a cluster id that no container can bear.

    Host names are DNS labels, of at most 63 characters; what deployments put around an id takes
    some of them. The nodes of a cluster of several have the names that other clusters may have.
    """
    owners: dict[str, str] = {}
    for index, cluster in enumerate(topology.clusters):
        if len(cluster.id) > LABEL_LENGTH_MAX or not _LABEL.fullmatch(cluster.id):
            expected = (
                f"expected 1 to {LABEL_LENGTH_MAX} of a-z 0-9 and -, with none of the latter at "
                f"either end, since containers are named after it, got {cluster.id!r}"
            )
            raise InputError(source, f"clusters[{index}].id", expected)
        for node in nodes_of(cluster):
            other = owners.setdefault(node.label, cluster.id)
            if other != cluster.id:
                expected = f"expected ids that differ from names of nodes, got {node.label!r}, as "
                raise InputError(source, f"clusters[{index}].id", f"{expected}cluster {other} has")


class ContainerNode(NamedTuple):
    """One node, which has a container of its own."""

    cluster: Cluster
    number: int
    """Which one of the cluster's it is, counted from 1."""

    @property
    def name(self) -> ClusterId:
        """Returns what it is called: as its cluster, or with the number behind a slash."""
        is_alone = self.cluster.node_count == 1
        return self.cluster.id if is_alone else ClusterId(f"{self.cluster.id}/{self.number}")

    @property
    def label(self) -> str:
        """Returns the same for names of hosts."""
        return self.name.replace("/", "-")


def nodes_of(*clusters: Cluster) -> Iterator[ContainerNode]:
    """Yields the nodes of clusters."""
    for cluster in clusters:
        for number in range(1, cluster.node_count + 1):
            yield ContainerNode(cluster, number)


def heading(kind: str, topology: Topology) -> str:
    """Returns the first line of a written file."""
    return f"{_MARK}{kind}` for the topology {topology.name}: write it anew, do not edit it.\n"


def is_written_by_us(text: str) -> bool:
    """Returns whether a file is one of those that this package writes."""
    return text.startswith(_MARK)


def node_command(
    cluster: Cluster, node: str = "", *, testbed: bool, tls: bool, tokens: bool = False
) -> list[str]:
    """Returns the arguments of `spillover`, for this node of this cluster in its container; of a
    cluster of one that says nothing."""
    command = ["node", "--topology", TOPOLOGY_PATH, "--cluster", cluster.id]
    if cluster.node_count > 1:
        command += ["--node", node]
    command += ["--bind", bind(API_PORT), "--peer-bind", bind(PEER_PORT)]
    if cluster.passes:
        command += ["--proxy-bind", bind(PROXY_PORT)]
    command += ["--drain-timeout-s", str(DRAIN_TIMEOUT_S)]
    if tls:
        command += tls_options()
    if tokens:
        command += ["--tokens", f"{TOKENS_PATH}/{TOKENS_FILE}"]
    return [*command, "--testbed"] if testbed else command


def bind(port: int) -> str:
    """Returns that a service listens on all addresses of its container, of IPv6 and of IPv4: that
    of the wide-area network changes when a container leaves it and comes back."""
    return f"[::]:{port}"


def tls_options(path: str = TLS_PATH, files: Iterable[str] = TLS_FILES) -> list[str]:
    """Returns the options of a service whose certificate lies there; `files` are those it needs."""
    return [word for name in files for word in (f"--tls-{name}", f"{path}/{TLS_FILES[name]}")]


def with_others(topology: Topology, source: str, urls: Mapping[str, str]) -> Topology:
    """Returns what certificates are made for: the topology, and those that stand beside its
    clusters with certificates of their own, by id. Raises InputError, naming the field of `source`,
    where a cluster has such an id: each could pose as the other."""
    for index, cluster in enumerate(topology.clusters):
        if cluster.id in urls:
            expected = "expected an id that none has of those beside the clusters, which have "
            told = f"{expected}certificates too, got {cluster.id!r}"
            raise InputError(source, f"clusters[{index}].id", told)
    others = (Cluster(id=ClusterId(name), servers=1, url=url) for name, url in urls.items())
    return replace(topology, clusters=(*topology.clusters, *others))


def secret_of(name: str) -> str:
    """Returns the name of the Secret with the files of a certificate."""
    return f"tls-{name}"


def in_containers(
    topology: Topology,
    url_of: Callable[[ContainerNode, int], str],
    peer_url_of: Callable[[ContainerNode], str],
) -> Topology:
    """Returns the topology with the addresses that the containers have for each other. `url_of` is
    told the port too."""

    def addressed(cluster: Cluster) -> Cluster:
        nodes = [
            ClusterNode(
                url=url_of(node, API_PORT),
                peer_url=peer_url_of(node),
                proxy_url=url_of(node, PROXY_PORT) if cluster.passes else None,
            )
            for node in nodes_of(cluster)
        ]
        if len(nodes) > 1:
            return replace(cluster, nodes=tuple(nodes), url=None, peer_url=None, proxy_url=None)
        (one,) = nodes
        return replace(cluster, url=one.url, peer_url=one.peer_url, proxy_url=one.proxy_url)

    return replace(topology, clusters=tuple(map(addressed, topology.clusters)))


def without_delays(topology: Topology) -> Topology:
    """Returns the topology for links that something else delays."""
    return replace(topology, links=tuple(replace(link, delay_ms=0.0) for link in topology.links))


def topology_text(kind: str, topology: Topology) -> str:
    """Returns the topology as a file that nodes read."""
    return heading(kind, topology) + dump_topology(topology)


def memory_mb(cluster: Cluster, base_mb: int) -> int:
    """Returns what a site may take: `base_mb`, or what holding as much as it may does; and what its
    worker processes may."""
    if cluster.held_part_bytes is not None:
        base_mb = max(base_mb, NODE_MB + 2 * -(-cluster.held_part_bytes // 2**20))
    process_bytes = cluster.memory_limit_bytes or MEMORY_LIMIT_BYTES_MIN
    return base_mb + _worker_processes(cluster) * -(-process_bytes // 2**20)


def _worker_processes(cluster: Cluster) -> int:
    """How many processes run requests: one for each that runs at a time, of the handler spin, and
    with `workers: process` of python handlers."""

    def has_processes(handler: str) -> bool:
        in_python = handler.startswith("python:") and cluster.workers == "process"
        return in_python or handler == "spin"

    pool = cluster.pool
    if pool is None:
        return cluster.server_count if has_processes(cluster.handler) else 0
    return sum(
        pool.runs_at_once(server.id)
        for server in pool.servers
        if has_processes(server.handler or cluster.handler)
    )


def has_python_handler(topology: Topology) -> bool:
    """Returns whether nodes need modules that the image does not hold."""
    return any(handler.startswith("python:") for handler in _handlers(topology))


def extras(topology: Topology, *, tls: bool) -> tuple[str, ...]:
    """Returns the extras that its nodes' image must have, or they do not start."""
    dask = any(is_dask_handler(handler) for handler in _handlers(topology))
    return (*EXTRAS, *["dask"] * dask, *["tls"] * tls)


def scheme(*, tls: bool) -> str:
    """Returns that of the nodes' urls."""
    return "https" if tls else "http"


def _handlers(topology: Topology) -> list[str]:
    return [handler for each in topology.clusters for handler in each.handlers.values()]


def is_loopback(host: str) -> bool:
    """Returns whether it means the machine itself. An address of IPv6 is without brackets."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def loopback_handlers(topology: Topology) -> list[str]:
    """Returns what to tell users of handlers that point to the machine itself: in a container that
    is the container. One line for each such handler."""
    lines = []
    for index, cluster in enumerate(topology.clusters):
        for field, handler in cluster.handlers.items():
            host = next(filter(is_loopback, _handler_hosts(handler)), None)
            if host is not None:
                where = f"clusters[{index}].{field}"
                lines.append(f"{where}: {host} is the container itself there, not this machine")
    return lines


def _handler_hosts(handler: str) -> list[str]:
    if is_http_handler(handler) or is_proxy_handler(handler):
        read = upstream_urls if is_http_handler(handler) else passed_to
        return [urlsplit(url.origin).hostname or "" for url in read(handler)]
    return [dask_target(handler).host.strip("[]")] if is_dask_handler(handler) else []
