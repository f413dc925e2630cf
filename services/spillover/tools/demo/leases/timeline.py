"""The drawings of the lease demo's report: who served which stream when, how many records were
applied each second, how many streams each member held.

All share one time axis. Here is what stands where; `timeline.svg.jinja` writes it, in the colors of
the style sheet. What a bar stands for shows when one points at it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, log10

from spillover.tools.demo.leases.model import LeaseDemoResult
from spillover.tools.demo.leases.ownership import Span
from spillover.tools.demo.leases.watching import Look
from spillover.tools.report.formats import compact

WIDE_PX, NARROW_PX = 860, 560
LEFT_PX, RIGHT_PX, TOP_PX, BOTTOM_PX = 46, 8, 58, 34
ROWS_PX, ROW_PX_MIN, ROW_PX_MAX = 460, 5, 22
CURVE_PX = 130
TITLE_PX = 13
TICKS = 8
RATE_STEP_S = 0.5
LABEL_PX = 74
"""Two marks closer than this are told above each other."""

_ENDS = {"end": "until the end", "released": "handed over"}

Points = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Text:
    """Words, and which end or the middle of them is at x."""

    kind: str
    x: float
    y: float
    anchor: str
    words: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A rectangle that says what it is."""

    kind: str
    x: float
    y: float
    width: float
    height: float
    fill: str
    words: str


@dataclass(slots=True)
class Drawing:
    """Shapes above a time axis that ends `BOTTOM_PX` above the bottom, in pixels."""

    result: LeaseDemoResult
    width_px: int
    bottom_px: float
    label: str
    grid: list[tuple[float, float, float, float]] = field(default_factory=list)
    """x1, x2, y1, y2."""
    bars: list[Bar] = field(default_factory=list)
    curves: list[tuple[Points, str]] = field(default_factory=list)
    marks: Points = field(default_factory=list)
    """The top of a line down to the axis."""
    texts: list[Text] = field(default_factory=list)

    @property
    def height_px(self) -> float:
        return self.bottom_px + BOTTOM_PX

    def x(self, at_s: float) -> float:
        from_s, to_s = self.result.began_s, self.result.ended_s
        inner_px = self.width_px - LEFT_PX - RIGHT_PX
        share = (at_s - from_s) / max(to_s - from_s, 1e-3)
        return LEFT_PX + inner_px * min(1.0, max(0.0, share))

    def add_time(self, top_px: float) -> None:
        """Draws vertical lines at round seconds with their numbers below, and what was done
        when."""
        length_s = self.result.ended_s - self.result.began_s
        step_s = round_step(length_s / TICKS)
        for number in range(floor(length_s / step_s + 1e-9) + 1):
            x = self.x(self.result.began_s + number * step_s)
            self.grid.append((x, x, top_px, self.bottom_px))
            self.texts.append(
                Text("tick", x, self.bottom_px + 15, "middle", f"{number * step_s:g}")
            )
        middle = (LEFT_PX + self.width_px - RIGHT_PX) / 2
        self.texts.append(Text("tick", middle, self.bottom_px + 30, "middle", "time, s"))
        row_ends = [-1e9, -1e9]
        for mark in self.result.marks:
            x = self.x(mark.at_s)
            row = 0 if x - row_ends[0] >= LABEL_PX else 1
            row_ends[row] = x
            y = TOP_PX - 8 - 15 * row
            self.marks.append((x, y - 9))
            is_right = x > self.width_px - LABEL_PX
            anchor, at = ("end", x - 4) if is_right else ("start", x + 4)
            self.texts.append(Text("mark", at, y, anchor, f"{mark.node} {mark.kind}"))

    def add_title(self, y: float, words: str) -> None:
        self.texts.append(Text("title", LEFT_PX, y, "start", words))

    def add_panel(
        self, top_px: float, height_px: float, title: str, curves: Sequence[tuple[Points, str]]
    ) -> None:
        """Draws curves with a scale of their own; seconds and values become pixels."""
        most = max((value for points, _ in curves for _, value in points), default=0.0)
        step = round_step(max(most, 1.0) / 4)
        steps = max(1, ceil(most / step))
        px_each = (height_px - 8) / (step * steps)
        for number in range(steps + 1):
            y = top_px + height_px - number * step * px_each
            self.grid.append((LEFT_PX, self.width_px - RIGHT_PX, y, y))
            self.texts.append(Text("tick", LEFT_PX - 6, y + 4, "end", compact(number * step)))
        for points, stroke in curves:
            if points:
                at = [(self.x(at_s), top_px + height_px - v * px_each) for at_s, v in points]
                self.curves.append((at, stroke))
        # The first panel's title stands above the names of the marks.
        self.add_title(TITLE_PX if top_px == TOP_PX else top_px - 8, title)


