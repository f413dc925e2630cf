"""Lai & Polak's federation written with Ciw: a network of queues with routing of our own.

Each cluster is three nodes: a door, where it is decided, the queue with its servers, and the road
that reports take to the neighbors; each end of a link is one more, which requests are on for as
long as the delay. All but the queues have servers without number. Nothing of Spillover's rules or
engines is used here, only the description of the federation.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import pairwise
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
        self.servers = [cluster.server_count for cluster in topology.clusters]
        self.heard: list[dict[int, tuple[float, float]]] = [{} for _ in place]
        self.doors = [1 + x for x in range(count)]
        self.queues = [1 + count + x for x in range(count)]
        self.reports = [1 + 2 * count + x for x in range(count)]
        self.roads: list[dict[int, int]] = [{} for _ in place]
        for number, (x, y) in enumerate([*ends, *(end[::-1] for end in ends)]):
            self.roads[x][y] = 1 + 3 * count + number

    def waiting(self, simulation: Any, x: int) -> int:
        """Returns N of cluster x now."""
        there: int = simulation.nodes[self.queues[x]].number_of_individuals
        return max(0, there - self.servers[x])

    def accept(self, simulation: Any, x: int) -> float:
        """Returns P = m / (N + m)."""
        return self.servers[x] / (self.waiting(simulation, x) + self.servers[x])


class Door(ciw.routing.NodeRouting):  # type: ignore[misc]
    """Keep a request or hand it on."""

    def __init__(self, x: int) -> None:
        super().__init__()
        self.x = x

    def next_node(self, ind: Any) -> Any:
        """Returns the queue here, or the road to a neighbor."""
        nodes, table, x = self.simulation.nodes, self.simulation.table, self.x
        queue = nodes[table.queues[x]]
        if queue.number_of_individuals < table.servers[x]:
            return queue
        accept = table.accept(self.simulation, x)
        if table.rng.random() < accept:
            return queue
        visited = ind.__dict__.setdefault("visited", set())
        visited.add(x)
        heard = table.heard[x]
        ways = [y for y in table.roads[x] if y in heard and y not in visited]
        if not ways:
            return queue
        weights = [max(0.0, 1.0 - (1.0 - heard[y][1]) / (1.0 - accept)) for y in ways]
        y = table.rng.choices(ways, weights if any(weights) else None)[0]
        return nodes[table.roads[x][y]]


class Reported(ciw.routing.NodeRouting):  # type: ignore[misc]
    """A report has come: put it where each neighbor looks."""

    def __init__(self, x: int) -> None:
        super().__init__()
        self.x = x

    def next_node(self, ind: Any) -> Any:
        """Returns the way out of the network."""
        table = self.simulation.table
        for y in table.roads[self.x]:
            table.heard[y][self.x] = ind.report
        return self.simulation.nodes[-1]


class ReportWay(ciw.dists.Distribution):  # type: ignore[misc]
    """The way of a report, which tells what is so when it leaves."""

    def __init__(self, x: int, delay_s: float) -> None:
        self.x = x
        self.delay_s = delay_s

    def sample(self, t: float | None = None, ind: Any = None) -> float:  # noqa: ARG002
        """Returns the delay."""
        table = ind.simulation.table
        accept = table.accept(ind.simulation, self.x)
        reject = 1.0 - accept
        for neighbor_accept, _ in table.heard[self.x].values():
            reject *= 1.0 - neighbor_accept
        ind.report = (accept, 1.0 - reject)
        return self.delay_s


class Gaps(ciw.dists.Distribution):  # type: ignore[misc]
    """These times between arrivals, then always the last."""

    def __init__(self, gaps_s: Sequence[float], last_s: float) -> None:
        self.rest_s = list(reversed(gaps_s))
        self.last_s = last_s

    def sample(self, t: float | None = None, ind: Any = None) -> float:  # noqa: ARG002
        """Returns the next one."""
        return self.rest_s.pop() if self.rest_s else self.last_s


def run_ciw(topology: Topology, schedule: Sequence[Arrival], seed: int) -> list[float]:
    """Returns the system times in s of all requests.

    All links must be alike, since a report goes to all neighbors at once.
    """
    ciw.seed(seed)
    table = Table(topology, random.Random(seed))
    simulation = ciw.Simulation(_network(topology, schedule, table))
    simulation.table = table
    last_s = schedule[-1].time_s if schedule else 0.0
    simulation.simulate_until_max_time(last_s + AFTER_S)
    return _system_times_s(simulation, topology, table)


def _network(topology: Topology, schedule: Sequence[Arrival], table: Table) -> Any:
    clusters = range(len(topology.clusters))
    (delay_s,) = {link.delay_ms / 1e3 for link in topology.links}
    period_s = topology.gossip_period_ms / 1e3
    doors = []
    for cluster in topology.cluster_ids:
        times_s = [arrival.time_s for arrival in schedule if arrival.cluster == cluster]
        doors.append(Gaps([b - a for a, b in pairwise([0.0, *times_s])], math.inf))
    reports = [Gaps([table.rng.random() * period_s], period_s) for _ in clusters]
    ends = {node: y for roads in table.roads for y, node in roads.items()}
    on_road = ciw.dists.Deterministic(delay_s)
    services = [ciw.dists.Deterministic(c.service_ms / 1e3) for c in topology.clusters]
    return ciw.create_network(
        arrival_distributions=[*doors, *(None for _ in clusters), *reports, *(None for _ in ends)],
        service_distributions=[
            *(ciw.dists.Deterministic(0.0) for _ in clusters),
            *services,
            *(ReportWay(x, delay_s) for x in clusters),
            *(on_road for _ in ends),
        ],
        number_of_servers=[
            *(math.inf for _ in clusters),
            *table.servers,
            *(math.inf for _ in clusters),
            *(math.inf for _ in ends),
        ],
        routing=ciw.routing.NetworkRouting(
            routers=[
                *(Door(x) for x in clusters),
                *(ciw.routing.Leave() for _ in clusters),
                *(Reported(x) for x in clusters),
                *(ciw.routing.Direct(to=table.doors[ends[node]]) for node in sorted(ends)),
            ]
        ),
    )


def _system_times_s(simulation: Any, topology: Topology, table: Table) -> list[float]:
    """From the first record of each request, at a door, to its last, at a queue."""
    came_s: dict[int, float] = {}
    times_s = []
    records = sorted(simulation.get_all_records(), key=lambda record: record.arrival_date)
    for record in records:
        came_s.setdefault(record.id_number, record.arrival_date)
    for record in records:
        if record.node in table.queues:
            delivery_s = topology.clusters[table.queues.index(record.node)].delivery_ms / 1e3
            times_s.append(record.service_end_date + delivery_s - came_s[record.id_number])
    return times_s
