"""The page on the experiment: one HTML file that needs nothing else. Its words and their order are
in `report.html.jinja`; here is what depends on the runs."""

from __future__ import annotations

from collections.abc import Sequence

from spillover.tools.bench.membership.figures import LEGEND, NARROW_PX, WIDE_PX, over_time
from spillover.tools.bench.membership.steps import Run
from spillover.tools.bench.model import BenchPlan
from spillover.tools.report.page import made_with, page

_EVENTS = ("1 out", "2 out", "1 out, 3 in", "1 in")


def report_page(
    runs: Sequence[Run], plan: BenchPlan, clients: int, servers: int, wait_s: float
) -> str:
    """Returns the page as text. Raises InputError when jinja2 or matplotlib is not installed."""
    most = 1.1 * max(seen[3] for run in runs for seen in run.over_time)
    return page(
        "bench/membership/report.html.jinja",
        title="Spillover: clients while a federation changes",
        clients=clients,
        servers=servers,
        wait_s=f"{wait_s:g}",
        quick=plan.quick,
        summary=[(_name(run, plan), _summary(run)) for run in runs],
        legend=LEGEND,
        runs=[
            {
                "name": _name(run, plan),
                "drawings": [over_time(run, most, width_px) for width_px in (WIDE_PX, NARROW_PX)],
                "steps": _steps(run),
            }
            for run in runs
        ],
        facts={
            "again": "spillover bench membership --report FILE",
            "seed": str(plan.seed),
            "simulated": "medians of the same machines in virtual time, with other seeds",
            **made_with(),
        },
    )


def _name(run: Run, plan: BenchPlan) -> str:
    return f"{run.rule.label}, seed {run.seed}" if plan.runs > 1 else run.rule.label


def _summary(run: Run) -> list[str]:
    answers = sum(run.requests[name] for name in ("ok", "failed", "unknown"))
    return [
        f"{run.max_over_mean:.2f}",
        f"{run.min_over_mean:.2f}",
        f"{run.moved}",
        f"{run.moved_min}",
        f"{run.failed} of {answers}",
        f"{run.put_off}",
        f"{run.done_s:.1f}",
    ]


def _steps(run: Run) -> list[tuple[str, list[str]]]:
    rows = []
    for number, (event, step) in enumerate(zip(_EVENTS, run.steps, strict=True), start=1):
        said = run.simulated.medians(number - 1)
        _, fewest, even, fullest = step.after.spread(step.servers)
        cells = [
            f"{fewest}",
            f"{even:.1f}",
            f"{fullest}",
            f"{step.max_over_mean:.2f} ({said['max_over_mean']:.2f})",
            f"{step.moved} ({said['moved']:.0f})",
            f"{step.moved_min}",
            f"{step.put_off}",
            f"{step.done_s:.1f}",
        ]
        rows.append((f"{number}. {event}", cells))
    return rows
