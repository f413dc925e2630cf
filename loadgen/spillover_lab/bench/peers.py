"""`spillover bench peers`: live federations beside what an operator builds today, one HAProxy for
each site that spills over a threshold of its queue (`haproxy_sites`), on the same schedules.

Each seed's schedule is played by every side, HAProxy with every threshold; then the best threshold
is chosen, and each policy stands beside it. Sides play in turn where they need the processors, else
at the same time. Each is made anew for each schedule: none knows anything of the one before.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from operator import attrgetter
from statistics import fmean
from typing import TypeAlias

from spillover.inputs.builtin import builtin_topology
from spillover.model.errors import InputError, RunError
from spillover.model.ids import ClusterId
from spillover.model.request import Answer
from spillover.model.request import Outcome as Ended
from spillover.model.schedule import Schedule
from spillover.model.statistics import summarize
from spillover.model.topology import DEFAULT_POLICY, Cluster, Link, Topology
from spillover.sim.overflow.run import run_overflow
from spillover.workloads import generated
from spillover_lab.bench.haproxy_sites import LONG_S, running_sites
from spillover_lab.bench.load_process import Effort, Fates, LoadProcess, Replayed, shares_of
from spillover_lab.bench.nodes import DEADLINE_MS, running_nodes
from spillover_lab.bench.session import BenchPlan, Figure, Session, Stage, together
from spillover_loadgen.record import Outcome
from spillover_loadgen.results import KEPT_UP_LAG_MS

# --- what is played, and which figures count ------------------------------------------------------


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
    """The deadline of each request. Without one all must be answered; with one, what is late does
    not count."""
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
        drawn = generated.poisson(
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
        draw=lambda duration_s, seed: generated.bursts(ids, duration_s=duration_s, seed=seed),
        full_s=generated.bursts_duration_s(len(ids)),
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


# --- who plays it, and what that comes to ---------------------------------------------------------


_OVERLOADED = frozenset((Outcome.REFUSED, Outcome.EXPIRED, Outcome.UNKNOWN))
"""What may happen to a request with a deadline where there is more work than servers: the client
gives up some seconds after its deadline, which is `UNKNOWN`."""


@dataclass(frozen=True, slots=True)
class Done:
    """A request that was done: until the end of its service, and how often it was moved."""

    system_time_ms: float
    hops: int


Ends: TypeAlias = Sequence[Done | None]
"""What became of all requests, in the order of the schedule; None for those that were not done."""
Played: TypeAlias = tuple[Ends, Effort]


@dataclass(frozen=True, slots=True)
class Turn:
    """What a side is to play, who asks, and who begins at the same time."""

    workload: Workload
    schedule: Schedule
    seed: int
    load: LoadProcess
    ready: asyncio.Barrier
    """Passed once all processes of all sides run that play together."""


@dataclass(frozen=True, slots=True)
class Federation:
    """Nodes, untuned, with this policy."""

    policy: str

    @property
    def name(self) -> str:
        return self.policy

    async def play(self, turn: Turn) -> Played:
        topology = turn.workload.topology.with_policy(self.policy)
        async with running_nodes(topology, turn.seed) as nodes:
            urls = {ClusterId(cluster): node.url for cluster, node in nodes.items()}
            processes = {"nodes": [node.pid for node in nodes.values()]}
            return await _play(self.name, turn, urls, processes)


@dataclass(frozen=True, slots=True)
class ThresholdSites:
    """HAProxy's sites, which spill where that many wait."""

    threshold: int

    @property
    def name(self) -> str:
        return f"HAProxy, queue {self.threshold}"

    async def play(self, turn: Turn) -> Played:
        workload = turn.workload
        # Who has waited half the deadline has time for nearly every job left: any longer, and where
        # all sites are overloaded every answer would be late.
        within_s = LONG_S if workload.deadline_ms is None else workload.deadline_ms / 2e3
        async with running_sites(workload.topology, self.threshold, within_s) as sites:
            processes = {"HAProxy": sites.haproxies, "servers and relays": sites.emulation}
            return await _play(self.name, turn, sites.urls, processes)


