"""The order of it all: each seed's schedule is played by every side, HAProxy with every threshold;
then the best threshold is chosen, and each policy stands beside it.

Sides play in turn where they need the processors, else at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, TypeAlias

from spillover.model.schedule import Schedule
from spillover.model.topology import DEFAULT_POLICY
from spillover.tools.bench.load_process import LoadProcess
from spillover.tools.bench.model import BenchPlan, Figure, Row
from spillover.tools.bench.peers.outcome import Fates, best_threshold, values_of
from spillover.tools.bench.peers.sides import (
    Federation,
    Played,
    PlayingSide,
    ThresholdSites,
    Turn,
    simulate,
)
from spillover.tools.bench.peers.workloads import Workload
from spillover_loadgen.results import KEPT_UP_LAG_MS

if TYPE_CHECKING:
    from spillover.tools.bench.session import Session

POLICIES = (DEFAULT_POLICY,)
THRESHOLDS = (0, 1, 2, 4)
THRESHOLDS_QUICK = (1,)
SEEDS_MIN = 6
"""With fewer, one seed decides what the median is."""

Values: TypeAlias = Mapping[Figure, float]


async def measure(workload: Workload, session: Session) -> None:
    """Measures one workload; run k has the seed `plan.seed` + k."""
    plan = session.plan
    policies, thresholds = contest_of(plan)
    schedules = [workload.schedule(plan, seed) for seed in _seeds(plan)]
    plays = await play_runs(session, workload, sides_of(policies, thresholds), schedules)
    _tell(session, workload, policies, thresholds, schedules, plays)


def contest_of(plan: BenchPlan) -> tuple[Sequence[str], Sequence[int]]:
    """Returns the policies that are measured, and the thresholds that HAProxy is tried with."""
    return plan.policies or POLICIES, THRESHOLDS_QUICK if plan.quick else THRESHOLDS


def sides_of(policies: Sequence[str], thresholds: Sequence[int]) -> Sequence[PlayingSide]:
    """Returns who plays, ours first."""
    return [*map(Federation, policies), *map(ThresholdSites, thresholds)]


async def play_runs(
    session: Session,
    workload: Workload,
    sides: Sequence[PlayingSide],
    schedules: Sequence[Schedule],
) -> dict[str, list[Played]]:
    """Has each run's schedule played by all sides; returns what came of it, by side."""
    plays: dict[str, list[Played]] = {side.name: [] for side in sides}
    for run, (seed, schedule) in enumerate(zip(_seeds(session.plan), schedules, strict=True)):
        session.say_run(workload.name, run)
        # Turned round on every other one: who goes first may find it harder.
        order = sides[::-1] if run % 2 else sides
        played = await _play_all(workload, order, schedule, seed, session.say)
        for side, play in zip(order, played, strict=True):
            plays[side.name].append(play)
    return plays


def _seeds(plan: BenchPlan) -> range:
    return range(plan.seed, plan.seed + plan.runs)


def _tell(
    session: Session,
    workload: Workload,
    policies: Sequence[str],
    thresholds: Sequence[int],
    schedules: Sequence[Schedule],
    plays: Mapping[str, Sequence[Played]],
) -> None:
    """Notes what was played of each run's schedule, by side: each policy beside the best threshold,
    itself in virtual time, and the first of the policies."""
    plan = session.plan
    values = {
        name: _values(workload, schedules, [play.fates for play in played])
        for name, played in plays.items()
    }
    best, means = best_threshold(
        workload.figures[0], {t: values[ThresholdSites(t).name] for t in thresholds}
    )
    for policy in policies:
        session.say(f"{workload.name}: {policy}, simulated")
        virtual = [
            simulate(workload, policy, schedule, seed)
            for seed, schedule in zip(_seeds(plan), schedules, strict=True)
        ]
        peers = {
            ThresholdSites(best).name: values[ThresholdSites(best).name],
            "itself, simulated": _values(workload, schedules, virtual),
        }
        if policy != policies[0]:
            peers[policies[0]] = values[policies[0]]
        _add_rows(session, workload, policy, values[policy], peers)
    _note_thresholds(session, workload, means)
    shown = {*policies, ThresholdSites(best).name}
    for name, played in plays.items():
        if name in shown or not _kept_up(played):
            _note_effort(session, workload, name, played)
    session.note(
        "Run by run all had the same requests: ratios are medians of the runs' ratios. Times count "
        "from the intended instant to the end of the service; HAProxy has the best of its "
        "thresholds."
    )
    if plan.runs < SEEDS_MIN:
        session.note(f"Too few seeds to claim anything: take --runs {SEEDS_MIN} or more.")


async def _play_all(
    workload: Workload,
    sides: Sequence[PlayingSide],
    schedule: Schedule,
    seed: int,
    say: Callable[[str], None],
) -> list[Played]:
    ready = asyncio.Barrier(len(sides) if workload.together else 1)

    async def play(side: PlayingSide) -> Played:
        say(f"{workload.name}: {side.name}")
        with LoadProcess() as load:
            return await side.play(Turn(workload, schedule, seed, load, ready))

    if not workload.together:
        return [await play(side) for side in sides]
    tasks = [asyncio.create_task(play(side)) for side in sides]
    try:
        return await asyncio.gather(*tasks)
    finally:  # nobody waits for one that has failed
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _values(
    workload: Workload, schedules: Sequence[Schedule], fates: Sequence[Fates]
) -> list[Values]:
    return [values_of(workload, s, f) for s, f in zip(schedules, fates, strict=True)]


def _add_rows(
    session: Session,
    workload: Workload,
    policy: str,
    ours: Sequence[Values],
    peers: Mapping[str, Sequence[Values]],
) -> None:
    for figure in workload.figures:
        for peer, theirs in peers.items():
            session.add(
                Row(
                    case=f"{workload.name}, {policy}: {figure.case}",
                    unit=figure.unit,
                    values=tuple(run[figure] for run in ours),
                    peer=peer,
                    peer_values=tuple(run[figure] for run in theirs),
                    paired=True,
                )
            )


def _note_thresholds(session: Session, workload: Workload, means: Mapping[int, float]) -> None:
    figure = workload.figures[0]
    told = ", ".join(f"{threshold}: {mean:.1f}" for threshold, mean in means.items())
    session.note(f"{workload.name}: HAProxy's {figure.case} by threshold, {figure.unit}: {told}")


def _note_effort(session: Session, workload: Workload, name: str, played: Sequence[Played]) -> None:
    """Whether there was processor enough for what is compared, and the generator in time."""
    shares = {kind: median(play.cpu_share[kind] for play in played) for kind in played[0].cpu_share}
    told = ", ".join(f"{kind} {share:.0%}" for kind, share in shares.items())
    lag_ms = max(play.lag_ms for play in played)
    late = "" if _kept_up(played) else ": TOO LATE, these figures are not to be used"
    session.note(
        f"{workload.name}, {name}: of one core {told}; requests left late by {lag_ms:.1f} ms "
        f"(p99, worst run){late}"
    )


def _kept_up(played: Sequence[Played]) -> bool:
    return all(play.lag_ms <= KEPT_UP_LAG_MS for play in played)
