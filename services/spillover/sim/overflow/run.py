"""`spillover sim overflow`: a schedule through a federation, and what came of it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from spillover.core.overflow import events as ev
from spillover.core.overflow.reporting import HEARTBEAT_S
from spillover.core.overflow.shadow import Shadow
from spillover.model.errors import InputError
from spillover.model.faults import FaultSchedule
from spillover.model.ids import ClusterId
from spillover.model.request import Answer, Outcome, Refusal
from spillover.model.schedule import Arrival, Schedule
from spillover.model.statistics import summarize
from spillover.model.topology import Topology
from spillover.sim.engine.world import World, rare_collections
from spillover.sim.overflow.by_type import TypeCounts, count_types
from spillover.sim.overflow.federation import SimCluster, build_federation, request_of
from spillover.sim.overflow.told import run_as_dict

PROGRESS_EVERY = 1000
"""Requests between two calls of `on_progress`."""

REFUSED = "refused"

REPORTS_MAX = 1e9
"""Of one run. Federations report whether or not anything comes: a schedule that is silent for years
would take hours, and more often is a trace with the time of day in it."""

OnAnswer: TypeAlias = Callable[[int, Answer], None]
Observe: TypeAlias = Callable[[World, Mapping[ClusterId, SimCluster]], None]


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


def run_overflow(
    topology: Topology,
    schedule: Schedule,
    seed: int,
    on_progress: Callable[[int], None] | None = None,
    *,
    faults: FaultSchedule | None = None,
    check: bool | None = None,
    keyed: bool = True,
    replay: str = "",
    observe: Observe | None = None,
    on_answer: OnAnswer | None = None,
) -> OverflowRun:
    """Send the schedule into the federation and wait until every request has its answer.

    With `faults` things go wrong; without a key (`keyed` False) requests whose fate is unknown are
    not run again then. `check` has everything looked at that must hold (`sim.overflow.checkers`),
    as is done where there are faults; it raises `checkers.Broken` with `replay`, the command that
    repeats the run. `observe` may set what it looks at when, `on_answer` gets answers by place in
    the schedule; not where there are faults. Raises InputError for faults that do not fit, and as
    `check_length` and `new_run`.
    """
    check_length(topology, max((arrival.time_s for arrival in schedule), default=0.0))
    if faults is not None or check:
        # What most runs do without is not loaded for them.
        from spillover.sim.overflow.faulty_run import run_faulty_overflow  # noqa: PLC0415

        return run_faulty_overflow(
            topology,
            schedule,
            seed,
            on_progress,
            faults=faults or FaultSchedule("no faults", ()),
            check=check is not False,
            keyed=keyed,
            replay=replay,
        )
    world, run = World(), new_run(topology, schedule, on_progress)
    clusters = build_federation(topology, world, seed)
    started_s = time.perf_counter()
    _schedule_arrivals(world, clusters, schedule, run, on_answer, keyed=keyed)
    if observe is not None:
        observe(world, clusters)
    count = len(schedule)
    with rare_collections():
        world.run(lambda: run.ended == count)
    for cluster in clusters.values():
        cluster.machine.check()
    sum_up(run, world, clusters, time.perf_counter() - started_s)
    return run


def check_length(topology: Topology, last_s: float) -> None:
    """Raise InputError if a schedule whose last request comes at `last_s` takes too many reports.

    Counted are a report of each cluster over each of its links, and its own turn, each period.
    """
    period_s = min(topology.gossip_period_ms / 1e3, HEARTBEAT_S)
    at_once = len(topology.clusters) + 2 * len(topology.links)
    if last_s * at_once / period_s > REPORTS_MAX:
        longest_s = REPORTS_MAX / at_once * period_s
        expected = (
            f"expected at most {longest_s:.0f} s with gossip_period_ms "
            f"{topology.gossip_period_ms:g} and these links, got {last_s:.10g} s: times count from "
            "the start of the schedule, not from an epoch"
        )
        raise InputError("schedule", "time_s", expected)


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


def _schedule_arrivals(
    world: World,
    clusters: Mapping[ClusterId, SimCluster],
    schedule: Schedule,
    run: OverflowRun,
    on_answer: OnAnswer | None,
    *,
    keyed: bool,
) -> None:
    deadline_s = run.topology.default_deadline_ms / 1e3

    def submit(number: int) -> None:
        arrival = schedule[number]

        def answered(answer: Answer) -> None:
            run.answered(arrival, answer)
            if on_answer is not None:
                on_answer(number, answer)

        work = None if arrival.service_ms is None else arrival.service_ms / 1e3
        request = request_of(number, arrival.id, work, arrival.type, keyed=keyed)
        refused = partial(run.refused, arrival)
        clusters[arrival.cluster].submit(request, world.now_s + deadline_s, answered, refused)

    world.at_each([arrival.time_s for arrival in schedule], submit)