def owners_drawing(result: LeaseDemoResult, width_px: int) -> Drawing:
    """Draws one row a stream, one bar for each time that a member served it; gaps are in red."""
    streams = result.plan.streams
    row_px = max(ROW_PX_MIN, min(ROW_PX_MAX, ROWS_PX / streams))
    drawing = Drawing(result, width_px, TOP_PX + row_px * streams, "Who served which stream when")
    drawing.add_time(TOP_PX)
    drawing.add_title(TITLE_PX, "One row for each stream")
    for partition in range(0, streams, max(1, ceil(14 / row_px))):
        y = TOP_PX + row_px * (partition + 0.5) + 4
        drawing.texts.append(Text("tick", LEFT_PX - 6, y, "end", str(partition)))

    def add_bar(kind: str, row: float, span_s: tuple[float, float], fill: str, words: str) -> None:
        left, right = (drawing.x(at_s) for at_s in span_s)
        # Nothing is too short to be seen.
        size_px = max(right - left, 0.8), row_px * (0.84 if kind == "bar" else 0.28)
        y = TOP_PX + row_px * (row + 0.5) - size_px[1] / 2
        drawing.bars.append(Bar(kind, left, y, *size_px, fill, words))

    colors = {name: f"var(--{color})" for color, name in member_legend(result)}
    for span in result.story.spans:
        from_s, to_s = span.from_s - result.began_s, span.to_s - result.began_s
        words = (
            f"stream {span.partition}: {span.node}, epoch {span.epoch}, "
            f"{from_s:.2f} to {to_s:.2f} s, {_ENDS.get(span.end, f'then {span.end}')}"
        )
        fill = colors.get(span.node, "var(--muted)")
        add_bar("bar", span.partition, (span.from_s, span.to_s), fill, words)
    for one in result.story.standstills:
        words = (
            f"stream {one.partition}: nobody for {one.length_s:.3f} s ({one.cause}), "
            f"from {one.before} to {one.after}"
        )
        add_bar("gap", one.partition, (one.from_s, one.to_s), "var(--warning)", words)
    return drawing


def rates_drawing(result: LeaseDemoResult, width_px: int) -> Drawing:
    """Draws how many records were applied per second, and how many waited, each with its own
    scale."""
    waiting = [(look.at_s, float(look.written - look.applied)) for look in result.looks]
    second_px = TOP_PX + CURVE_PX + 34
    label = "Records applied per second, and records waiting"
    drawing = Drawing(result, width_px, second_px + CURVE_PX, label)
    drawing.add_time(drawing.bottom_px)
    rates = rate_points(result.looks, RATE_STEP_S)
    for top_px, title, points, color in (
        (TOP_PX, "Records applied per second", rates, "networked"),
        (second_px, "Records waiting in the streams", thinned(waiting), "isolated"),
    ):
        drawing.add_panel(top_px, CURVE_PX, title, [(points, f"var(--{color})")])
    return drawing


def held_drawing(result: LeaseDemoResult, width_px: int) -> Drawing:
    """Draws how many streams each member served, as steps."""
    height_px = CURVE_PX + 40
    title = "Streams served by each member"
    drawing = Drawing(result, width_px, TOP_PX + height_px, f"{title} over time")
    drawing.add_time(drawing.bottom_px)
    curves = [
        (held_points(result.story.spans, name, result.ended_s), f"var(--{color})")
        for color, name in member_legend(result)
    ]
    drawing.add_panel(TOP_PX, height_px, title, curves)
    return drawing


def member_legend(result: LeaseDemoResult) -> list[tuple[str, str]]:
    """Returns the members' colors and names."""
    return [(f"series-{index}", one.node) for index, one in enumerate(result.members)]


def round_step(least: float) -> float:
    """Returns the first of 1, 2, 5, 10, ... that is not below `least`."""
    if least <= 0.0:
        return 1.0
    power = 10.0 ** floor(log10(least))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= least * (1 - 1e-9))


def rate_points(looks: Sequence[Look], step_s: float) -> Points:
    """Returns records per second, over stretches of at least `step_s`."""
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
    """Returns at most about so many of them, evenly."""
    every = max(1, ceil(len(points) / most))
    return points[::every]


def held_points(spans: Iterable[Span], node: str, to_s: float) -> Points:
    """Returns (instant, streams served) as corners of steps, from the first start to the last
    end."""
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
