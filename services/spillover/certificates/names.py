"""Which names a cluster's certificate is for: its identity, and the hosts of its urls. Whether a
topology can have certificates at all.

Making certificates is in `making`; nothing here reads or writes files.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from spillover.live.http1.base_url import BaseUrl
from spillover.model.certified_names import (
    check_names,
    is_host,
    problem_with_cluster,
    same_name,
)
from spillover.model.errors import InputError
from spillover.model.topology import Cluster, Topology

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""The names of this machine, in every certificate: who operates a node calls it from its own
machine, too."""


@dataclass(frozen=True, slots=True)
class CertificateHolder:
    """The holder of a certificate: a cluster's node, a producer of the queue, a lease member."""

    id: str
    name: str
    """The federation's, the queue's or the group's: it is for `ID.NAME.spillover`."""
    hosts: Sequence[str]
    """Under which it is called."""


def holders_of(topology: Topology) -> list[CertificateHolder]:
    """Returns its clusters."""
    return [CertificateHolder(one.id, topology.name, hosts_of(one)) for one in topology.clusters]


def service_holder(told: str, name: str) -> CertificateHolder:
    """Returns who is meant by ID, or ID=HOST[,HOST...], in which a url may stand for its host.
    Raises InputError."""
    own_id, equals, hosts = told.partition("=")
    problem = problem_with_cluster(own_id, name)
    if problem is not None:
        raise InputError("--service", "", problem)
    named = [_host_told(host, told) for host in hosts.split(",")] if equals else []
    return CertificateHolder(own_id, name, tuple(dict.fromkeys([*named, *LOOPBACK])))


def _host_told(told: str, service: str) -> str:
    host: str | None = told
    if "://" in told:
        try:
            host = urlsplit(told).hostname if BaseUrl(told).is_secure else None
        except InputError:
            host = None
    host = None if host is None else same_name(host)
    if host is None or not (is_address(host) or is_host(host)):
        expected = "expected ID, or ID=HOST[,HOST...] with names, addresses or https:// urls"
        raise InputError("--service", "", f"{expected}, got {service!r}")
    return host


def check_topology(topology: Topology, source: str) -> None:
    """Raise InputError where a name of the topology cannot stand in a certificate, or would not be
    that of one cluster alone."""
    if not topology.is_named:
        expected = "expected a name: certificates hold for one federation, and say which"
        raise InputError(source, "name", expected)
    try:
        check_names(topology.name, topology.cluster_ids)
    except InputError as error:
        raise InputError(source, error.field, error.expected) from None


def hosts_of(cluster: Cluster) -> tuple[str, ...]:
    """Returns the hosts under which its nodes are called, those of its own machine last."""
    each = [cluster.at(node) for node in range(1, cluster.node_count + 1)]
    urls = [url for one in each for url in (one.url, one.peer_url, one.proxy_url)]
    named = [same_name(urlsplit(url).hostname or "") for url in urls if url is not None]
    return tuple(dict.fromkeys([host for host in named if host] + [*LOOPBACK]))


def is_address(host: str) -> bool:
    """Returns whether it is an IP address and no name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
