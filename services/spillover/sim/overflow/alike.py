"""The complaint of engines about clusters that they do not know: those with unlike servers."""

from __future__ import annotations

from spillover.model.errors import InputError
from spillover.model.topology import Topology


def check_alike(topology: Topology) -> None:
    """Raise InputError for a topology with a list of servers, instead of computing nonsense."""
    for index, cluster in enumerate(topology.clusters):
        if cluster.pool is not None:
            expected = "expected a number, got a list: this simulation knows no unlike servers"
            raise InputError(topology.name, f"clusters[{index}].servers", expected)
