"""The figures of the page, after figures 2 to 4 of Shraer & Reed: clients of a server over time.
Only drawing is here."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from spillover.tools.bench.membership.steps import Run
from spillover.tools.report.drawing import color, svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDE_PX, NARROW_PX = 860, 380
HEIGHT_PX = 250

LEGEND = (
    ("isolated", "fullest server"),
    ("ink", "mean"),
    ("networked", "emptiest server"),
)


def over_time(run: Run, most: float, width_px: int) -> str:
    """Draws the fewest, the mean and the most clients over time; the axis ends at `most`."""
    label = f"{run.rule.label}: the fewest, the mean and the most clients of a server over time"
    name = f"{run.rule.label.replace(' ', '-')}-{run.seed}-{width_px}"
    return svg(name, label, (width_px, HEIGHT_PX), partial(draw, run, most))


def draw(run: Run, most: float, figure: Figure) -> None:
    """Puts on a figure what `over_time` is."""
    times, fewest, means, fullest = zip(*run.over_time, strict=True)
    axes = figure.subplots()
    axes.set_title("Clients of a server")
    axes.fill_between(times, fewest, fullest, step="post", color=color("grid"), alpha=0.5)
    for values, name in ((fullest, "isolated"), (means, "ink"), (fewest, "networked")):
        axes.plot(times, values, color=color(name), drawstyle="steps-post")
    for number, step in enumerate(run.steps, start=1):
        axes.axvline(step.begun_s, color=color("muted"), linewidth=1, linestyle=":")
        axes.annotate(
            str(number), (step.begun_s, most), xytext=(3, -2), textcoords="offset points",
            va="top", color=color("muted"),
        )  # fmt: skip
    axes.set_ylim(0, most)
    axes.set_xlim(0, times[-1])
    axes.set_xlabel("time, s")
