"""From a matplotlib figure to SVG that lives inside a page: themed by CSS, small, without ids.

Colors are drawn as stand-ins and become CSS variables, so that one drawing serves light and dark.
What is drawn is in `figures`; the values of the variables are in `report_style`.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

from spillover.model.extras import missing_extra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAMED = ("ink", "muted", "grid", "isolated", "networked", "accept", "neighborhood")
_FAMILIES = ("named", "cluster", "speedup", "hops")


def color(name: str) -> str:
    """The stand-in for the CSS variable `--name` of a fixed color."""
    return _stand_in("named", _NAMED.index(name))


def color_of(family: str, index: int) -> str:
    """The stand-in for `--cluster-INDEX`, `--speedup-INDEX` or `--hops-INDEX`."""
    return _stand_in(family, index)


def render(name: str, label: str, size_px: tuple[int, int], draw: Callable[[Figure], None]) -> str:
    """An `<svg>` element of what `draw` puts on a figure of that size.

    `name` keeps the ids of several drawings in one page apart; `label` tells what is seen to those
    who do not see it. Raises InputError when matplotlib is not installed.
    """
    try:
        # Only reports need matplotlib, and it is slow to load.
        from matplotlib import rc_context  # noqa: PLC0415
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise missing_extra("the report", "report", "matplotlib") from error
    target = io.StringIO()
    with warnings.catch_warnings(), rc_context(_style(name)):
        # Ids may hold letters that the measuring font lacks; the reader's browser has them.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        # At 72 dots per inch a point is a pixel of the page.
        figure = Figure(figsize=(size_px[0] / 72, size_px[1] / 72), dpi=72, layout="constrained")
        draw(figure)
        no_metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(target, format="svg", transparent=True, metadata=no_metadata)
    return _for_page(target.getvalue(), label, size_px[0])


def _style(name: str) -> dict[Any, Any]:
    ink, muted, grid = color("ink"), color("muted"), color("grid")
    return {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "text.parse_math": False,
        "text.color": ink,
        "font.size": 12,
        "axes.edgecolor": grid,
        "axes.labelcolor": muted,
        "axes.titlesize": 12.5,
        "axes.titlelocation": "left",
        "axes.titlepad": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "axes.axisbelow": True,
        "grid.color": grid,
        "grid.linewidth": 0.8,
        "xtick.color": grid,
        "ytick.color": grid,
        "xtick.labelcolor": muted,
        "ytick.labelcolor": muted,
        "xtick.labelsize": 11.5,
        "ytick.labelsize": 11.5,
        "ytick.major.size": 0,
        "lines.linewidth": 1.4,
        "lines.solid_joinstyle": "round",
    }


def _stand_in(family: str, index: int) -> str:
    return f"#a{_FAMILIES.index(family)}{index:04x}"


def _themed(style: re.Match[str]) -> str:
    # The family is the page's own; what older versions of matplotlib write, its style sheet mends.
    text = re.sub(r"font-family: [^;\"]*; ", "", style[0])
    return re.sub(r"#a([0-3])([0-9a-f]{4})\b", _variable, text)


def _variable(match: re.Match[str]) -> str:
    family, index = _FAMILIES[int(match[1])], int(match[2], 16)
    return f"var(--{_NAMED[index]})" if family == "named" else f"var(--{family}-{index})"


def _for_page(svg: str, label: str, width_px: int) -> str:
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r'style="[^"]*"', _themed, svg)
    svg = re.sub(r' d="[^"]*"', _shorter_numbers, svg)
    svg = re.sub(r"\s*\n\s*", "\n", svg)
    opening = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'\\1 style="--drawn-width: {width_px}px" role="img" aria-label="{escape(label)}">'
    )
    return re.sub(r'<svg[^>]*(viewBox="[^"]*")[^>]*>', opening, svg, count=1).strip()


def _shorter_numbers(match: re.Match[str]) -> str:
    return re.sub(r"(\.\d)\d+", r"\1", match[0]).replace("\n", "")
