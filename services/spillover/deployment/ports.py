"""Which port of this machine belongs to which part of a compose deployment.

All of them are on 127.0.0.1, so each can belong to one part only: urls of other machines may share
a port, here they cannot. Whether a port is free when the deployment starts is not known here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from spillover.deployment.containers import is_loopback, nodes_of
from spillover.model.errors import InputError
from spillover.model.ids import ClusterId
from spillover.model.topology import Topology

FIRST_PORT = 8101
LAST_PORT = 65_535

LEASE_MEMBERS = 3
PRODUCERS = 3
DOORS = 2

_SERVICES = {"Prometheus": 9090, "Grafana": 3000, "Redis": 16_379} | {
    f"lease member {number}": 8200 + number for number in range(1, LEASE_MEMBERS + 1)
}
_SERVICES |= {f"producer {number}": 8210 + number for number in range(1, PRODUCERS + 1)}
_SERVICES |= {f"door {number}": 8220 + number for number in range(1, 2 * DOORS + 1)}


def lease_name(number: int) -> str:
    """Returns what the lease member with this number is called, and its host."""
    return f"lease-{number}"


def producer_name(number: int) -> str:
    """Returns what the producer with this number is called, and its host."""
    return f"queue-{number}"


@dataclass(frozen=True, slots=True)
class Ports:
    """The published ports: of each cluster, or of each node of one of several, by their names, and
    of what stands beside the clusters."""

    clusters: dict[ClusterId, int]
    proxies: dict[ClusterId, int] = field(default_factory=dict)
    """The ports of doors in front of a service, by the same names."""
    prometheus: int = _SERVICES["Prometheus"]
    grafana: int = _SERVICES["Grafana"]
    redis: int = _SERVICES["Redis"]

    def of(self, what: str, number: int) -> int:
        """Returns the port of the lease member, the producer or the door with this number, from 1
        on. Doors are those of the services, then those of the nodes' own API."""
        return _SERVICES[f"{what} {number}"]


def publish(topology: Topology, source: str, first_port: int = FIRST_PORT) -> Ports:
    """Returns a port for each node of each cluster, and one more for each in front of a service:
    that of its url, else the next from `first_port` up.

    That too where the url is another machine's and its port is taken: it says nothing of this one.

    Raises InputError, naming the field of `source`, where a url on loopback has a port that is
    taken, and where there are too few ports.
    """
    owners = {port: name for name, port in _SERVICES.items()}
    given: dict[tuple[str, ClusterId], int] = {}
    wanted = list(_ports_of_urls(topology))
    # First those of this machine, which have no other choice.
    for index, place, field_, name, port, here in sorted(wanted, key=lambda each: not each[5]):
        if port not in owners:
            owners[port] = f"cluster {name}"
            given[field_, name] = port
        elif here:
            expected = (
                "expected a port of its own, since all are published on 127.0.0.1, "
                f"got {port}, which {owners[port]} has"
            )
            raise InputError(source, f"clusters[{index}].{place}{field_}", expected)
    free = iter(port for port in range(first_port, LAST_PORT + 1) if port not in owners)

    def port_of(field_: str, name: ClusterId) -> int:
        port = given.get((field_, name)) or next(free, 0)
        if not port:
            raise InputError("--first-port", "", f"expected room up to {LAST_PORT}, got too little")
        return port

    nodes = list(nodes_of(*topology.clusters))
    clusters = {node.name: port_of("url", node.name) for node in nodes}
    passing = [node.name for node in nodes if node.cluster.passes]
    return Ports(clusters, {name: port_of("proxy_url", name) for name in passing})


def _ports_of_urls(topology: Topology) -> Iterator[tuple[int, str, str, ClusterId, int, bool]]:
    """Yield for each url of a node the cluster's index, the place of the field in it, the field,
    the node's name, the port, and whether that is on loopback."""
    for node in nodes_of(*topology.clusters):
        index, own = topology.clusters.index(node.cluster), node.cluster.at(node.number)
        place = "" if node.cluster.node_count == 1 else f"nodes[{node.number - 1}]."
        for field_, given in (("url", own.url), ("proxy_url", own.proxy_url)):
            if given is not None:
                url = urlsplit(given)
                port = url.port or (443 if url.scheme == "https" else 80)
                yield index, place, field_, node.name, port, is_loopback(url.hostname or "")
