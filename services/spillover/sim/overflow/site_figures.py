"""What is told of clusters of several nodes after a run in which nodes die: what was lost with
each, the share that each has in the end, and how long it took until a dead node's servers were in
use again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from spillover.core.overflow.pools import site_servers
from spillover.model.ids import ClusterId
from spillover.sim.engine.world import World
from spillover.sim.overflow.faulty_cluster import FaultyCluster

LOOK_S = 0.005
"""How often it is looked whether the servers of a dead node are shared again."""


class SiteFigures:
    """The figures of all clusters that have several nodes."""

    def __init__(self, world: World, clusters: Mapping[ClusterId, FaultyCluster]) -> None:
        self._world = world
        self._sites = {name: one for name, one in clusters.items() if one.siblings}
        self._taken_over_s: dict[ClusterId, list[float]] = {name: [] for name in self._sites}
        self._lost = Counter[str]()

    def lost(self, node: FaultyCluster) -> None:
        """A client's request was lost with the node that had taken it."""
        self._lost[node.name] += 1

    def died(self, node: FaultyCluster) -> None:
        if node.id in self._sites:
            self._look(node.id, self._world.now_s)

    def as_dict(self) -> dict[str, Any]:
        """Returns what `sites` has of them; `taken_over_s` is of each death after which others were
        there, in their order."""
        return {
            name: {
                "nodes": {
                    f"{name}/{node.node}": {"share": _share(node), "lost": self._lost[node.name]}
                    for node in first.faulty_nodes
                },
                "taken_over_s": self._taken_over_s[name],
            }
            for name, first in self._sites.items()
        }

    def _look(self, cluster: ClusterId, since_s: float) -> None:
        nodes = self._sites[cluster].faulty_nodes
        alive = [node for node in nodes if node.alive]
        if not alive:
            return
        if sum(map(_share, alive)) >= _servers(alive[0]):
            self._taken_over_s[cluster].append(round(self._world.now_s - since_s, 6))
        else:
            self._world.at(self._world.now_s + LOOK_S, self._look, cluster, since_s)


def _share(node: FaultyCluster) -> int:
    site = site_servers(node.machine.servers)
    return site.siblings.own.share if node.alive and site is not None else 0


def _servers(node: FaultyCluster) -> int:
    site = site_servers(node.machine.servers)
    return node.machine.settings.servers if site is None else site.siblings.own.servers
