"""Which port of this machine belongs to which part of a compose deployment.

All of them are on 127.0.0.1, so each can belong to one part only: urls of other machines may share
a port, here they cannot. Whether a port is free when the deployment starts is not known here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from spillover.model.errors import InputError
from spillover.model.ids import ClusterId
from spillover.model.topology import Topology
from spillover.tools.deployment.containers import is_loopback

FIRST_PORT = 8101
LAST_PORT = 65_535

LEASE_MEMBERS = 3
PRODUCERS = 3

_SERVICES = {"Prometheus": 9090, "Grafana": 3000, "Redis": 16_379} | {
    f"lease member {number}": 8200 + number for number in range(1, LEASE_MEMBERS + 1)
}
_SERVICES |= {f"producer {number}": 8210 + number for number in range(1, PRODUCERS + 1)}


@dataclass(frozen=True, slots=True)
class Ports:
    """The published ports: of each cluster, and of what stands beside the clusters."""

    clusters: dict[ClusterId, int]
    prometheus: int = _SERVICES["Prometheus"]
    grafana: int = _SERVICES["Grafana"]
    redis: int = _SERVICES["Redis"]

    def lease_member(self, number: int) -> int:
        """Returns the port of the member with this number, from 1 on."""
        return _SERVICES[f"lease member {number}"]

    def producer(self, number: int) -> int:
        """Returns the port of the queue's producer with this number, from 1 on."""
        return _SERVICES[f"producer {number}"]


def publish(topology: Topology, source: str, first_port: int = FIRST_PORT) -> Ports:
    """Returns a port for each cluster: that of its url, else the next from `first_port` up.

    That too where the url is another machine's and its port is taken: it says nothing of this one.

    Raises InputError, naming the field of `source`, where a url on loopback has a port that is
    taken, and where there are too few ports.
    """
    owners = {port: name for name, port in _SERVICES.items()}
    given: dict[ClusterId, int] = {}
    wanted = list(_ports_of_urls(topology))
    # First those of this machine, which have no other choice.
    for index, cluster_id, port, here in sorted(wanted, key=lambda each: not each[3]):
        if port not in owners:
            owners[port] = f"cluster {cluster_id}"
            given[cluster_id] = port
        elif here:
            expected = (
                "expected a port of its own, since all are published on 127.0.0.1, "
                f"got {port}, which {owners[port]} has"
            )
            raise InputError(source, f"clusters[{index}].url", expected)
    ports: dict[ClusterId, int] = {}
    free = iter(port for port in range(first_port, LAST_PORT + 1) if port not in owners)
    for cluster_id in topology.cluster_ids:
        port = given.get(cluster_id) or next(free, 0)
        if not port:
            raise InputError("--first-port", "", f"expected room up to {LAST_PORT}, got too little")
        ports[cluster_id] = port
    return Ports(ports)


def _ports_of_urls(topology: Topology) -> Iterator[tuple[int, ClusterId, int, bool]]:
    """Of each cluster with a url: its index, its id, the port, and whether that is on loopback."""
    for index, cluster in enumerate(topology.clusters):
        if cluster.url is not None:
            url = urlsplit(cluster.url)
            yield (
                index,
                cluster.id,
                url.port or (443 if url.scheme == "https" else 80),
                is_loopback(url.hostname or ""),
            )
