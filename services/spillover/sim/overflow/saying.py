"""Requests that say how large they are: a number that their time grows with, or nearly."""

from __future__ import annotations

from dataclasses import replace

from spillover.model.topology import Topology
from spillover.model.work_source import WorkSource
from spillover.sim.engine.world import stream

UNIT_S = 1e-3
"""A number of 1 stands for so long a service. Nodes have to find that out."""


class Saying:
    """What requests say. `off` is the standard deviation of the logarithm of how far off that
    is."""

    def __init__(self, off: float, seed: int) -> None:
        self._off = off
        self._random = stream(seed, "said sizes")

    def features_of(self, work_s: float | None) -> tuple[float, ...] | None:
        """Returns what a request says that takes so long; None if it has no time of its own."""
        if work_s is None:
            return None
        return (work_s / UNIT_S * self._random.lognormvariate(0.0, self._off),)


def counting_work(topology: Topology) -> Topology:
    """Returns a topology whose clusters count work, where servers are alike."""
    source = WorkSource(bytes=True)
    clusters = tuple(
        one if one.pool is not None or one.node_count > 1 else replace(one, work=source)
        for one in topology.clusters
    )
    return replace(topology, clusters=clusters)
