"""Lai & Polak's federation written with Ciw: a network of queues with routing of our own.

Each cluster is three nodes: a door, where it is decided, the queue with its servers, and the road
that reports take to the neighbors; each end of a link is one more, which requests are on for as
long as the delay. All but the queues have servers without number. Nothing of Spillover's rules or
engines is used here, only the description of the federation.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise, repeat
from typing import Any

import ciw

from spillover.model.schedule import Arrival
from spillover.model.topology import Topology

AFTER_S = 10.0
"""How long the simulation goes on after the last arrival."""


class Table:
    """Where things are in the network, and what each cluster has heard of the others."""

    def __init__(self, topology: Topology, rng: random.Random) -> None:
        count = len(topology.clusters)
        place = {cluster: x for x, cluster in enumerate(topology.cluster_ids)}
        ends = [[place[end] for end in link.between] for link in topology.links]
        self.rng = rng
        self.servers = [cluster.servers for cluster in topology.clusters]
        self.heard: list[dict[int, tuple[float, float]]] = [{} for _ in place]
        self.door = [1 + x for x in range(count)]
        self.queue = [1 + count + x for x in range(count)]
        self.reports = [1 + 2 * count + x for x in range(count)]
        self.roads: list[dict[int, int]] = [{} for _ in place]
        for number, (x, y) in enumerate([*ends, *(end[::-1] for end in ends)]):
            self.roads[x][y] = 1 + 3 * count + number

    def waiting(self, simulation: Any, x: int) -> int:
        """N of cluster x now."""
        there: int = simulation.nodes[self.queue[x]].number_of_individuals
        return max(0, there - self.servers[x])

    def accept(self, simulation: Any, x: int) -> float:
        """P = m / (N + m)."""
        return self.servers[x] / (self.waiting(simulation, x) + self.servers[x])


class Door(ciw.routing.NodeRouting):  # type: ignore[misc]
    """Keep a request or hand it on."""

    def __init__(self, table: Table, x: int) -> None:
        super().__init__()
        self.table = table
        self.x = x

    def next_node(self, ind: Any) -> Any:
        nodes = self.simulation.nodes
        table, x = self.table, self.x
        queue = nodes[table.queue[x]]
        if queue.number_of_individuals < table.servers[x]:
            return queue
        visited = ind.__dict__.setdefault("visited", set())
        accept = table.accept(self.simulation, x)
        if table.rng.random() < accept:
            return queue
        visited.add(x)
        heard = table.heard[x]
        ways = [y for y in table.roads[x] if y in heard and y not in visited]
        if not ways:
            return queue
        weights = [max(0.0, 1.0 - (1.0 - heard[y][1]) / (1.0 - accept)) for y in ways]
        y = table.rng.choices(ways, weights if any(weights) else None)[0]
        return nodes[table.roads[x][y]]


class Delivery(ciw.routing.NodeRouting):  # type: ignore[misc]
    """A report has come: put it where each neighbor looks."""

    def __init__(self, table: Table, x: int) -> None:
        super().__init__()
        self.table = table
        self.x = x

    def next_node(self, ind: Any) -> Any:
        for y in self.table.roads[self.x]:
            self.table.heard[y][self.x] = ind.report
        return self.simulation.nodes[-1]


class Way(ciw.dists.Distribution):  # type: ignore[misc]
    """The way of a report, which says what is so when it leaves."""

    def __init__(self, table: Table, x: int, delay_s: float) -> None:
        self.table = table
        self.x = x
        self.delay_s = delay_s

    def sample(self, t: float | None = None, ind: Any = None) -> float:  # noqa: ARG002
        accept = self.table.accept(ind.simulation, self.x)
        reject = 1.0 - accept
        for neighbor_accept, _ in self.table.heard[self.x].values():
            reject *= 1.0 - neighbor_accept
        ind.report = (accept, 1.0 - reject)
        return self.delay_s


class Gaps(ciw.dists.Distribution):  # type: ignore[misc]
    """One time between arrivals after the other; at the end, none comes any more."""

    def __init__(self, gaps_s: Iterator[float]) -> None:
        self.gaps_s = gaps_s

    def sample(self, t: float | None = None, ind: Any = None) -> float:  # noqa: ARG002
        return next(self.gaps_s, float("inf"))