PlayingSide: TypeAlias = Federation | ThresholdSites
"""One of those compared, live, which plays from the start of all its processes to their end."""


def simulate(workload: Workload, policy: str, schedule: Schedule, seed: int) -> Ends:
    """Returns what becomes of the schedule in virtual time, by the services' own code."""
    ends: list[Done | None] = [None] * len(schedule)

    def answered(number: int, answer: Answer) -> None:
        if answer.outcome is Ended.DONE:
            ends[number] = Done(answer.total_s * 1e3, len(answer.path) - 1)

    run_overflow(workload.topology.with_policy(policy), schedule, seed, on_answer=answered)
    return ends


async def _play(
    name: str,
    turn: Turn,
    urls: Mapping[ClusterId, str],
    processes: Mapping[str, Sequence[int]],
) -> Played:
    workload, load = turn.workload, turn.load
    job = Replayed(
        targets=urls, schedule=turn.schedule, seed=turn.seed, deadline_ms=workload.deadline_ms
    )
    await turn.ready.wait()
    fates, effort = await load.fates_and_effort(job, processes)
    return _ends_of(name, workload, fates), effort


def _ends_of(side: str, workload: Workload, fates: Fates) -> Ends:
    """Returns what became of a side's requests. Raises RunError for a failure that nothing of the
    workload explains: figures of what is left would flatter."""
    allowed = frozenset[Outcome]() if workload.deadline_ms is None else _OVERLOADED
    for place, (outcome, reason) in fates.others.items():
        if outcome not in allowed:
            told = f"request {place} has failed: {outcome}, {reason}"
            raise RunError(f"{workload.name}, {side}: {told}")
    pairs = zip(fates.system_ms, fates.hops, strict=True)
    return [None if ms is None or hops is None else Done(ms, hops) for ms, hops in pairs]


def values_of(workload: Workload, schedule: Schedule, ends: Ends) -> dict[Figure, float]:
    """Returns the workload's figures. Raises RunError if nothing was done."""
    from_s = min(workload.settled_s, schedule[-1].time_s / 2)
    pairs = zip(schedule, ends, strict=True)
    counted = [(arrival, fate) for arrival, fate in pairs if arrival.time_s >= from_s]
    done = [(arrival, fate) for arrival, fate in counted if fate is not None]
    if not done:
        raise RunError(f"{workload.name}: not one request was done")
    moved = 100 * sum(fate.hops > 0 for _, fate in done) / len(done)
    hops = 100 * sum(fate.hops for _, fate in done) / len(done)
    if workload.figures == GOODPUT:
        deadline_ms = workload.deadline_ms or 0.0
        in_time = sum(fate.system_time_ms <= deadline_ms for _, fate in done)
        firsts = [100 * in_time / len(counted)]
    else:
        less_service = workload.figures == WAITS
        times_ms = [
            fate.system_time_ms - (arrival.service_ms or 0.0) * less_service
            for arrival, fate in done
        ]
        summary = summarize(times_ms)
        firsts = [summary[name] or 0.0 for name in ("mean", "p99", "max")]
    return dict(zip(workload.figures, (*firsts, moved, hops), strict=True))


# --- the order of it all --------------------------------------------------------------------------


THRESHOLDS = (0, 1, 2, 4)
THRESHOLDS_QUICK = (1,)
SEEDS_MIN = 6
"""The least number of seeds: with fewer, one seed decides what the median is."""

Values: TypeAlias = Sequence[Mapping[Figure, float]]
"""The figures of a side, run by run."""


