"""The built-in topologies: the federations of the paper (Lai & Polak, figure 4 and section III).

Only the values of the paper live here; reading topology files is in `topology_file`.
"""

from __future__ import annotations

from string import ascii_lowercase

from spillover.model.ids import ClusterId
from spillover.model.topology import Cluster, Link, Topology

_SIZES_AND_REACHES = {"ring5": (5, 1), "chord5": (5, 2), "chord10": (10, 2), "chord20": (20, 2)}
"""Name to number of clusters and how many of the following clusters each is linked to."""

BUILTIN_NAMES = tuple(_SIZES_AND_REACHES)


def builtin_topology(name: str) -> Topology:
    """Returns the built-in topology of that name; KeyError unless it is one of `BUILTIN_NAMES`."""
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
