"""What came of a schedule that was sent through a simulated federation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from spillover.core.overflow import events as ev
from spillover.core.overflow.shadow import Shadow
from spillover.model.errors import InputError
from spillover.model.ids import ClusterId
from spillover.model.request import Answer, Outcome, Refusal
from spillover.model.schedule import Arrival, Schedule
from spillover.model.statistics import summarize
from spillover.model.topology import Topology

if TYPE_CHECKING:
    from spillover.sim.engine.world import World
    from spillover.sim.overflow.federation import SimCluster

PROGRESS_EVERY = 1000
"""Requests between two calls of `on_progress`."""

REFUSED = "refused"

_SHOWN_MAX = 8
"""Types that a message names before it leaves the rest out."""

Summary: TypeAlias = dict[str, float | None]
"""A summary as `model.statistics.summarize` gives it."""


@dataclass(slots=True)
class TypeCounts:
    """What came of the requests of one type, where servers are unlike; times are in ms."""

    outcomes: Counter[str] = field(default_factory=Counter)
    blocked: int = 0
    """Refused because no server that fits had a token."""
    system_time_ms: list[float] = field(default_factory=list)
    queued_ms: list[float] = field(default_factory=list)
    """How long they waited before their service began."""

    def done(self, answer: Answer) -> None:
        self.system_time_ms.append(answer.total_s * 1e3)
        self.queued_ms.append(answer.queued_s * 1e3)

    def as_dict(self) -> dict[str, Any]:
        """Returns what `per_type` has of it; `blocked` is a share."""
        requests = self.outcomes.total()
        return {
            "requests": requests,
            "outcomes": dict(self.outcomes),
            "blocked": self.blocked / requests if requests else 0.0,
            "system_time_ms": summarize(self.system_time_ms),
            "queued_ms": summarize(self.queued_ms),
        }


@dataclass(slots=True)
class OverflowRun:
    """The outcome of one simulated run. System times are in milliseconds, by home cluster."""

    topology: Topology
    policy: str
    system_time_ms: dict[ClusterId, list[float]]
    hops: dict[ClusterId, Counter[int]]
    outcomes: Counter[str] = field(default_factory=Counter)
    """The number of requests by kind: of `Outcome`, or REFUSED. Where things go wrong, also
    `unreachable` if nobody was there to take it, and among the `unknown` those whose home died or
    said nothing for too long."""
    ended: int = 0
    """Requests that came to an outcome, refusals included."""
    queue_length_max: int = 0
    reports: int = 0
    events: int = 0
    faults: int = 0
    """How many faults have happened."""
    wall_s: float = 0.0
    on_progress: Callable[[int], None] | None = None
    """Is called with how many have ended, each PROGRESS_EVERY."""
    types: dict[str, TypeCounts] = field(default_factory=dict)
    """The counts of each type, where servers are unlike."""
    sites: dict[str, Any] = field(default_factory=dict)
    """What is told of clusters of several nodes, where things go wrong (`site_figures`)."""
    shadow: Shadow | None = None
    """The sums of the policy that was asked along, over all clusters; of one that was restarted,
    those since."""

    def answered(self, arrival: Arrival, answer: Answer) -> None:
        self.came_to(arrival, answer.outcome)
        if answer.outcome is Outcome.DONE:
            self.system_time_ms[arrival.cluster].append(answer.total_s * 1e3)
            self.hops[arrival.cluster][len(answer.path) - 1] += 1
            if self.types:
                self.types[arrival.type].done(answer)

    def refused(self, arrival: Arrival, refusal: ev.Refuse) -> None:
        self.came_to(arrival, REFUSED)
        if self.types and refusal.reason is Refusal.BLOCKED:
            self.types[arrival.type].blocked += 1

    def came_to(self, arrival: Arrival, outcome: str) -> None:
        self.outcomes[outcome] += 1
        self.ended += 1
        if self.types:
            self.types[arrival.type].outcomes[outcome] += 1
        if self.on_progress is not None and self.ended % PROGRESS_EVERY == 0:
            self.on_progress(self.ended)

    def as_dict(self) -> dict[str, Any]:
        """Returns the object that `sim overflow --json` prints."""
        every_ms = [time_ms for times_ms in self.system_time_ms.values() for time_ms in times_ms]
        per_cluster = {c: summarize(times_ms) for c, times_ms in self.system_time_ms.items()}
        told = run_as_dict(self, "full", self.policy, summarize(every_ms), per_cluster)
        if self.types:
            told["per_type"] = {kind: self.types[kind].as_dict() for kind in sorted(self.types)}
        if self.sites:
            told["sites"] = self.sites
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
    nodes = [node for cluster in clusters.values() for node in cluster.nodes]
    run.queue_length_max = max(node.queue_length_max for node in nodes)
    run.reports = sum(node.reports for node in nodes)
    if run.topology.shadow is not None:
        run.shadow = Shadow(run.topology.shadow)
        for node in nodes:
            run.shadow.add(node.machine.decider.shadow_of(run.shadow.policy))


def count_types(topology: Topology, schedule: Schedule) -> dict[str, TypeCounts]:
    """Returns a place for the counts of each type that the schedule has, none of it counted yet;
    nothing where servers are alike, which serve every type.

    Raises InputError where neither a request's home nor a neighbor serves its type, as a node
    would refuse it.
    """
    groups = topology.type_groups
    if not groups.groups:
        return {}
    counts: dict[str, TypeCounts] = {}
    checked = set()
    for arrival in schedule:
        home, kind = arrival.cluster, arrival.type
        counts.setdefault(kind, TypeCounts())
        if (home, kind) in checked:
            continue
        checked.add((home, kind))
        near = [neighbor.id for neighbor in topology.neighbors(home)]
        reached = groups.reached_from(home, near)
        if kind not in reached and groups.plain.isdisjoint({home, *near}):
            rest = ", ..." if len(reached) > _SHOWN_MAX else ""
            expected = f"expected a type that cluster {home} or a neighbor serves"
            shown = ", ".join(reached[:_SHOWN_MAX]) + rest
            raise InputError("schedule", "type", f"{expected} ({shown}), got {kind!r}")
    return counts


class Run(Protocol):
    """What there is to tell of a run of any engine, besides its system times."""

    topology: Topology
    hops: dict[ClusterId, Counter[int]]
    outcomes: Counter[str]
    ended: int
    queue_length_max: int
    reports: int
    events: int
    faults: int
    wall_s: float


def run_as_dict(
    run: Run,
    engine: str,
    policy: str,
    every_ms: Summary,
    per_cluster_ms: Mapping[ClusterId, Summary],
) -> dict[str, Any]:
    """Returns the object that `sim overflow --json` prints, the same for every engine; the
    summaries are of the system times, of all and by home cluster."""
    all_hops: Counter[int] = sum(run.hops.values(), Counter())
    answered = all_hops.total()
    return {
        "engine": engine,
        "topology": run.topology.name,
        "policy": policy,
        "requests": run.ended,
        "outcomes": dict(run.outcomes),
        "faults": run.faults,
        "system_time_ms": every_ms,
        "per_cluster": {
            cluster: {"system_time_ms": summary, "hops": _hops_as_dict(run.hops[cluster])}
            for cluster, summary in per_cluster_ms.items()
        },
        "forwarded_share": (answered - all_hops[0]) / answered if answered else 0.0,
        "hops": _hops_as_dict(all_hops),
        "queue_length_max": run.queue_length_max,
        "reports": run.reports,
        "events": run.events,
        "requests_per_s": run.ended / run.wall_s if run.wall_s else 0.0,
    }


def _hops_as_dict(hops: Counter[int]) -> dict[str, int]:
    return {str(count): hops[count] for count in sorted(hops)}
