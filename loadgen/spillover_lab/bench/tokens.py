"""`spillover bench tokens`: a pool of unlike servers under a real node, beside what else chooses a
server for a job, on the same schedules, and beside the exact values of theory.

Each seed's schedule is played by all sides at the same time, each with servers of its own, made
anew (`token_processes`: servers that share, and the dispatchers that stand beside a node). Several
runs are more of the same: all their jobs count together. This is more than a script because the
tables of decision 0038 have all rules live, on servers that share.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from statistics import fmean

import numpy as np

from spillover.inputs.builtin_pools import BUILTIN_POOLS
from spillover.model.errors import InputError, RunError
from spillover.model.ids import ClusterId
from spillover.model.pool import Pool
from spillover.model.request import Answer
from spillover.model.request import Outcome as Ended
from spillover.model.schedule import Schedule
from spillover.model.statistics import percentile
from spillover.model.token_orders import LEAST_LOADED, LONGEST_AVAILABLE
from spillover.model.topology import Cluster
from spillover.model.unlike_servers import REFUSE, JobType, Server, ServerClass
from spillover.sim.overflow.outcome import REFUSED
from spillover.sim.overflow.run import run_overflow
from spillover.sim.theory.tokens.exact import TokenFigures, exact_tokens
from spillover.sim.theory.tokens.static import static_split
from spillover.sim.tokens import BATCHES, STUDENT_T, Estimate, ratio
from spillover.workloads import generated
from spillover_lab.bench import nodes, token_processes
from spillover_lab.bench.load_process import Effort, LoadProcess, Replayed, shares_of
from spillover_lab.bench.servers import HOST, READY_WITHIN_S
from spillover_lab.bench.session import (
    BenchPlan,
    Row,
    Session,
    Stage,
    together,
)
from spillover_lab.bench.token_processes import RULES, STATIC, Dispatching, Served
from spillover_lab.processes.child import Child
from spillover_loadgen.record import Outcome
from spillover_loadgen.results import KEPT_UP_LAG_MS

# --- what is played -------------------------------------------------------------------------------

# The pools of Comte's figures 8 and 11, each as several replicas that know nothing of each other,
# and Poisson arrivals of exponential jobs by seed. Replicas shorten a run: what counts is how many
# jobs come in all, and how often a pool has had time to forget where it was.


SETTLED_S = 60.0
"""Jobs count from then on: pools begin empty, and forget that with a time constant of 15 s at load
1, where it is longest."""
CPU_S_OF_A_JOB = 7.0e-3
"""What one takes in all processes of all sides together, two of nodes and five of dispatchers, as
this benchmark tells it on a slow day (AMD EPYC; 4.5 ms on a good one). Too little, and all sides
are late."""
CPU_SHARE = 0.7
"""The share of all cores that may be used: with more, all would be late."""
REPLICAS_MAX = 32
REPLICAS_QUICK = 2
QUICK_S = 3.0
JOB_MS = {"comte8": 1000.0, "comte11": 250.0}
"""Mean size of a job: what it takes alone on a server of rate 1. Figure 8's fast servers have rate
4, figure 11's servers all have rate 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A pool at a load."""

    name: str
    pool: Pool
    """Its types' rates are in jobs per `job_ms`."""
    job_ms: float
    jobs: int
    """How many are to count when the run is a full one."""

    @property
    def rate_per_s(self) -> float:
        """Returns how many jobs come to each replica."""
        return sum(kind.rate for kind in self.pool.types) / (self.job_ms / 1e3)

    def replicas(self, plan: BenchPlan) -> tuple[ClusterId, ...]:
        """Returns the names of the replicas: as many as were asked for, else as keep CPU_SHARE of
        the cores busy."""
        count = plan.replicas or REPLICAS_QUICK
        if plan.replicas is None and not plan.quick:
            fit = CPU_SHARE * (os.cpu_count() or 1) / (CPU_S_OF_A_JOB * self.rate_per_s)
            count = max(REPLICAS_QUICK, min(REPLICAS_MAX, int(fit)))
        return tuple(ClusterId(f"r{number}") for number in range(1, count + 1))

    def duration_s(self, plan: BenchPlan) -> float:
        full_s = SETTLED_S + self.jobs / (self.rate_per_s * len(self.replicas(plan)))
        return plan.of(full_s, QUICK_S) if plan.duration_s is None else plan.duration_s

    def settled_s(self, plan: BenchPlan) -> float:
        """Returns from when on jobs count."""
        return min(SETTLED_S, self.duration_s(plan) / 2)

    def schedule(self, plan: BenchPlan, seed: int) -> Schedule:
        """Returns the jobs of one seed, for as long as the plan says. Raises InputError if that is
        too short for any to come."""
        schedule: Schedule = []
        for kind in self.pool.types:
            drawn = generated.poisson(
                self.replicas(plan),
                rate_per_s=kind.rate / (self.job_ms / 1e3),
                duration_s=self.duration_s(plan),
                seed=random.Random(f"{seed}/{self.name}/{kind.id}").getrandbits(63),
            )
            sizes = random.Random(f"{seed}/{self.name}/sizes/{kind.id}")
            for arrival in drawn:
                service_ms = round(sizes.expovariate(1 / self.job_ms), 6)
                schedule.append(replace(arrival, type=kind.id, service_ms=service_ms))
        if not schedule:
            raise InputError("--duration-s", "", f"expected longer: no job of {self.name} comes")
        return sorted(schedule, key=attrgetter("time_s"))


