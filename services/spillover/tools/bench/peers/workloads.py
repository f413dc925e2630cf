"""What is played: federations, schedules by seed, and which figures count.

Who plays them is not known here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import combinations
from operator import attrgetter

from spillover.inputs.builtin import builtin_topology
from spillover.model.errors import InputError
from spillover.model.ids import ClusterId
from spillover.model.schedule import Schedule
from spillover.model.topology import Cluster, Link, Topology
from spillover.tools.bench.model import BenchPlan, Figure
from spillover.tools.bench.nodes import DEADLINE_MS
from spillover_loadgen import workloads

DELAY_MS = 35.0
"""One way, between any two sites, as in the paper."""
JOB_MS = 1000.0
START_S = 2.0
"""Before the first job, for connections to be opened; in the paper's bursts it is 0.3."""
LOAD = 0.9
OVERLOAD = 1.5
OVERLOAD_DEADLINE_MS = 10 * JOB_MS
OVERLOAD_SETTLED_S = 20.0
"""At 1.5 times what the servers do, waits grow by half a second each second, up to the deadline."""

MOVED, HOPS = Figure("moved", "%"), Figure("hops", "per 100 requests")
SYSTEM_TIMES = (Figure("mean", "ms"), Figure("p99", "ms"), Figure("max", "ms"), MOVED, HOPS)
WAITS = (
    Figure("mean wait", "ms"),
    Figure("p99 wait", "ms"),
    Figure("max wait", "ms"),
    MOVED,
    HOPS,
)
GOODPUT = (Figure("goodput", "%"), MOVED, HOPS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One federation and its clients. `draw(duration_s, seed)` gives their requests."""

    name: str
    topology: Topology
    draw: Callable[[float, int], Schedule]
    full_s: float
    quick_s: float
    figures: tuple[Figure, ...]
    """The first is that by which HAProxy's threshold is chosen."""
    together: bool = False
    """Whether all sides play it at the same time: where they leave the processors idle."""
    deadline_ms: float | None = None
    """Of each request. Without one all must be answered; with one, what is late does not count."""
    settled_s: float = 0.0
    """Requests count from then on, or from half of a shorter schedule: before, queues fill, and who
    lets them grow longer does more."""

    def schedule(self, plan: BenchPlan, seed: int) -> Schedule:
        """Returns the requests of one seed, for as long as the plan says. Raises InputError if that
        is too short for any to come."""
        own_s = plan.of(self.full_s, self.quick_s)
        duration_s = own_s if plan.duration_s is None else plan.duration_s
        schedule = self.draw(duration_s, seed)
        if not schedule:
            expected = f"expected longer: no request of {self.name} comes in {duration_s:g} s"
            raise InputError("--duration-s", "", expected)
        return schedule


def mesh(name: str, sizes: Iterable[int], *, deadline_ms: float = DEADLINE_MS) -> Topology:
    """Returns sites of these numbers of servers, each linked to each other."""
    clusters = [
        Cluster(id=ClusterId(letter), servers=servers, service_ms=JOB_MS, queue_limit=100_000)
        for letter, servers in zip("abcdefgh", sizes, strict=False)
    ]
    pairs = combinations([cluster.id for cluster in clusters], 2)
    return Topology(
        name=name,
        clusters=tuple(clusters),
        links=tuple(Link(between=pair, delay_ms=DELAY_MS) for pair in pairs),
        default_deadline_ms=deadline_ms,
    )


def jobs(topology: Topology, load: float, duration_s: float, seed: int) -> Schedule:
    """Returns Poisson arrivals of exponential jobs, from `START_S` on, at this load of each
    cluster's own servers."""
    schedule: Schedule = []
    for cluster in topology.clusters:
        rate_per_s = load * cluster.server_count / (cluster.service_ms / 1e3)
        drawn = workloads.poisson(
            [cluster.id],
            rate_per_s=rate_per_s,
            duration_s=max(0.0, duration_s - START_S),
            seed=seed,
        )
        rng = random.Random(f"{seed}/jobs/{cluster.id}")
        for arrival in drawn:
            service_ms = round(rng.expovariate(1 / cluster.service_ms), 6)
            time_s = START_S + arrival.time_s
            schedule.append(replace(arrival, time_s=time_s, service_ms=service_ms))
    return sorted(schedule, key=attrgetter("time_s"))


def _bursts() -> Workload:
    paper = builtin_topology("ring5")
    topology = replace(paper, default_deadline_ms=DEADLINE_MS)
    ids = topology.cluster_ids
    return Workload(
        name="bursts",
        topology=topology,
        draw=lambda duration_s, seed: workloads.bursts(ids, duration_s=duration_s, seed=seed),
        full_s=workloads.bursts_duration_s(len(ids)),
        quick_s=5.0,
        figures=SYSTEM_TIMES,
    )


def _jobs(name: str, sizes: Iterable[int]) -> Workload:
    topology = mesh(name, sizes)
    return Workload(
        name=name,
        topology=topology,
        draw=lambda duration_s, seed: jobs(topology, LOAD, duration_s, seed),
        full_s=120.0,
        quick_s=4.0,
        figures=WAITS,
        together=True,
    )


def _overload() -> Workload:
    topology = mesh("overload", (8, 8, 8, 8), deadline_ms=OVERLOAD_DEADLINE_MS)
    return Workload(
        name="overload",
        topology=topology,
        draw=lambda duration_s, seed: jobs(topology, OVERLOAD, duration_s, seed),
        full_s=80.0,
        quick_s=4.0,
        figures=GOODPUT,
        settled_s=OVERLOAD_SETTLED_S,
        together=True,
        deadline_ms=OVERLOAD_DEADLINE_MS,
    )


WORKLOADS = (_bursts(), _jobs("jobs", (8, 8, 8, 8)), _jobs("unlike", (2, 4, 8, 16)), _overload())
