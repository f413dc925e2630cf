"""`spillover sim overflow`: a schedule through a federation. What comes of it is in `outcome`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import cycle
from typing import TypeAlias

from spillover.core.overflow.reporting import HEARTBEAT_S
from spillover.model.errors import InputError
from spillover.model.faults import FaultSchedule
from spillover.model.ids import ClusterId
from spillover.model.request import Answer
from spillover.model.schedule import Schedule
from spillover.model.topology import Topology
from spillover.sim.engine.world import World, rare_collections
from spillover.sim.overflow.bearing import Bears
from spillover.sim.overflow.federation import SimCluster, build_federation, request_of
from spillover.sim.overflow.outcome import OverflowRun, new_run, sum_up
from spillover.sim.overflow.saying import Saying, counting_work

REPORTS_MAX = 1e9
"""The most reports of one run. Federations report whether or not anything comes: a schedule that is
silent for years would take hours, and more often is a trace with the time of day in it."""

OnAnswer: TypeAlias = Callable[[int, Answer], None]
Observe: TypeAlias = Callable[[World, Mapping[ClusterId, SimCluster]], None]


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
    bears: Bears = (),
    says_off: float | None = None,
) -> OverflowRun:
    """Send the schedule into the federation and wait until every request has its answer.

    With `faults` things go wrong; without a key (`keyed` False) requests whose fate is unknown are
    not run again then. `check` has everything looked at that must hold (`sim.overflow.checkers`),
    as is done where there are faults; it raises `checkers.Broken` with `replay`, the command that
    repeats the run. `observe` may set what it looks at when, `on_answer` gets answers by place in
    the schedule, and `bears` has all services bear so many requests at a time (`bearing`). With
    `says_off` requests say how large they are, off by so much (`saying`), and clusters count work.
    Neither is there with faults. Raises InputError for faults that do not fit, and as
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
    says = None
    if says_off is not None:
        says, topology = Saying(says_off, seed), counting_work(topology)
    world, run = World(), new_run(topology, schedule, on_progress)
    clusters = build_federation(topology, world, seed, bears)
    started_s = time.perf_counter()
    _schedule_arrivals(world, clusters, schedule, run, on_answer, keyed=keyed, says=says)
    if observe is not None:
        observe(world, clusters)
    count = len(schedule)
    with rare_collections():
        world.run(lambda: run.ended == count)
    for cluster in clusters.values():
        for node in cluster.nodes:
            node.machine.check()
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


def _schedule_arrivals(
    world: World,
    clusters: Mapping[ClusterId, SimCluster],
    schedule: Schedule,
    run: OverflowRun,
    on_answer: OnAnswer | None,
    *,
    keyed: bool,
    says: Saying | None = None,
) -> None:
    deadline_s = run.topology.default_deadline_ms / 1e3
    # A balancer in front of a site takes its nodes in turn.
    doors = {name: cycle(cluster.nodes) for name, cluster in clusters.items()}

    def submit(number: int) -> None:
        arrival = schedule[number]

        def answered(answer: Answer) -> None:
            run.answered(arrival, answer)
            if on_answer is not None:
                on_answer(number, answer)

        work = None if arrival.service_ms is None else arrival.service_ms / 1e3
        request = request_of(number, arrival.id, work, arrival.type, keyed=keyed)
        if says is not None:
            request.features = says.features_of(work)
        refused = partial(run.refused, arrival)
        submit_to = next(doors[arrival.cluster]).submit
        submit_to(request, world.now_s + deadline_s, answered, refused)

    world.at_each([arrival.time_s for arrival in schedule], submit)