async def measure(workload: Workload, session: Session) -> None:
    """Measures one workload; run k has the seed `plan.seed` + k."""
    plan = session.plan
    policies = plan.policies or (DEFAULT_POLICY,)
    federations = [Federation(policy) for policy in policies]
    haproxies = [ThresholdSites(t) for t in (THRESHOLDS_QUICK if plan.quick else THRESHOLDS)]
    sides: list[PlayingSide] = [*federations, *haproxies]
    plays: dict[str, list[Played]] = {side.name: [] for side in sides}
    schedules: dict[int, Schedule] = {}
    for run, seed in enumerate(session.seeds(workload.name)):
        schedules[seed] = workload.schedule(plan, seed)
        # Turned round on every other one: who goes first may find it harder.
        order = sides[::-1] if run % 2 else sides
        played = await _play_all(session, workload, order, schedules[seed], seed)
        for side, play in zip(order, played, strict=True):
            plays[side.name].append(play)
    _tell(session, workload, federations, haproxies, schedules, plays)


async def _play_all(
    session: Session,
    workload: Workload,
    sides: Sequence[PlayingSide],
    schedule: Schedule,
    seed: int,
) -> list[Played]:
    ready = asyncio.Barrier(len(sides) if workload.together else 1)

    async def play(side: PlayingSide) -> Played:
        session.say(f"{workload.name}: {side.name}")
        with LoadProcess() as load:
            return await side.play(Turn(workload, schedule, seed, load, ready))

    if not workload.together:
        return [await play(side) for side in sides]
    return await together([play(side) for side in sides])


def _tell(
    session: Session,
    workload: Workload,
    federations: Sequence[Federation],
    haproxies: Sequence[ThresholdSites],
    schedules: Mapping[int, Schedule],
    plays: Mapping[str, Sequence[Played]],
) -> None:
    """Add each policy beside HAProxy with its best threshold, itself in virtual time, and the first
    of the policies; note what HAProxy had at each threshold, and whether all were in time."""

    def values(ends: Iterable[Ends]) -> Values:
        pairs = zip(schedules.values(), ends, strict=True)
        return [values_of(workload, schedule, of_run) for schedule, of_run in pairs]

    live = {name: values(ends for ends, _ in played) for name, played in plays.items()}
    first = workload.figures[0]
    means = {side: fmean(run[first] for run in live[side.name]) for side in haproxies}
    best = (max if first in GOODPUT else min)(means, key=means.__getitem__)
    for side in federations:
        session.say(f"{workload.name}: {side.name}, simulated")
        virtual = [
            simulate(workload, side.policy, schedule, seed) for seed, schedule in schedules.items()
        ]
        beside = {"": live[side.name], best.name: live[best.name]}
        beside["itself, simulated"] = values(virtual)
        if side != federations[0]:
            beside[federations[0].name] = live[federations[0].name]
        for figure in workload.figures:
            case = f"{workload.name}, {side.policy}: {figure.case}"
            of_sides = {name: [run[figure] for run in runs] for name, runs in beside.items()}
            session.add_beside(case, figure.unit, of_sides, paired=True)
    told = ", ".join(f"{side.threshold}: {mean:.1f}" for side, mean in means.items())
    session.note(f"{workload.name}: HAProxy's {first.case} by threshold, {first.unit}: {told}")
    shown = {best.name, *(side.name for side in federations)}
    for name, played in plays.items():
        efforts = [effort for _, effort in played]
        lag_ms = max(effort.lag_ms for effort in efforts)
        if name in shown or lag_ms > KEPT_UP_LAG_MS:
            late = ": TOO LATE, these figures are not to be used" if lag_ms > KEPT_UP_LAG_MS else ""
            session.note(
                f"{workload.name}, {name}: of one core {shares_of(efforts)}; requests left late by "
                f"{lag_ms:.1f} ms (p99, worst run){late}"
            )
    session.note(
        "Run by run all had the same requests: ratios are medians of the runs' ratios. Times count "
        "from the intended instant to the end of the service; HAProxy has the best of its "
        "thresholds."
    )
    if session.plan.runs < SEEDS_MIN:
        session.note(f"Too few seeds to claim anything: take --runs {SEEDS_MIN} or more.")


STAGES = tuple(Stage((workload.name,), partial(measure, workload)) for workload in WORKLOADS)
