"""The picture of `plan tokens --plot` shows blocking and time by tokens a class."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from spillover.cli.models.plotting import OKABE_ITO

if TYPE_CHECKING:
    from spillover.sim.theory.tokens.limits import TokenPlan


def draw_limits(plan: TokenPlan, path: Path) -> None:
    """Draw on the left the share of jobs that are blocked, by type, and the best there can be; on
    the right the mean time of a job. Marks are at the limits as given and as recommended."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.4), layout="constrained")
    blocked, times = figure.subplots(1, 2)
    counts = range(1, len(plan.curve) + 1)
    shares = [limits.figures.blocking for limits in plan.curve]
    blocked.plot(counts, shares, color=OKABE_ITO[0], label="all jobs")
    if len(plan.pool.types) > 1:
        for place, kind in enumerate(plan.pool.types, 1):
            own = [limits.figures.blocking_per_type[kind.id] for limits in plan.curve]
            color = OKABE_ITO[place % len(OKABE_ITO)]
            blocked.plot(counts, own, color=color, linewidth=1, alpha=0.8, label=f"type {kind.id}")
    blocked.axhline(plan.ideal.blocking, color="0.5", linestyle=":", label="best there can be")
    times.plot(counts, [limits.time_ms for limits in plan.curve], color=OKABE_ITO[0])
    for limits, marker, name in ((plan.given, "s", "as given"), (plan.best, "o", "recommended")):
        if limits is not None:
            at = sum(limits.tokens.values()) / len(limits.tokens)
            look = {"marker": marker, "color": OKABE_ITO[1], "linestyle": "none", "clip_on": False}
            blocked.plot([at], [limits.figures.blocking], label=name, **look)
            times.plot([at], [limits.time_ms], **look)
    blocked.set(ylim=(0, None), title="share of jobs that are blocked")
    times.set(ylim=(0, None), title="mean time of a job, ms")
    blocked.legend(frameon=False)
    for axes in (blocked, times):
        axes.set_xlabel("tokens a class, on average")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{plan.pool.name} at load {plan.pool.load:g}")
    partial = path.with_name(f".{path.name}.part")
    figure.savefig(partial, format=path.suffix[1:].lower(), dpi=150)
    partial.replace(path)
