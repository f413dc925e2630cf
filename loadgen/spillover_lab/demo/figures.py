"""The figures of the report, after figures 5, 6, 7 and 9 of Lai & Polak, as SVG text.

Each function draws one figure for a page of the given width. Only drawing is here: numbers come
from `result`, colors and fonts from `report.drawing`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from spillover.cli.models.plotting import plain_ticks
from spillover_lab.demo.result import (
    SPEEDUP_FIELDS,
    DemoResult,
    Points,
    RunResult,
    Summary,
    speedups,
)
from spillover_lab.report.drawing import color, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE_PX = 860
NARROW_PX = 380
HOPS_DRAWN = 6
"""Requests forwarded this often or more share one color."""

_LOG_FLOOR_MS = 0.01
_GROUP_PX_MIN = 40


def queue_lengths_figure(result: DemoResult, width_px: int) -> str:
    """Draws figure 5: user arrival rates, and the queue lengths that follow from them."""
    ids = result.topology.cluster_ids
    isolated = [_queue_points(result.isolated, cluster_id) for cluster_id in ids]
    networked = [_queue_points(result.networked, cluster_id) for cluster_id in ids]

    def draw(figure: Figure) -> None:
        axes = figure.subplots(4, 1, sharex=True, height_ratios=(2, 3, 3, 3))
        rates = [_rate_steps(result, cluster_id) for cluster_id in ids]
        _lines(axes[0], "Users arriving per second", rates, names=ids, step=True)
        _lines(axes[1], "Requests waiting: isolated queues", isolated, names=ids)
        _lines(axes[2], "Requests waiting: networked queues, same scale", networked)
        axes[2].set_ylim(axes[1].get_ylim())
        _lines(axes[3], "Requests waiting: networked queues, magnified", networked)
        _time_axis(axes[3], result)

    label = "User arrival rates and queue lengths over time, one line per cluster"
    return svg(f"queues-{width_px}", label, (width_px, 760), draw)


def acceptance_figure(result: DemoResult, width_px: int) -> str:
    """Draws figure 6: P (strong) and R (pale) over time in the networked run, one panel per
    cluster."""
    ids = result.topology.cluster_ids
    columns = 2 if width_px >= WIDE_PX and len(ids) > 6 else 1
    rows = math.ceil(len(ids) / columns)

    def draw(figure: Figure) -> None:
        axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        panels = list(axes.T.flat)
        for panel in panels[len(ids) :]:
            panel.set_axis_off()
        for panel, cluster_id in zip(panels, ids, strict=False):
            _acceptance_panel(panel, result.networked, cluster_id)
        for column in range(columns):
            _time_axis(axes[-1, column], result)

    label = "Acceptance probability P and neighborhood acceptance probability R over time"
    return svg(f"acceptance-{width_px}", label, (width_px, 84 * rows + 40), draw)


def system_times_figure(result: DemoResult, width_px: int) -> str:
    """Draws figure 7: system times by user population, isolated and networked, and the
    speed-ups."""
    ids = result.topology.cluster_ids
    size_px = (max(width_px, _GROUP_PX_MIN * len(ids)), 620)

    def draw(figure: Figure) -> None:
        times, factors = figure.subplots(2, 1, height_ratios=(3, 2))
        times.set_title("System time, ms (logarithmic)")
        times.set_yscale("log")
        for index, cluster_id in enumerate(ids):
            isolated, networked = result.times_of(cluster_id)
            _range_line(times, index - 0.2, isolated, color("isolated"))
            _range_line(times, index + 0.2, networked, color("networked"))
        times.set_ylim(times.get_ylim()[0] / 1.2)
        plain_ticks(times.yaxis)
        _populations_axis(times, ids)
        factors.set_title("Speed-up: isolated time divided by networked time")
        factors.axhline(1, color=color("ink"), linewidth=1)
        values_shown = size_px[0] / len(ids) > 30 * len(SPEEDUP_FIELDS)
        for index, cluster_id in enumerate(ids):
            _speedup_bars(factors, index, result, cluster_id, values_shown=values_shown)
        factors.margins(y=0.12)
        _populations_axis(factors, ids)

    label = "System times by user population, isolated and networked, and the speed-up factors"
    return svg(f"times-{width_px}", label, size_px, draw)


def forwards_figure(result: DemoResult, width_px: int) -> str:
    """Draws figure 9: the share of each population's requests that was forwarded, by how often."""
    ids = result.topology.cluster_ids
    drawn = min(HOPS_DRAWN, max(1, result.networked.hops_max))
    size_px = (max(width_px, 24 * len(ids)), 300)

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.set_title("Share of the requests that were forwarded, %")
        floor = [0.0] * len(ids)
        for hops in range(1, drawn + 1):
            shares = [_forwarded_share(result.networked, i, hops, drawn) * 100 for i in ids]
            fill = color(f"hops-{hops}")
            axes.bar(range(len(ids)), shares, 0.6, bottom=floor, color=fill)
            floor = [low + share for low, share in zip(floor, shares, strict=True)]
        axes.set_ylim(0, max(1.0, max(floor) * 1.08))
        _populations_axis(axes, ids)

    label = "Share of each population's requests that was forwarded once, twice and so on"
    return svg(f"forwards-{width_px}", label, size_px, draw)


