"""What came of a schedule that was sent through a simulated federation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spillover.core.overflow import events as ev
from spillover.core.overflow.shadow import Shadow
from spillover.model.ids import ClusterId
from spillover.model.request import Answer, Outcome, Refusal
from spillover.model.schedule import Arrival, Schedule
from spillover.model.statistics import summarize
from spillover.model.topology import Topology
from spillover.sim.engine.world import World
from spillover.sim.overflow.by_type import TypeCounts, count_types
from spillover.sim.overflow.federation import SimCluster
from spillover.sim.overflow.told import run_as_dict

PROGRESS_EVERY = 1000
"""Requests between two calls of `on_progress`."""

REFUSED = "refused"


@dataclass(slots=True)
class OverflowRun:
    """The outcome of one simulated run. System times are in milliseconds, by home cluster."""

    topology: Topology
    policy: str
    system_time_ms: dict[ClusterId, list[float]]
    hops: dict[ClusterId, Counter[int]]
    outcomes: Counter[str] = field(default_factory=Counter)
    """By kind: of `Outcome`, or REFUSED. Where things go wrong, also `unreachable` if nobody was
    there to take it, and among the `unknown` those whose home died or said nothing for too long."""
    ended: int = 0
    """Requests that came to an outcome, refusals included."""
    queue_length_max: int = 0
    reports: int = 0
    events: int = 0
    faults: int = 0
    """How many faults have happened."""
    wall_s: float = 0.0
    on_progress: Callable[[int], None] | None = None
    """Is told how many have ended, each PROGRESS_EVERY."""
    types: dict[str, TypeCounts] = field(default_factory=dict)
    """By type, where servers are unlike."""
    shadow: Shadow | None = None
    """The sums of the policy that was asked along, over all clusters; of one that was restarted,
    those since."""

    def answered(self, arrival: Arrival, answer: Answer) -> None:
        """A request has its answer."""
        self.came_to(arrival, answer.outcome)
        if answer.outcome is Outcome.DONE:
            self.system_time_ms[arrival.cluster].append(answer.total_s * 1e3)
            self.hops[arrival.cluster][len(answer.path) - 1] += 1
            if self.types:
                self.types[arrival.type].done(answer)

    def refused(self, arrival: Arrival, refusal: ev.Refuse) -> None:
        """A request was not accepted."""
        self.came_to(arrival, REFUSED)
        if self.types and refusal.reason is Refusal.BLOCKED:
            self.types[arrival.type].blocked += 1

    def came_to(self, arrival: Arrival, outcome: str) -> None:
        """A request has ended so."""
        self.outcomes[outcome] += 1
        self.ended += 1
        if self.types:
            self.types[arrival.type].outcomes[outcome] += 1
        if self.on_progress is not None and self.ended % PROGRESS_EVERY == 0:
            self.on_progress(self.ended)

    def as_dict(self) -> dict[str, Any]:
        """Returns the object of contract section 3, `sim overflow`."""
        every_ms = [time_ms for times_ms in self.system_time_ms.values() for time_ms in times_ms]
        per_cluster = {c: summarize(times_ms) for c, times_ms in self.system_time_ms.items()}
        told = run_as_dict(self, "full", self.policy, summarize(every_ms), per_cluster)
        if self.types:
            told["per_type"] = {kind: self.types[kind].as_dict() for kind in sorted(self.types)}
        if self.shadow is not None:
            told["shadow"] = self.shadow.as_dict()
        return told


def new_run(
    topology: Topology,
    schedule: Schedule,
    on_progress: Callable[[int], None] | None,
    policy: str | None = None,
) -> OverflowRun:
    """Returns a run of which nothing has happened yet; the policy is the topology's if not given.

    Raises InputError where a request is of a type that cannot be served.
    """
    return OverflowRun(
        topology,
        policy or topology.policy,
        system_time_ms={cluster: [] for cluster in topology.cluster_ids},
        hops={cluster: Counter() for cluster in topology.cluster_ids},
        on_progress=on_progress,
        types=count_types(topology, schedule),
    )


def sum_up(
    run: OverflowRun, world: World, clusters: Mapping[ClusterId, SimCluster], wall_s: float
) -> None:
    """Put down what the world and the clusters have counted."""
    run.wall_s = wall_s
    run.events = world.happened
    run.queue_length_max = max(cluster.queue_length_max for cluster in clusters.values())
    run.reports = sum(cluster.reports for cluster in clusters.values())
    if run.topology.shadow is not None:
        run.shadow = Shadow(run.topology.shadow)
        for cluster in clusters.values():
            run.shadow.add(cluster.machine.decider.shadow_of(run.shadow.policy))
