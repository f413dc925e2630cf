"""`spillover sim overflow`: a schedule through a federation, and what came of it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from spillover.model.ids import ClusterId
from spillover.model.request import Answer, Outcome, Refusal
from spillover.model.schedule import Arrival, Schedule
from spillover.model.statistics import summarize
from spillover.model.topology import Topology
from spillover.sim.federation import SimCluster, build_federation, request_of
from spillover.sim.world import World

PROGRESS_EVERY = 1000
"""Requests between two calls of `on_progress`."""


@dataclass(slots=True)
class OverflowRun:
    """The outcome of one simulated run. System times are in milliseconds, by home cluster."""

    topology: Topology
    system_time_ms: dict[ClusterId, list[float]]
    hops: dict[ClusterId, Counter[int]]
    outcomes: Counter[str] = field(default_factory=Counter)
    ended: int = 0
    """Requests that came to an outcome, refusals included."""
    queue_length_max: int = 0
    reports: int = 0
    events: int = 0
    wall_s: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """The object of contract section 3, `sim overflow`."""
        all_hops: Counter[int] = sum(self.hops.values(), Counter())
        answered = all_hops.total()
        return {
            "engine": "full",
            "topology": self.topology.name,
            "policy": self.topology.policy,
            "requests": self.ended,
            "outcomes": dict(self.outcomes),
            "system_time_ms": summarize([t for ts in self.system_time_ms.values() for t in ts]),
            "per_cluster": {
                cluster: {
                    "system_time_ms": summarize(times),
                    "hops": _hops_as_dict(self.hops[cluster]),
                }
                for cluster, times in self.system_time_ms.items()
            },
            "forwarded_share": (answered - all_hops[0]) / answered if answered else 0.0,
            "hops": _hops_as_dict(all_hops),
            "queue_length_max": self.queue_length_max,
            "reports": self.reports,
            "events": self.events,
            "requests_per_s": self.ended / self.wall_s if self.wall_s else 0.0,
        }


def run_overflow(
    topology: Topology,
    schedule: Schedule,
    seed: int,
    on_progress: Callable[[int], None] | None = None,
) -> OverflowRun:
    """Send the schedule into the federation and wait until every request has its answer."""
    world = World()
    clusters = build_federation(topology, world, seed)
    run = OverflowRun(
        topology,
        system_time_ms={cluster: [] for cluster in clusters},
        hops={cluster: Counter() for cluster in clusters},
    )
    started_s = time.perf_counter()
    _schedule_arrivals(world, clusters, schedule, run, on_progress)
    world.run(lambda: run.ended == len(schedule))
    for cluster in clusters.values():
        cluster.machine.check()
    run.wall_s = time.perf_counter() - started_s
    run.events = world.happened
    run.queue_length_max = max(cluster.queue_length_max for cluster in clusters.values())
    run.reports = sum(cluster.reports for cluster in clusters.values())
    return run


def _schedule_arrivals(
    world: World,
    clusters: dict[ClusterId, SimCluster],
    schedule: Schedule,
    run: OverflowRun,
    on_progress: Callable[[int], None] | None,
) -> None:
    deadline_s = run.topology.default_deadline_ms / 1e3

    def ended(outcome: str) -> None:
        run.outcomes[outcome] += 1
        run.ended += 1
        if on_progress is not None and run.ended % PROGRESS_EVERY == 0:
            on_progress(run.ended)

    def submit(number: int, arrival: Arrival) -> None:
        home = arrival.cluster

        def answered(answer: Answer) -> None:
            ended(answer.outcome)
            if answer.outcome is Outcome.DONE:
                run.system_time_ms[home].append(answer.total_s * 1e3)
                run.hops[home][len(answer.path) - 1] += 1

        def refused(_: Refusal) -> None:
            ended("refused")

        work = None if arrival.service_ms is None else arrival.service_ms / 1e3
        request = request_of(number, arrival.id, work, arrival.type)
        clusters[home].submit(request, world.now_s + deadline_s, answered, refused)

    for number, arrival in enumerate(schedule):
        world.at(arrival.time_s, submit, number, arrival)


def _hops_as_dict(hops: Counter[int]) -> dict[str, int]:
    return {str(count): hops[count] for count in sorted(hops)}
