"""The complaint of engines about clusters that they do not know: those with unlike servers."""

from __future__ import annotations

from spillover.model.errors import InputError
from spillover.model.topology import Topology


def check_alike(topology: Topology) -> None:
    """Raise InputError for a topology with a list of servers, instead of computing nonsense."""
    for index, cluster in enumerate(topology.clusters):
        if cluster.pool is not None or cluster.bounds is not None:
            got = "a list" if cluster.bounds is None else "bounds"
            none = "unlike servers" if cluster.bounds is None else "servers that are learned"
            expected = f"expected a number, got {got}: this simulation knows no {none}"
            raise InputError(topology.name, f"clusters[{index}].servers", expected)
