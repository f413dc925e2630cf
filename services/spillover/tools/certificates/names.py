"""Which names a cluster's certificate is for: its identity, and the hosts of its urls. Whether a
topology can have certificates at all.

Making certificates is in `making`; nothing here reads or writes files.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from spillover.model.certified_names import check_names
from spillover.model.errors import InputError
from spillover.model.topology import Cluster, Topology

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""In every certificate: who operates a node calls it from its own machine, too."""


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
    """Returns the hosts under which its node is called, those of its own machine last."""
    urls = (cluster.url, cluster.peer_url, cluster.proxy_url)
    named = [urlsplit(url).hostname for url in urls if url is not None]
    return tuple(dict.fromkeys([host for host in named if host] + [*LOOPBACK]))


def is_address(host: str) -> bool:
    """Returns whether it is an IP address and no name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
