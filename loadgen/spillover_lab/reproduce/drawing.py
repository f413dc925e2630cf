"""Drawing of panels with matplotlib: one way for all figures, in light and dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from spillover.cli.models.plotting import OKABE_ITO, plain_ticks
from spillover_lab.report.drawing import png
from spillover_lab.reproduce.figure import Panel, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_INCHES, ROW_INCHES, HEIGHT_MIN_INCHES = 9.0, 2.6, 4.2
GRAY = "#888888"


def images(panels: Sequence[Panel], columns: int) -> tuple[bytes, bytes]:
    """Returns a PNG for light pages and one for dark ones."""
    light, dark = (
        png(lambda canvas: draw(panels, columns, canvas), dark=dark) for dark in (False, True)
    )
    return light, dark


def draw(panels: Sequence[Panel], columns: int, canvas: Figure) -> None:
    """Draws the panels row by row."""
    rows = math.ceil(len(panels) / columns)
    canvas.set_size_inches(WIDTH_INCHES, max(HEIGHT_MIN_INCHES, ROW_INCHES * rows))
    for place, panel in enumerate(panels):
        _draw(panel, canvas.add_subplot(rows, columns, place + 1))


def _draw(panel: Panel, axes: Axes) -> None:
    axes.set_title(panel.title, fontsize=10)
    axes.set_xlabel(panel.x_label, fontsize=9)
    if panel.rows:
        _draw_rows(panel.rows, axes)
        return
    floor: list[float] = []
    for number, series in enumerate(panel.series):
        floor = _add(series, series.color or f"C{number}", floor, axes)
    if panel.level is not None:
        axes.axhline(panel.level, color=GRAY, linewidth=0.9)
    for x in panel.columns:
        axes.axvline(x, color=GRAY, linestyle=":", linewidth=1)
    if panel.x_names:
        axes.set_xticks(range(len(panel.x_names)), panel.x_names, fontsize=8)
        axes.set_xlim(-0.5, len(panel.x_names) - 0.5)
    for name in panel.log:
        axes.set(**{f"{name}scale": "log"})
        plain_ticks(axes.xaxis if name == "x" else axes.yaxis)
    if any(limit is not None for limit in panel.y_limits):
        axes.set_ylim(*panel.y_limits)
    if labels := sum(bool(series.label) for series in panel.series):
        axes.legend(fontsize=8, ncols=1 + labels // 5)


def _add(series: Series, color: str, floor: list[float], axes: Axes) -> list[float]:
    """Draws one of the series; returns where the next bars begin."""
    x, y, label = list(series.x), list(series.y), series.label or None
    if series.style == "bar":
        low = floor or [0.0] * len(y)
        axes.bar(x, y, 0.7, bottom=low, color=color, label=label)
        return [one + other for one, other in zip(low, y, strict=True)]
    if series.band is not None:
        axes.fill_between(x, *series.band, color=color, alpha=0.25, linewidth=0)
    axes.errorbar(
        x, y, series.error, fmt=series.style, color=color, label=label,
        linewidth=series.width, elinewidth=1.0, markersize=4, capsize=2,
    )  # fmt: skip
    return floor


def _draw_rows(rows: Sequence[Sequence[int | None]], axes: Axes) -> None:
    """Draws a colored cell for each number, nothing where there is none."""
    from matplotlib.colors import ListedColormap  # noqa: PLC0415 - only drawing needs it

    cells = [[math.nan if cell is None else float(cell) for cell in row] for row in rows]
    axes.imshow(
        cells, aspect="auto", cmap=ListedColormap(OKABE_ITO), vmin=0, vmax=len(OKABE_ITO),
        interpolation="nearest",
    )  # fmt: skip
    axes.grid(visible=False)
