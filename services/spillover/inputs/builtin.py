"""The built-in topologies: the federations of the paper (Lai & Polak, figure 4 and section III),
and Comte's pools as one cluster each.

Only the values of Lai & Polak live here. Those of the pools are in `builtin_pools`; reading
topology files is in `topology_file`.
"""

from __future__ import annotations

from string import ascii_lowercase

from spillover.inputs.builtin_pools import BUILTIN_POOLS
from spillover.model.ids import ClusterId
from spillover.model.pool import Pool
from spillover.model.topology import Cluster, Link, Topology
from spillover.model.unlike_servers import PS, REFUSE, JobType, Server, ServerClass

_SIZES_AND_REACHES = {"ring5": (5, 1), "chord5": (5, 2), "chord10": (10, 2), "chord20": (20, 2)}
"""The number of clusters by name, and how many of the following clusters each is linked to."""

RINGS = tuple(_SIZES_AND_REACHES)
BUILTIN_NAMES = (*RINGS, *BUILTIN_POOLS)


def builtin_topology(name: str) -> Topology:
    """Returns the built-in topology of that name; KeyError unless it is one of `BUILTIN_NAMES`."""
    if name in BUILTIN_POOLS:
        return _one_cluster(BUILTIN_POOLS[name]())
    size, reach = _SIZES_AND_REACHES[name]
    ids = [ClusterId(letter) for letter in ascii_lowercase[:size]]
    # A dict keeps the order and drops what a small circle would give twice.
    pairs = {
        frozenset((ids[start], ids[(start + step) % size])): (
            ids[start],
            ids[(start + step) % size],
        )
        for step in range(1, reach + 1)
        for start in range(size)
    }
    return Topology(
        name=name,
        policy="paper",
        gossip_period_ms=50.0,
        clusters=tuple(
            Cluster(id=cluster_id, servers=5, service_ms=40.0, delivery_ms=6.0)
            for cluster_id in ids
        ),
        links=tuple(Link(between=pair, delay_ms=35.0) for pair in pairs.values()),
    )


def _one_cluster(pool: Pool) -> Topology:
    """Returns the pool as a cluster: its rates are jobs of mean size per second, and that is one
    second at rate 1. As in the paper, jobs that find no token are blocked and do not come back."""
    servers = tuple(Server(id=each.id, rate=each.rate) for each in pool.servers)
    classes = tuple(
        ServerClass(id=each.id, servers=each.servers, tokens=each.tokens) for each in pool.classes
    )
    types = tuple(JobType(id=each.id, classes=each.classes) for each in pool.types)
    cluster = Cluster(
        id=ClusterId("a"),
        servers=servers,
        classes=classes,
        types=types,
        on_block=REFUSE,
        discipline=PS,
        service_ms=1000.0,
        handler="sleep",
    )
    return Topology(name=pool.name, policy="paper", clusters=(cluster,))