def _workload(pool_name: str, load: float, jobs: int) -> Workload:
    return Workload(
        name=f"{pool_name} at {load}",
        pool=BUILTIN_POOLS[pool_name]().at_load(load),
        job_ms=JOB_MS[pool_name],
        jobs=jobs,
    )


WORKLOADS = (
    _workload("comte8", 0.8, 62_000),
    # At the critical load the number of jobs wanders: 350 000 give an interval of +-8 %.
    _workload("comte8", 1.0, 500_000),
    _workload("comte8", 1.2, 100_000),
    _workload("comte11", 0.8, 62_000),
    _workload("comte11", 1.0, 62_000),
    _workload("comte11", 1.2, 62_000),
)


# --- who plays it: nodes with the pool, or dispatchers with a rule --------------------------------


TOKENS, LEAST = "tokens", "tokens, least loaded"
"""In the order of the paper, which theory is exact about, and in ours."""
ORDERS = {TOKENS: LONGEST_AVAILABLE, LEAST: LEAST_LOADED}
"""Sides that are nodes, by the order of their pool; all others are rules of dispatchers."""


@dataclass(frozen=True, slots=True)
class Job:
    """What became of one job of a schedule."""

    at_s: float
    replica: str
    kind: str
    time_ms: float | None
    """The time until its client had the answer; None if it was blocked."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What all sides play at the same time."""

    workload: Workload
    replicas: Sequence[ClusterId]
    schedule: Schedule
    seed: int
    ready: asyncio.Barrier
    """Passed once all processes of all sides run."""
    heard: asyncio.Barrier
    """Passed once all sides have taken in what they were told of so many jobs: for seconds in which
    nobody else hears anything."""


@dataclass(frozen=True, slots=True)
class Played:
    """What came of one schedule, and what it took."""

    jobs: Sequence[Job]
    served: Served
    effort: Effort


async def play(side: str, turn: Turn) -> Played:
    """Has a side play, from the start of all processes to their end."""
    pool = turn.workload.pool
    with Child("the sharing servers", token_processes.serve, pool, len(turn.replicas)) as sharing:
        ports = await sharing.receive(READY_WITHIN_S)
        running = _nodes if side in ORDERS else _dispatchers
        async with running(side, turn, ports) as (urls, used):
            with LoadProcess() as load:
                pids = {**used, "servers": [sharing.pid]}
                return await _play(side, turn, urls, sharing, load, pids)


@asynccontextmanager
async def _nodes(
    side: str, turn: Turn, ports: Sequence[Sequence[int]]
) -> AsyncIterator[tuple[Mapping[ClusterId, str], Mapping[str, list[int]]]]:
    """Starts nodes, one for each replica, untuned. Raises RunError unless all their tokens are back
    in the end; those that come back one after another may be out of the bucket still."""
    clusters = [
        _cluster(replica, turn.workload, ORDERS[side], of_servers)
        for replica, of_servers in zip(turn.replicas, ports, strict=True)
    ]
    async with nodes.running_nodes(nodes.topology_of(clusters), turn.seed) as running:
        urls = {ClusterId(name): node.url for name, node in running.items()}
        yield urls, {"nodes": [node.pid for node in running.values()]}
        for node in running.values():
            pool = (await nodes.state_of(node))["tokens"]
            for each in pool["classes"]:
                if each["held"] or each["available"] + each["out"] != each["limit"]:
                    raise RunError(f"{node.url}: expected all tokens of a class back, got {each}")
            if pool["unaccounted"]:
                raise RunError(f"{node.url}: {pool['unaccounted']} tokens are nowhere, or twice")


