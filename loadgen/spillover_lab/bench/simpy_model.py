"""Lai & Polak's federation written with SimPy: a resource for each site, a process for each request
and each message.

Nothing of Spillover's rules or engines is used here, only the description of the federation.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence
from typing import Any, TypeAlias

import simpy

from spillover.model.schedule import Arrival
from spillover.model.topology import Cluster, Topology

Process: TypeAlias = Generator[Any, Any, None]


class Site:
    """A cluster: its servers with their queue, and what its neighbors last reported (P, R)."""

    def __init__(self, env: simpy.Environment, cluster: Cluster, rng: random.Random) -> None:
        self.env = env
        self.servers = simpy.Resource(env, capacity=cluster.server_count)
        self.service_s = cluster.service_ms / 1e3
        self.delivery_s = cluster.delivery_ms / 1e3
        self.links: list[tuple[Site, float]] = []
        self.heard: dict[Site, tuple[float, float]] = {}
        self.rng = rng

    @property
    def accept(self) -> float:
        """Returns P = m / (N + m)."""
        capacity = self.servers.capacity
        return float(capacity / (len(self.servers.queue) + capacity))

    def gossip(self, period_s: float) -> Process:
        """Reports P and R to the neighbors each period."""
        yield self.env.timeout(self.rng.random() * period_s)
        while True:
            accept = self.accept
            reject = 1.0 - accept
            for neighbor_accept, _ in self.heard.values():
                reject *= 1.0 - neighbor_accept
            for neighbor, delay_s in self.links:
                self.env.process(self.tell(neighbor, delay_s, (accept, 1.0 - reject)))
            yield self.env.timeout(period_s)

    def tell(self, neighbor: Site, delay_s: float, report: tuple[float, float]) -> Process:
        """Brings a report to a neighbor."""
        yield self.env.timeout(delay_s)
        neighbor.heard[self] = report

    def choose(self, visited: set[Site]) -> tuple[Site, float] | None:
        """Returns the link by which to hand a request on; None to keep it, with probability P."""
        accept = self.accept
        if self.rng.random() < accept:
            return None
        ways = [way for way in self.links if way[0] in self.heard and way[0] not in visited]
        if not ways:
            return None
        weights = [max(0.0, 1.0 - (1.0 - self.heard[y][1]) / (1.0 - accept)) for y, _ in ways]
        if not any(weights):
            return self.rng.choice(ways)
        return self.rng.choices(ways, weights)[0]

    def request(self, times_s: list[float]) -> Process:
        """Follows a request from its arrival here until it has been served somewhere."""
        born_s = self.env.now
        site = self
        visited = {self}
        while site.servers.count == site.servers.capacity:
            way = site.choose(visited)
            if way is None:
                break
            site, delay_s = way
            visited.add(site)
            yield self.env.timeout(delay_s)
        with site.servers.request() as turn:
            yield turn
            yield self.env.timeout(site.service_s)
        times_s.append(self.env.now + site.delivery_s - born_s)


def run_simpy(topology: Topology, schedule: Sequence[Arrival], seed: int) -> list[float]:
    """Returns the system times in s of all requests, in the order in which they end."""
    env = simpy.Environment()
    rng = random.Random(seed)
    sites = {cluster.id: Site(env, cluster, rng) for cluster in topology.clusters}
    for link in topology.links:
        a, b = (sites[end] for end in link.between)
        a.links.append((b, link.delay_ms / 1e3))
        b.links.append((a, link.delay_ms / 1e3))
    times_s: list[float] = []

    def source() -> Process:
        processes = []
        for arrival in schedule:
            yield env.timeout(arrival.time_s - env.now)
            processes.append(env.process(sites[arrival.cluster].request(times_s)))
        yield env.all_of([process for process in processes if process.is_alive])

    for site in sites.values():
        env.process(site.gossip(topology.gossip_period_ms / 1e3))
    env.run(until=env.process(source()))
    return times_s
