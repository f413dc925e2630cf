"""Drawing of the lease experiment from what `leases` has measured."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from spillover.tools.report.palette import OKABE_ITO

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


LINES = {
    "blog, calm": (OKABE_ITO[1], "-"),
    "blog, stalled": (OKABE_ITO[1], "--"),
    "guarded, calm": (OKABE_ITO[0], "-"),
    "guarded, stalled": (OKABE_ITO[0], "--"),
}
LABELS = {
    "blog, calm": "document's rule, nobody late",
    "blog, stalled": "document's rule, one late",
    "guarded, calm": "guarded, nobody late",
    "guarded, stalled": "guarded, one late",
}


def draw_moves(data: dict[str, Any], figure: Figure) -> None:
    """Draws four panels of moves so far; below them who ran what, by either rule."""
    figure.set_size_inches(10, 8)
    cases = data["curves"]
    grid = figure.add_gridspec(2, len(cases))
    first = None
    for place, (case, lines) in enumerate(cases.items()):
        axes = figure.add_subplot(grid[0, place], sharey=first)
        _draw_case(axes, case, lines, data)
        if first is None:
            first = axes
            axes.set_ylabel("moves so far")
            handles, labels = axes.get_legend_handles_labels()
            figure.legend(
                handles, labels, loc="outside upper center", ncols=4, frameon=False, fontsize=8
            )
        else:
            axes.tick_params(labelleft=False)
    half = len(cases) // 2
    for place, (rule, name) in enumerate((("blog", "document's rule"), ("guarded", "guarded"))):
        axes = figure.add_subplot(grid[1, place * half : (place + 1) * half])
        _draw_timeline(axes, data["timelines"][rule], data["timeline_periods"])
        axes.set_title(f"who runs which partition, one late: {name}", fontsize=10, loc="left")


def _draw_case(axes: Axes, case: str, lines: dict[str, list[float]], data: dict[str, Any]) -> None:
    for name, values in lines.items():
        color, style = LINES[name]
        axes.plot(
            range(len(values)), values, color=color, linestyle=style, label=LABELS[name],
            linewidth=1.2 if name.startswith("guarded") else 2.4,
            zorder=3 if name.startswith("guarded") else 2,
        )  # fmt: skip
    fewest = next(row["moves_min"] for row in data["rows"] if row["case"] == case)
    if fewest:
        axes.axhline(fewest, color="#888888", linewidth=0.8, linestyle=":")
        axes.annotate(
            f"fewest: {fewest}", (len(values) - 1, fewest), fontsize=7, color="#888888",
            ha="right", va="top", xytext=(0, -3), textcoords="offset points",
        )  # fmt: skip
    axes.set_yscale("symlog", linthresh=1)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}".replace(",", "\N{THIN SPACE}"))
    axes.set_title(f"{case}", fontsize=10, loc="left")
    axes.set_xlabel("normal lease times", fontsize=8)
    axes.grid(alpha=0.3)


def _draw_timeline(axes: Axes, rows: list[list[int | None]], periods: int) -> None:
    """A row a partition, a color a node; nothing where nobody ran it."""
    from matplotlib.colors import ListedColormap  # noqa: PLC0415 - only drawing needs it

    image = [[math.nan if node is None else float(node) for node in row] for row in rows]
    axes.imshow(
        image, aspect="auto", cmap=ListedColormap(OKABE_ITO), vmin=0, vmax=len(OKABE_ITO),
        interpolation="nearest", extent=(0.0, periods, len(rows) - 0.5, -0.5),
    )  # fmt: skip
    axes.grid(visible=False)
    axes.set_xlabel("normal lease times", fontsize=8)
    axes.set_ylabel("partition", fontsize=8)