@asynccontextmanager
async def _dispatchers(
    side: str, turn: Turn, ports: Sequence[Sequence[int]]
) -> AsyncIterator[tuple[Mapping[ClusterId, str], Mapping[str, list[int]]]]:
    pool = turn.workload.pool
    split = static_split(pool, STATIC[side]) if side in STATIC else {}
    plan = Dispatching(pool=pool, rule=side, split=split, ports=ports, seed=f"{turn.seed}/{side}")
    with Child(f"{side}'s dispatchers", token_processes.dispatch, plan) as child:
        own_ports = await child.receive(READY_WITHIN_S)
        pairs = zip(turn.replicas, own_ports, strict=True)
        urls = {replica: f"http://{HOST}:{port}" for replica, port in pairs}
        yield urls, {"dispatchers": [child.pid]}


async def _play(
    side: str,
    turn: Turn,
    urls: Mapping[ClusterId, str],
    sharing: Child,
    load: LoadProcess,
    pids: Mapping[str, Sequence[int]],
) -> Played:
    """Raises RunError for a failure other than being blocked, and unless the servers have done what
    clients had answers to: figures of what is left would flatter."""
    await turn.ready.wait()
    job = Replayed(targets=urls, schedule=turn.schedule, seed=turn.seed)
    fates, effort = await load.fates_and_effort(job, pids)
    name = f"{turn.workload.name}, {side}"
    for place, other in fates.others.items():
        if other != (Outcome.REFUSED, "blocked"):
            raise RunError(f"{name}: job {place} has failed: {', '.join(map(str, other))}")
    times_ms = [
        None if place in fates.others else time_ms
        for place, time_ms in enumerate(fates.response_ms)
    ]
    await turn.heard.wait()
    sharing.send("what have you done?")
    served: Served = await sharing.receive(READY_WITHIN_S)
    jobs = _jobs(turn.schedule, times_ms)
    done = sum(job.time_ms is not None for job in jobs)
    if served.jobs != done:
        raise RunError(f"{name}: {done} jobs were done, and the servers did {served.jobs}")
    await turn.heard.wait()
    return Played(jobs, served, effort)


def simulate(turn: Turn, side: str) -> list[Job]:
    """Returns what becomes of the jobs in virtual time, by the nodes' own code. Raises RunError
    unless all were done or blocked."""
    times_ms: list[float | None] = [None] * len(turn.schedule)

    def answered(number: int, answer: Answer) -> None:
        times_ms[number] = answer.total_s * 1e3

    clusters = [_cluster(replica, turn.workload, ORDERS[side]) for replica in turn.replicas]
    topology = nodes.topology_of(clusters)
    ended = run_overflow(topology, turn.schedule, turn.seed, on_answer=answered).outcomes
    if ended.keys() - {Ended.DONE, REFUSED}:
        raise RunError(f"{turn.workload.name}, simulated: {dict(ended)}")
    return _jobs(turn.schedule, times_ms)


def _jobs(schedule: Schedule, times_ms: Sequence[float | None]) -> list[Job]:
    return [
        Job(arrival.time_s, arrival.cluster, arrival.type, time_ms)
        for arrival, time_ms in zip(schedule, times_ms, strict=True)
    ]


def _cluster(
    name: ClusterId, workload: Workload, order: str, ports: Sequence[int] | None = None
) -> Cluster:
    """Returns a cluster with the pool, whose servers listen on those ports; without ports, whose
    servers sleep."""
    pool = workload.pool
    handlers: list[str | None] = [None] * len(pool.servers)
    if ports is not None:
        handlers = [f"http:http://{HOST}:{port}/" for port in ports]
    return Cluster(
        id=name,
        servers=tuple(
            Server(id=server.id, rate=server.rate, handler=handler)
            for server, handler in zip(pool.servers, handlers, strict=True)
        ),
        classes=tuple(
            ServerClass(id=each.id, servers=each.servers, tokens=each.tokens)
            for each in pool.classes
        ),
        types=tuple(JobType(id=each.id, classes=each.classes) for each in pool.types),
        on_block=REFUSE,
        order=order,
        service_ms=workload.job_ms,
    )


