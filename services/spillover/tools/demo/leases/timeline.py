"""The drawings of the lease demo's report, as SVG text: who served which stream when, how many
records were applied each second, how many streams each member held.

All share one time axis. Colors are variables of the page's style sheet; what a bar stands for shows
when one points at it. The words around the drawings are in `report`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

from spillover.tools.demo.leases.model import LeaseDemoResult
from spillover.tools.demo.leases.ownership import Mark, Span
from spillover.tools.demo.leases.watching import Look

WIDE_PX, NARROW_PX = 860, 560
LEFT_PX, RIGHT_PX, TOP_PX, BOTTOM_PX = 46, 8, 58, 34
ROWS_PX, ROW_PX_MIN, ROW_PX_MAX = 460, 5, 22
CURVE_PX = 130
TITLE_PX = 13
TICKS = 8
RATE_STEP_S = 0.5
LABEL_PX = 74
"""Two marks closer than this are told above each other."""

Points = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Axis:
    """From seconds to pixels."""

    from_s: float
    to_s: float
    width_px: int

    def x(self, at_s: float) -> float:
        inner_px = self.width_px - LEFT_PX - RIGHT_PX
        share = (at_s - self.from_s) / max(self.to_s - self.from_s, 1e-3)
        return LEFT_PX + inner_px * min(1.0, max(0.0, share))

    def grid(self, top_px: float, bottom_px: float) -> str:
        """Vertical lines at round seconds, with their numbers below."""
        step_s = round_step((self.to_s - self.from_s) / TICKS)
        parts = []
        at_s = 0.0
        while at_s <= self.to_s - self.from_s + 1e-9:
            x = self.x(self.from_s + at_s)
            parts.append(
                f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top_px}" y2="{bottom_px}"/>'
                f'<text class="tick" text-anchor="middle" x="{x:.1f}" y="{bottom_px + 15}">'
                f"{at_s:g}</text>"
            )
            at_s += step_s
        middle = (LEFT_PX + self.width_px - RIGHT_PX) / 2
        parts.append(
            f'<text class="tick" text-anchor="middle" x="{middle:.0f}" y="{bottom_px + 30}">'
            "time, s</text>"
        )
        return "".join(parts)


def round_step(least: float) -> float:
    """The first of 1, 2, 5, 10, ... that is not below `least`."""
    if least <= 0.0:
        return 1.0
    power = 10.0 ** floor(log10(least))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= least * (1 - 1e-9))


def owners_drawing(result: LeaseDemoResult, width_px: int) -> str:
    """One row a stream, one bar for each time that a member served it; gaps are in red."""
    axis = _axis(result, width_px)
    streams = result.plan.streams
    row_px = max(ROW_PX_MIN, min(ROW_PX_MAX, ROWS_PX / streams))
    bottom_px = TOP_PX + row_px * streams
    colors = member_colors(result)
    parts = [axis.grid(TOP_PX, bottom_px), _title(TITLE_PX, "One row for each stream")]
    every = max(1, ceil(14 / row_px))
    for partition in range(0, streams, every):
        y = TOP_PX + row_px * (partition + 0.5) + 4
        parts.append(f'<text class="tick" text-anchor="end" x="{LEFT_PX - 6}" y="{y:.1f}">')
        parts.append(f"{partition}</text>")
    parts += [_bar(axis, span, row_px, colors, result.began_s) for span in result.story.spans]
    for one in result.story.standstills:
        words = (
            f"stream {one.partition}: nobody for {one.length_s:.3f} s ({one.cause}), "
            f"from {one.before} to {one.after}"
        )
        parts.append(_gap(axis, one.partition, row_px, (one.from_s, one.to_s), words))
    parts.append(_marks(axis, result.marks, bottom_px))
    return _svg(width_px, bottom_px + BOTTOM_PX, "Who served which stream when", parts)


def rates_drawing(result: LeaseDemoResult, width_px: int) -> str:
    """Records applied per second, and how many waited, each with its own scale."""
    axis = _axis(result, width_px)
    rates = rate_points(result.looks, RATE_STEP_S)
    waiting = [(look.at_s, float(look.written - look.applied)) for look in result.looks]
    top_px = TOP_PX
    second_px = top_px + CURVE_PX + 34
    bottom_px = second_px + CURVE_PX
    parts = [axis.grid(bottom_px, bottom_px), _marks(axis, result.marks, bottom_px)]
    parts.append(_panel(axis, top_px, "Records applied per second", [(rates, "var(--networked)")]))
    title = "Records waiting in the streams"
    parts.append(_panel(axis, second_px, title, [(thinned(waiting), "var(--isolated)")]))
    label = "Records applied per second, and records waiting"
    return _svg(width_px, bottom_px + BOTTOM_PX, label, parts)


def held_drawing(result: LeaseDemoResult, width_px: int) -> str:
    """How many streams each member served, as steps."""
    axis = _axis(result, width_px)
    colors = member_colors(result)
    curves = [
        (
            held_points(result.story.spans, one.node, result.ended_s),
            colors[one.node],
        )
        for one in result.members
    ]
    bottom_px = TOP_PX + CURVE_PX + 40
    parts = [axis.grid(bottom_px, bottom_px), _marks(axis, result.marks, bottom_px)]
    parts.append(_panel(axis, TOP_PX, "Streams served by each member", curves, CURVE_PX + 40))
    return _svg(width_px, bottom_px + BOTTOM_PX, "Streams served by each member over time", parts)


def member_colors(result: LeaseDemoResult) -> dict[str, str]:
    """The style sheet's variables, by name."""
    return {one.node: f"var(--cluster-{index})" for index, one in enumerate(result.members)}


