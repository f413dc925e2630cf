"""Drawings with matplotlib: SVG that lives inside a page, and PNG for files of their own.

In SVG, colors are drawn as stand-ins and become CSS variables, so that one drawing serves light and
dark. What is drawn is known to those who draw.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

from spillover.model.extras import missing_extra
from spillover_lab.report import palette

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAMES = tuple(palette.LIGHT)
_SERIES = "series-"
_PNG_INCHES = (8.0, 4.8)
_PNG_DOTS_PER_INCH = 144


def color(name: str) -> str:
    """Returns the stand-in for the CSS variable of that name, in SVG."""
    if name.startswith(_SERIES):
        return f"#a1{int(name.removeprefix(_SERIES)):04x}"
    return f"#a0{_NAMES.index(name):04x}"


def svg(name: str, label: str, size_px: tuple[int, int], draw: Callable[[Figure], None]) -> str:
    """Returns an `<svg>` element of what `draw` puts on a figure of that size.

    `name` keeps the ids of several drawings in one page apart; `label` tells what is seen to those
    who do not see it. Raises InputError when matplotlib is not installed.
    """
    target = io.StringIO()
    # At 72 dots per inch a point is a pixel of the page.
    with _figure(_svg_style(name), (size_px[0] / 72, size_px[1] / 72), 72) as figure:
        draw(figure)
        no_metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(target, format="svg", transparent=True, metadata=no_metadata)
    return _for_page(target.getvalue(), label, size_px[0])


def png(draw: Callable[[Figure], None], *, dark: bool) -> bytes:
    """Returns what `draw` puts on a figure, in the colors of a light or a dark page.

    Raises InputError when matplotlib is not installed.
    """
    target = io.BytesIO()
    with _figure(_png_style(dark=dark), _PNG_INCHES, _PNG_DOTS_PER_INCH) as figure:
        draw(figure)
        # Without the date and the version of the library: the same seed gives the same file.
        figure.savefig(target, format="png", metadata={"Software": None})
    return target.getvalue()


@contextmanager
def _figure(style: dict[Any, Any], inches: tuple[float, float], dpi: int) -> Iterator[Figure]:
    try:
        # Only drawing needs matplotlib, and it is slow to load.
        from matplotlib import rc_context  # noqa: PLC0415
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise missing_extra("the report", "report", "matplotlib") from error
    with warnings.catch_warnings(), rc_context(style):
        # Ids may hold letters that the measuring font lacks; the reader's browser has them.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = Figure(figsize=inches, dpi=dpi, layout="constrained")
        FigureCanvasAgg(figure)
        yield figure


def _style(ink: str, muted: str, grid: str, edge: str) -> dict[Any, Any]:
    return {
        "text.color": ink,
        "axes.edgecolor": edge,
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": grid,
        "grid.linewidth": 0.8,
        "xtick.color": edge,
        "ytick.color": edge,
        "xtick.labelcolor": muted,
        "ytick.labelcolor": muted,
    }


def _svg_style(name: str) -> dict[Any, Any]:
    ink, muted, grid = color("ink"), color("muted"), color("grid")
    return {
        **_style(ink, muted, grid, edge=grid),
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "text.parse_math": False,
        "font.size": 12,
        "axes.labelcolor": muted,
        "axes.titlesize": 12.5,
        "axes.titlepad": 9,
        "axes.grid.axis": "y",
        "xtick.labelsize": 11.5,
        "ytick.labelsize": 11.5,
        "ytick.major.size": 0,
        "lines.linewidth": 1.4,
        "lines.solid_joinstyle": "round",
    }


def _png_style(*, dark: bool) -> dict[Any, Any]:
    from cycler import cycler  # noqa: PLC0415 - comes with matplotlib

    colors = palette.DARK if dark else palette.LIGHT
    paper, muted = colors["card"], colors["muted"]
    return {
        **_style(colors["ink"], muted, colors["grid"], edge=muted),
        "figure.facecolor": paper,
        "savefig.facecolor": paper,
        "axes.facecolor": paper,
        "axes.prop_cycle": cycler(color=palette.SERIES_DARK if dark else palette.SERIES_LIGHT),
        "axes.labelcolor": colors["ink"],
        "axes.titlecolor": colors["ink"],
        "axes.titlesize": 11,
        "font.size": 10.5,
        "legend.frameon": False,
        "legend.fontsize": 9.5,
        "lines.linewidth": 1.6,
        "lines.markersize": 5,
        "patch.edgecolor": paper,
    }


def _themed(style: re.Match[str]) -> str:
    # The family is the page's own; what older versions of matplotlib write, its style sheet mends.
    text = re.sub(r"font-family: [^;\"]*; ", "", style[0])
    return re.sub(r"#a([01])([0-9a-f]{4})\b", _variable, text)


def _variable(match: re.Match[str]) -> str:
    index = int(match[2], 16)
    return f"var(--{_SERIES}{index})" if match[1] == "1" else f"var(--{_NAMES[index]})"


def _for_page(text: str, label: str, width_px: int) -> str:
    text = text[text.index("<svg") :]
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(r'style="[^"]*"', _themed, text)
    text = re.sub(r' d="[^"]*"', _shorter_numbers, text)
    text = re.sub(r"\s*\n\s*", "\n", text)
    opening = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'\\1 style="--drawn-width: {width_px}px" role="img" aria-label="{escape(label)}">'
    )
    return re.sub(r'<svg[^>]*(viewBox="[^"]*")[^>]*>', opening, text, count=1).strip()


def _shorter_numbers(match: re.Match[str]) -> str:
    return re.sub(r"(\.\d)\d+", r"\1", match[0]).replace("\n", "")