def _queue_points(run: RunResult, cluster_id: str) -> Points:
    return run.points(lambda sample: sample.queue_length.get(cluster_id))


def _rate_steps(result: DemoResult, cluster_id: str) -> Points:
    steps = result.user_rates.get(cluster_id, [])
    # The last rate holds until the end of the run.
    return [*steps, (result.duration_s, steps[-1][1])] if steps else []


def _lines(
    axes: Axes,
    title: str,
    all_series: Sequence[Points],
    *,
    names: Sequence[str] = (),
    step: bool = False,
) -> None:
    axes.set_title(title)
    for index, series in enumerate(all_series):
        fill = color(f"series-{index}")
        times, values = [t for t, _ in series], [v for _, v in series]
        axes.plot(times, values, color=fill, drawstyle="steps-post" if step else "default")
        if names and series:
            _name_at_peak(axes, series, names[index], fill, step=step)
    highest = max((v for series in all_series for _, v in series), default=0)
    # Room for the names above the peaks; never less than one request.
    axes.set_ylim(0, max(1.0, highest * 1.18))
    axes.locator_params(axis="y", nbins=4, integer=True)


def _name_at_peak(axes: Axes, series: Points, name: str, fill: str, *, step: bool) -> None:
    at, (time_s, value) = max(enumerate(series), key=lambda found: found[1][1])
    if step and at + 1 < len(series):
        time_s = (time_s + series[at + 1][0]) / 2
    axes.annotate(
        name,
        (time_s, value),
        xytext=(0, 3),
        textcoords="offset points",
        ha="center",
        color=fill,
        weight="bold",
        parse_math=False,
    )


def _time_axis(axes: Axes, result: DemoResult) -> None:
    samples = [*result.isolated.samples[-1:], *result.networked.samples[-1:]]
    end_s = max([result.duration_s, *(sample.time_s for sample in samples)])
    axes.set_xlim(0, max(end_s, 0.001))
    axes.set_xlabel("time, s")


def _acceptance_panel(axes: Axes, run: RunResult, cluster_id: str) -> None:
    near = run.points(lambda sample: sample.neighborhood_accept_probability.get(cluster_id))
    own = run.points(lambda sample: sample.accept_probability.get(cluster_id))
    for series, name in ((near, "neighborhood"), (own, "accept")):
        axes.plot([t for t, _ in series], [v for _, v in series], color=color(name))
    axes.set_ylim(0, 1.05)
    axes.set_yticks([0, 0.5, 1], ["0", "", "1"])
    axes.set_ylabel(cluster_id, rotation=0, weight="bold", va="center", color=color("ink"))


def _range_line(axes: Axes, x: float, summary: Summary, fill: str) -> None:
    mean, least = summary.get("mean"), summary.get("min")
    std, most = summary.get("std"), summary.get("max")
    if mean is None or least is None or std is None or most is None:
        return
    low = max(least, _LOG_FLOOR_MS)
    top = max(mean + std, low)
    # A thick line and no bar: on a logarithmic axis bars would begin anywhere.
    axes.plot([x, x], [low, top], color=fill, linewidth=7, solid_capstyle="butt")
    axes.plot([x, x], [top, max(most, top)], color=fill, linewidth=1.2)
    axes.plot([x - 0.06, x + 0.06], [most, most], color=fill, linewidth=2)
    axes.plot([x - 0.08, x + 0.08], [mean, mean], color=color("ink"), linewidth=2)


def _speedup_bars(
    axes: Axes, index: int, result: DemoResult, cluster_id: str, *, values_shown: bool
) -> None:
    factors = speedups(*result.times_of(cluster_id))
    width = 0.8 / len(SPEEDUP_FIELDS)
    for place, field in enumerate(SPEEDUP_FIELDS):
        factor = factors[field]
        if factor is None:
            continue
        x = index - 0.4 + (place + 0.5) * width
        axes.bar(x, factor, width * 0.88, color=color(f"speedup-{place}"))
        if values_shown:
            at, text = (x, factor), f"{factor:.1f}"
            axes.annotate(
                text, at, xytext=(0, 2), textcoords="offset points", ha="center", fontsize=10.5
            )


def _populations_axis(axes: Axes, ids: Sequence[str]) -> None:
    axes.set_xticks(range(len(ids)), ids)
    axes.set_xlim(-0.6, len(ids) - 0.4)
    axes.set_xlabel("user population")


def _forwarded_share(run: RunResult, cluster_id: str, hops: int, last: int) -> float:
    counts = run.hops_of(cluster_id)
    total = sum(counts.values())
    several = sum(count for times, count in counts.items() if times >= hops)
    count = several if hops == last else counts.get(hops, 0)
    return count / total if total else 0.0
