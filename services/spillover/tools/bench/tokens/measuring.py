"""The order of it all: each seed's schedule is played by all sides at the same time, each with
servers of its own; then tokens stand beside each rule, and beside what theory says.

Several runs are more of the same: all their jobs count together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

from spillover.model.ids import ClusterId
from spillover.model.statistics import percentile
from spillover.model.token_orders import LEAST_LOADED
from spillover.sim.theory.tokens.exact import TokenFigures, exact_tokens
from spillover.sim.tokens import Estimate
from spillover.tools.bench.load_process import LoadProcess
from spillover.tools.bench.model import Row
from spillover.tools.bench.tokens.outcome import ALL, Blocking, Job, blocking, mean_time_ms
from spillover.tools.bench.tokens.rivals import BEST_STATIC, RIVALS, UNIFORM_STATIC
from spillover.tools.bench.tokens.sides import (
    LEAST,
    TOKENS,
    Dispatched,
    Played,
    PlayingSide,
    Run,
    Tokens,
    Turn,
    simulate,
)
from spillover.tools.bench.tokens.workloads import Phase, Workload
from spillover_loadgen.results import KEPT_UP_LAG_MS

if TYPE_CHECKING:
    from spillover.tools.bench.session import Session

SAY_EVERY_S = 30.0
UNIT = "per 10 000 jobs"
SHARE = 1e4
EXACT, SIMULATED, LEAST_SIMULATED = "exact", "itself, simulated", f"{LEAST}, simulated"
THEORY = {TOKENS: "dynamic", BEST_STATIC: "static-best", UNIFORM_STATIC: "static-uniform"}
"""What theory calls those sides that it has exact values of."""


@dataclass(frozen=True, slots=True)
class Found:
    """Of one side, in one phase, over all runs."""

    blocking: Blocking
    mean_time_ms: float


async def measure(workload: Workload, session: Session) -> None:
    """Measures one workload; run k has the seed `plan.seed` + k."""
    plan = session.plan
    # What rules would make of a server that goes is not compared.
    rules = () if workload.out else tuple(RIVALS)
    sides: list[PlayingSide] = [Tokens(), *(Dispatched(name) for name in rules)]
    if rules:
        sides.insert(1, Tokens(LEAST, LEAST_LOADED))
    phases, replicas = workload.phases(plan), workload.replicas(plan)
    plays: dict[str, list[Played]] = {side.name: [] for side in sides}
    virtual: dict[str, list[Sequence[Job]]] = {SIMULATED: [], LEAST_SIMULATED: []}
    for number in range(plan.runs):
        session.say_run(workload.name, number)
        seed = plan.seed + number
        run = Run(workload, replicas, phases, workload.schedule(plan, seed), seed)
        played = await _play_all(run, sides, session.say)
        for side, play in zip(sides, played, strict=True):
            plays[side.name].append(play)
        if workload.out is None:
            session.say(f"{workload.name}: simulated")
            virtual[SIMULATED].append(simulate(run))
            virtual[LEAST_SIMULATED].append(simulate(run, LEAST_LOADED))
    jobs = {name: [play.jobs for play in played] for name, played in plays.items()}
    if workload.out is None:
        jobs |= virtual
    for phase in phases:
        found = {name: _found(runs, replicas, phase) for name, runs in jobs.items()}
        _add_rows(session, f"{workload.name}, {phase.name}".rstrip(", "), phase, found)
    for name, played in plays.items():
        _note_effort(session, workload, name, played)
    session.note(
        "All sides had the same jobs at the same time. Half-widths are of 95 %, by the means of "
        "batches; times are until the client had the answer, of jobs that were not blocked."
    )


async def _play_all(
    run: Run, sides: Sequence[PlayingSide], say: Callable[[str], None]
) -> list[Played]:
    ready, heard = asyncio.Barrier(len(sides) + 1), asyncio.Barrier(len(sides))

    async def play(side: PlayingSide) -> Played:
        with LoadProcess() as load:
            return await side.play(Turn(run, load, ready, heard))

    tasks = [asyncio.create_task(play(side)) for side in sides]
    telling = asyncio.create_task(_tell(run, ready, say))
    try:
        return await asyncio.gather(*tasks)
    finally:  # nobody waits for one that has failed
        for task in (*tasks, telling):
            task.cancel()
        await asyncio.gather(*tasks, telling, return_exceptions=True)


async def _tell(run: Run, ready: asyncio.Barrier, say: Callable[[str], None]) -> None:
    """How far the schedule is, which goes by the clock whatever becomes of its jobs."""
    await ready.wait()
    name, duration_s = run.workload.name, run.phases[-1].until_s
    jobs, replicas = len(run.schedule), len(run.replicas)
    say(f"{name}: {jobs} jobs for each side in {duration_s:.0f} s, on {replicas} replicas")
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    while (gone_s := loop.time() - began_s) < duration_s:
        await asyncio.sleep(min(SAY_EVERY_S, duration_s - gone_s))
        say(f"{name}: {loop.time() - began_s:.0f} of {duration_s:.0f} s")


def _found(runs: Sequence[Sequence[Job]], replicas: Sequence[ClusterId], phase: Phase) -> Found:
    jobs: list[Job] = []
    for number, of_run in enumerate(runs):
        # Those of another run are other replicas.
        jobs += [replace(job, replica=ClusterId(f"{number}/{job.replica}")) for job in of_run]
    of = len(runs) * len(replicas)
    return Found(
        blocking(jobs, of, phase.from_s, phase.until_s),
        mean_time_ms(jobs, phase.from_s, phase.until_s),
    )


def _add_rows(session: Session, case: str, phase: Phase, found: Mapping[str, Found]) -> None:
    exact = {name: exact_tokens(phase.pool, THEORY[name]) for name in found if name in THEORY}
    ours = found[TOKENS].blocking
    names = [ALL, *(kind.id for kind in phase.pool.types)] if len(ours.shares) > 2 else [ALL]
    for name in names:
        what = f"{case}: blocked" if name == ALL else f"{case}: blocked of {name}"
        _add_share(session, what, ours.shares[name], EXACT, Estimate(_of(exact[TOKENS], name), 0.0))
        for rule, theirs in found.items():
            if rule != TOKENS:
                _add_share(session, what, ours.shares[name], rule, theirs.blocking.shares[name])
        for side, figures in exact.items():
            _note_exact(session, what, side, found[side].blocking, name, _of(figures, name))
    for name in names if LEAST in found else ():
        what = f"{case}: blocked" if name == ALL else f"{case}: blocked of {name}"
        least = found[LEAST].blocking.shares[name]
        for rule, theirs in found.items():
            if rule not in {LEAST, TOKENS, SIMULATED}:
                row = f"{what}, least loaded"
                _add_share(session, row, least, rule, theirs.blocking.shares[name])
    for rule, theirs in found.items():
        if rule != TOKENS:
            session.add(
                Row(
                    case=f"{case}: mean time",
                    unit="ms",
                    values=(found[TOKENS].mean_time_ms,),
                    peer=rule,
                    peer_values=(theirs.mean_time_ms,),
                )
            )


def _of(figures: TokenFigures, name: str) -> float:
    share = figures.blocking if name == ALL else figures.blocking_per_type[name]
    return share or 0.0


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


def _note_exact(
    session: Session, what: str, side: str, measured: Blocking, name: str, exact: float
) -> None:
    """How far a share is from what theory says, by its own errors."""
    share, errors = measured.shares[name], measured.errors_from(name, exact)
    value, half = (share.value or 0.0) * SHARE, (share.ci95 or 0.0) * SHARE
    width = "no interval" if errors is None else f"+-{half:.4g}, {errors:+.1f} standard errors"
    session.note(
        f"{what}, {side}: {measured.blocked[name]} of {measured.arrived[name]}, {value:.4g} "
        f"{UNIT} ({width} from the exact {exact * SHARE:.4g})"
    )


def _note_effort(session: Session, workload: Workload, name: str, played: Sequence[Played]) -> None:
    """Whether there was processor enough for what is compared, and how late all was."""
    shares = {kind: fmean(play.cpu_share[kind] for play in played) for kind in played[0].cpu_share}
    told = ", ".join(f"{kind} {share:.0%}" for kind, share in shares.items())
    lag_ms = max(play.lag_ms for play in played)
    late_ms = sorted(late_s * 1e3 for play in played for late_s in play.served.late_s)
    stay_ms = sum(play.served.stay_s for play in played) * 1e3 / len(late_ms)
    times_ms = [job.time_ms for play in played for job in play.jobs if job.time_ms is not None]
    around_ms = fmean(times_ms) - stay_ms
    is_late = max(lag_ms, around_ms) > KEPT_UP_LAG_MS
    too_late = ": TOO LATE, these figures are not to be used" if is_late else ""
    session.note(
        f"{workload.name}, {name}: of one core {told}; a job took {around_ms:.2f} ms more than its "
        f"share of its server; servers late by {fmean(late_ms):.2f} ms (p99 "
        f"{percentile(late_ms, 0.99):.2f}), requests left late by {lag_ms:.1f} ms (p99){too_late}"
    )