# --- the order of it all --------------------------------------------------------------------------


SAY_EVERY_S = 30.0
SHARE, UNIT = 1e4, "per 10 000 jobs"
ALL = "all"
"""Every job, whatever its type."""
SIDES = (TOKENS, LEAST, *RULES)
EXACT = "exact"
SIMULATED = {TOKENS: "itself, simulated", LEAST: f"{LEAST}, simulated"}
THEORY = {TOKENS: "dynamic", **STATIC}
"""What theory calls those sides that it has exact values of."""


@dataclass(frozen=True, slots=True)
class Found:
    """What was seen of one side, over all runs; the first three of all jobs and by type."""

    shares: Mapping[str, Estimate]
    """Blocked, of all that came."""
    blocked: Mapping[str, int]
    arrived: Mapping[str, int]
    mean_time_ms: float


async def measure(workload: Workload, session: Session) -> None:
    """Measures one workload; run k has the seed `plan.seed` + k."""
    plan = session.plan
    replicas = workload.replicas(plan)
    plays: dict[str, list[Played]] = {side: [] for side in SIDES}
    jobs: dict[str, list[Sequence[Job]]] = {side: [] for side in (*SIDES, *SIMULATED.values())}
    for seed in session.seeds(workload.name):
        ready, heard = asyncio.Barrier(len(SIDES) + 1), asyncio.Barrier(len(SIDES))
        turn = Turn(workload, replicas, workload.schedule(plan, seed), seed, ready, heard)
        played = await _play_all(turn, workload.duration_s(plan), session.say)
        for side, one in zip(SIDES, played, strict=True):
            plays[side].append(one)
            jobs[side].append(one.jobs)
        session.say(f"{workload.name}: simulated")
        for side, name in SIMULATED.items():
            jobs[name].append(simulate(turn, side))
    from_s, until_s = workload.settled_s(plan), workload.duration_s(plan)
    found = {
        side: _found(runs, len(runs) * len(replicas), from_s, until_s)
        for side, runs in jobs.items()
    }
    _add_rows(session, workload, found)
    for side, runs in plays.items():
        _note_effort(session, f"{workload.name}, {side}", runs)
    session.note(
        "All sides had the same jobs at the same time. Half-widths are of 95 %, by the means of "
        "batches; times are until the client had the answer, of jobs that were not blocked."
    )


async def _play_all(turn: Turn, duration_s: float, say: Callable[[str], None]) -> list[Played]:
    telling = asyncio.create_task(_tell(turn, duration_s, say))
    try:
        return await together([play(side, turn) for side in SIDES])
    finally:
        telling.cancel()


async def _tell(turn: Turn, duration_s: float, say: Callable[[str], None]) -> None:
    """Tell how far the schedule is, which goes by the clock whatever becomes of its jobs."""
    await turn.ready.wait()
    name, jobs, replicas = turn.workload.name, len(turn.schedule), len(turn.replicas)
    say(f"{name}: {jobs} jobs for each side in {duration_s:.0f} s, on {replicas} replicas")
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    while (gone_s := loop.time() - began_s) < duration_s:
        await asyncio.sleep(min(SAY_EVERY_S, duration_s - gone_s))
        say(f"{name}: {loop.time() - began_s:.0f} of {duration_s:.0f} s")


