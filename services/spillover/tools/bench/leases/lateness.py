"""How late renewals are sent while handlers keep all cores busy, and what that costs in leases."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from spillover.model.errors import RunError
from spillover.model.statistics import percentile
from spillover.tools.bench.leases.renewing import (
    HANDLERS,
    HELD,
    PROCESS,
    RECORDS,
    TASK,
    THREAD,
    Loaded,
    LoadedPlan,
    hold_under_load,
    spin,
)
from spillover.tools.bench.leases.server import own_redis
from spillover.tools.bench.leases.settings import hold_against
from spillover.tools.bench.model import BenchPlan, Figure, Side, Stage
from spillover.tools.processes.child import Child

if TYPE_CHECKING:
    from spillover.tools.bench.session import Session

P50, P99, LONGEST = (f"renewal lateness under load, {name}" for name in ("p50", "p99", "max"))
LOST = "leases lost under load"
SIDES = {PROCESS: "a process", THREAD: "a thread", TASK: "a task of the loop"}
P99_MS_MAX = 50.0
MEMBERS = 16
"""In all, so that each run sends enough renewals."""
READY_WITHIN_S = 60.0
DONE_WITHIN_S = 60.0


async def measure_lateness(session: Session) -> None:
    """Measures a process with busy handlers for each core, and another one that does nothing but
    compute."""
    cores = os.cpu_count() or 1
    found: dict[str, list[Loaded]] = {mode: [] for mode in SIDES}
    with own_redis(session) as server:

        def side(mode: str) -> Side:
            plan = plan_of(session.plan, server.url, mode, cores)

            async def measure() -> tuple[float, ...]:
                loaded = await under_load(plan, cores)
                found[mode] += loaded
                return figures_of(SIDES[mode], loaded)

            return Side(SIDES[mode], measure)

        figures = [Figure(case, "ms") for case in (P50, P99, LONGEST)]
        figures.append(Figure(LOST, "leases"))
        await session.compare(figures, *(side(mode) for mode in SIDES))
    _judge(session, found, cores)


def plan_of(plan: BenchPlan, url: str, mode: str, cores: int) -> LoadedPlan:
    """Returns what one of the processes does, of which there are as many as cores."""
    load_s = plan.of(5.0, 2.0)
    return LoadedPlan(url=url, mode=mode, members=max(1, MEMBERS // cores), load_s=load_s)


def figures_of(side: str, loaded: Sequence[Loaded]) -> tuple[float, ...]:
    """Returns the figures of a run, of all its processes together. Raises RunError if nothing was
    late or in time."""
    late_ms = sorted(late for one in loaded for late in one.late_ms)
    if not late_ms:
        raise RunError(f"{side} sent no renewal that was due under load")
    shares = [percentile(late_ms, share) for share in (0.5, 0.99)]
    return (*shares, late_ms[-1], float(sum(one.lost for one in loaded)))


async def under_load(plan: LoadedPlan, cores: int) -> list[Loaded]:
    """Returns what each of the processes tells, one for each core."""
    async with AsyncExitStack() as stack:
        children = []
        for number in range(cores):
            child = Child(f"loaded process {number}", hold_under_load, plan)
            children.append(stack.enter_context(child))
        for child in children:
            await child.receive(READY_WITHIN_S)
        for child in children:
            await child.receive(READY_WITHIN_S)
        for number in range(cores):
            spinner = stack.enter_context(Child(f"spinner {number}", spin))
            await spinner.receive(READY_WITHIN_S)
        for child in children:
            child.send(None)
        return [await child.receive(plan.load_s + DONE_WITHIN_S) for child in children]


def _judge(session: Session, found: dict[str, list[Loaded]], cores: int) -> None:
    """Hold ours against what is asked for; tell what stands behind the figures."""
    for row in list(session.rows):
        if row.case == P99 and row.peer == SIDES[THREAD] and not session.plan.quick:
            hold_against(session, P99, "ms", list(row.values), P99_MS_MAX)
    batch_ms = sorted(one.batch_ms for of_mode in found.values() for one in of_mode)
    session.note(
        f"under load: {cores} processes of {HANDLERS} handlers that read batches of {RECORDS} "
        f"JSON records (one each {percentile(batch_ms, 0.5):.0f} ms for each process) and hold "
        f"{max(1, MEMBERS // cores) * HELD} leases each, beside {cores} that only compute, on "
        f"{cores} cores"
    )
    for mode, of_mode in found.items():
        late_ms = sorted(late for one in of_mode for late in one.late_ms)
        lost = sum(one.lost for one in of_mode)
        session.note(
            f"{SIDES[mode]}: {len(late_ms)} renewals of all runs, late by p50 "
            f"{percentile(late_ms, 0.5):.1f} ms, p99 {percentile(late_ms, 0.99):.1f} ms, max "
            f"{late_ms[-1]:.1f} ms; {lost} leases lost"
        )


STAGE = Stage((P50, P99, LONGEST, LOST), measure_lateness)