def rate_points(looks: Sequence[Look], step_s: float) -> Points:
    """Records per second, over stretches of at least `step_s`."""
    points: Points = []
    since: Look | None = None
    for look in looks:
        if since is None:
            since = look
        elif look.at_s - since.at_s >= step_s:
            rate = (look.applied - since.applied) / (look.at_s - since.at_s)
            points.append(((look.at_s + since.at_s) / 2, rate))
            since = look
    return points


def thinned(points: Points, most: int = 600) -> Points:
    """At most about so many of them, evenly."""
    every = max(1, ceil(len(points) / most))
    return points[::every]


def held_points(spans: Iterable[Span], node: str, to_s: float) -> Points:
    """(instant, streams served) as corners of steps, from the first start to the last end."""
    changes = [
        change
        for span in spans
        if span.node == node
        for change in ((span.from_s, 1), (span.to_s, -1))
        if change[0] < to_s
    ]
    points: Points = []
    held = 0
    for at_s, by in sorted(changes):
        points.append((at_s, float(held)))
        held += by
        points.append((at_s, float(held)))
    return [*points, (to_s, float(held))] if held else points


def _axis(result: LeaseDemoResult, width_px: int) -> Axis:
    return Axis(result.began_s, result.ended_s, width_px)


def _bar(axis: Axis, span: Span, row_px: float, colors: Mapping[str, str], began_s: float) -> str:
    left, right = axis.x(span.from_s), axis.x(span.to_s)
    y = TOP_PX + row_px * span.partition
    words = (
        f"stream {span.partition}: {span.node}, epoch {span.epoch}, "
        f"{span.from_s - began_s:.2f} to {span.to_s - began_s:.2f} s, {_end_words(span.end)}"
    )
    fill = colors.get(span.node, "var(--muted)")
    return (
        f'<rect class="bar" x="{left:.1f}" y="{y + row_px * 0.08:.1f}" '
        f'width="{max(right - left, 0.6):.1f}" height="{row_px * 0.84:.1f}" fill="{fill}">'
        f"<title>{escape(words)}</title></rect>"
    )


def _end_words(end: str) -> str:
    return {"end": "until the end", "released": "handed over"}.get(end, f"then {end}")


def _gap(axis: Axis, partition: int, row_px: float, span_s: tuple[float, float], words: str) -> str:
    left, right = axis.x(span_s[0]), axis.x(span_s[1])
    y = TOP_PX + row_px * (partition + 0.36)
    return (
        f'<rect class="gap" x="{left:.1f}" y="{y:.1f}" width="{max(right - left, 0.8):.1f}" '
        f'height="{row_px * 0.28:.1f}"><title>{escape(words)}</title></rect>'
    )


def _marks(axis: Axis, marks: Sequence[Mark], bottom_px: float) -> str:
    parts = []
    row_ends = [-1e9, -1e9]
    for mark in marks:
        x = axis.x(mark.at_s)
        words = f"{mark.node} {mark.kind}"
        row = 0 if x - row_ends[0] >= LABEL_PX else 1
        row_ends[row] = x
        y = TOP_PX - 8 - 15 * row
        is_right = x > axis.width_px - LABEL_PX
        anchor, at = ("end", x - 4) if is_right else ("start", x + 4)
        parts.append(
            f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{y - 9}" y2="{bottom_px:.1f}"/>'
            f'<text class="mark" text-anchor="{anchor}" x="{at:.1f}" y="{y}">{escape(words)}</text>'
        )
    return "".join(parts)


def _panel(
    axis: Axis,
    top_px: float,
    title: str,
    curves: Sequence[tuple[Points, str]],
    height_px: float = CURVE_PX,
) -> str:
    most = max((value for points, _ in curves for _, value in points), default=0.0)
    step = round_step(max(most, 1.0) / 4)
    top = step * max(1, ceil(most / step))
    bottom_px = top_px + height_px

    def y(value: float) -> float:
        return bottom_px - (height_px - 8) * value / top

    parts = []
    for number in range(round(top / step) + 1):
        at = y(number * step)
        right = axis.width_px - RIGHT_PX
        parts.append(
            f'<line class="grid" x1="{LEFT_PX}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>'
            f'<text class="tick" text-anchor="end" x="{LEFT_PX - 6}" y="{at + 4:.1f}">'
            f"{short_number(number * step)}</text>"
        )
    parts += [_curve(points, axis.x, y, stroke) for points, stroke in curves if points]
    # The first panel's title stands above the names of the marks.
    parts.append(_title(TITLE_PX if top_px == TOP_PX else top_px - 8, title))
    return "".join(parts)


def _title(y: float, words: str) -> str:
    return f'<text class="title" x="{LEFT_PX}" y="{y:.0f}">{escape(words)}</text>'


def _curve(
    points: Points, x: Callable[[float], float], y: Callable[[float], float], stroke: str
) -> str:
    path = " ".join(f"{x(at_s):.1f},{y(value):.1f}" for at_s, value in points)
    return f'<polyline class="curve" points="{path}" stroke="{stroke}"/>'


def short_number(value: float) -> str:
    """12000 as 12k."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def _svg(width_px: int, height_px: float, label: str, parts: Iterable[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width_px} {height_px:.0f}" '
        f'style="--drawn-width: {width_px}px" role="img" aria-label="{escape(label)}">\n'
        f"{body}\n</svg>"
    )