def _found(runs: Sequence[Sequence[Job]], replicas: int, from_s: float, until_s: float) -> Found:
    """Returns what jobs of that time came to. Raises RunError if none was done.

    The batches are as many pieces of each replica as make at least BATCHES: replicas know nothing
    of each other, and a piece forgets how it began if it is long enough. Of more batches than that,
    intervals are 2 % too wide at most.
    """
    # Those of another run are other replicas.
    jobs = [
        replace(job, replica=f"{number}/{job.replica}")
        for number, run in enumerate(runs)
        for job in run
        if from_s <= job.at_s < until_s
    ]
    times_ms = [job.time_ms for job in jobs if job.time_ms is not None]
    if not times_ms:
        raise RunError("not one job was done")
    pieces = -(-BATCHES // replicas)
    batch_of: dict[str, int] = {}
    names = (ALL, *sorted({job.kind for job in jobs}))
    arrived, blocked = ({name: np.zeros(replicas * pieces) for name in names} for _ in range(2))
    for job in jobs:
        first = batch_of.setdefault(job.replica, len(batch_of) * pieces)
        batch = first + int(pieces * (job.at_s - from_s) / (until_s - from_s))
        for name in (ALL, job.kind):
            arrived[name][batch] += 1
            blocked[name][batch] += job.time_ms is None
    return Found(
        {name: ratio(blocked[name], arrived[name]) for name in names},
        {name: int(blocked[name].sum()) for name in names},
        {name: int(arrived[name].sum()) for name in names},
        fmean(times_ms),
    )


def _add_rows(session: Session, workload: Workload, found: Mapping[str, Found]) -> None:
    """Add tokens beside all others and what is exact, and ours in the other order beside the
    rules; of all jobs, and by type where there are several."""
    exact = {side: exact_tokens(workload.pool, theory) for side, theory in THEORY.items()}
    kinds = [kind.id for kind in workload.pool.types]
    for name in (ALL, *kinds) if len(kinds) > 1 else (ALL,):
        what = f"{workload.name}: blocked" + ("" if name == ALL else f" of {name}")
        shares = {side: one.shares[name] for side, one in found.items() if name in one.shares}
        if TOKENS not in shares:
            continue
        exactly = Estimate(_of(exact[TOKENS], name), 0.0)
        for peer, share in ({EXACT: exactly} | shares).items():
            if peer != TOKENS:
                _add_share(session, what, shares[TOKENS], peer, share)
        for side, figures in exact.items():
            _note_exact(session, f"{what}, {side}", found[side], name, _of(figures, name))
        for peer in (*RULES, SIMULATED[LEAST]):
            _add_share(session, f"{what}, least loaded", shares[LEAST], peer, shares[peer])
    times_ms = {side: [one.mean_time_ms] for side, one in found.items()}
    session.add_beside(f"{workload.name}: mean time", "ms", times_ms)


def _of(figures: TokenFigures, name: str) -> float:
    return (figures.blocking if name == ALL else figures.blocking_per_type[name]) or 0.0


def _add_share(session: Session, case: str, ours: Estimate, peer: str, theirs: Estimate) -> None:
    session.add(
        Row(
            case=case,
            unit=UNIT,
            values=((ours.value or 0.0) * SHARE,),
            half_width=(ours.ci95 or 0.0) * SHARE,
            peer=peer,
            peer_values=((theirs.value or 0.0) * SHARE,),
            peer_half_width=(theirs.ci95 or 0.0) * SHARE,
        )
    )


def _note_exact(session: Session, what: str, found: Found, name: str, exact: float) -> None:
    """Note how far a share is from what theory says, by its own errors."""
    share = found.shares[name]
    value, half = share.value or 0.0, share.ci95 or 0.0
    width = "no interval"
    if half:
        errors = (value - exact) * STUDENT_T / half
        width = f"+-{half * SHARE:.4g}, {errors:+.1f} standard errors"
    session.note(
        f"{what}: {found.blocked[name]} of {found.arrived[name]}, {value * SHARE:.4g} "
        f"{UNIT} ({width} from the exact {exact * SHARE:.4g})"
    )


def _note_effort(session: Session, name: str, played: Sequence[Played]) -> None:
    """Note whether there was processor enough for what is compared, and how late all was."""
    told = shares_of([one.effort for one in played])
    lag_ms = max(one.effort.lag_ms for one in played)
    late_ms = sorted(late_s * 1e3 for one in played for late_s in one.served.late_s)
    stay_ms = sum(one.served.stay_s for one in played) * 1e3 / len(late_ms)
    times_ms = [job.time_ms for one in played for job in one.jobs if job.time_ms is not None]
    around_ms = fmean(times_ms) - stay_ms
    is_late = max(lag_ms, around_ms) > KEPT_UP_LAG_MS
    too_late = ": TOO LATE, these figures are not to be used" if is_late else ""
    session.note(
        f"{name}: of one core {told}; a job took {around_ms:.2f} ms more than its "
        f"share of its server; servers late by {fmean(late_ms):.2f} ms (p99 "
        f"{percentile(late_ms, 0.99):.2f}), requests left late by {lag_ms:.1f} ms (p99){too_late}"
    )


STAGES = (*(Stage((workload.name,), partial(measure, workload)) for workload in WORKLOADS),)
