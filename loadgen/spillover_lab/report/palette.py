"""The colors of pages and drawings, light and dark.

The style sheet has each as a variable of the same name; how they are used is not known here.
"""

from __future__ import annotations

LIGHT = {
    "page": "#fbfaf8", "card": "#ffffff", "ink": "#1d2125", "muted": "#5c656e", "grid": "#dcdfe2",
    "good": "#0f7a5c", "warning": "#b3261e",
    "isolated": "#d4622a", "networked": "#0f8577", "accept": "#1f4e9e", "neighborhood": "#9cc1f0",
    "speedup-0": "#1f4e9e", "speedup-1": "#5d8fd9", "speedup-2": "#b7bec6", "speedup-3": "#8a5aa8",
    "hops-1": "#9fd6cb", "hops-2": "#5cb5a5", "hops-3": "#1f8f7f", "hops-4": "#0d6a60",
    "hops-5": "#0a4a48", "hops-6": "#082f33",
}  # fmt: skip
DARK = {
    "page": "#14171a", "card": "#1c2024", "ink": "#e8eaed", "muted": "#a3abb3", "grid": "#383e45",
    "good": "#3fd1a1", "warning": "#ff8a80",
    "isolated": "#f0915b", "networked": "#35b8a6", "accept": "#8fbcff", "neighborhood": "#3f5f8f",
    "speedup-0": "#8fbcff", "speedup-1": "#4f7fc8", "speedup-2": "#6b737c", "speedup-3": "#c39be0",
    "hops-1": "#155e56", "hops-2": "#1f877b", "hops-3": "#35b1a1", "hops-4": "#74d3c5",
    "hops-5": "#aeeae0", "hops-6": "#e0fbf6",
}  # fmt: skip
SERIES_LIGHT = ("#0068b3", "#d1490c", "#0a8a63", "#b0439b", "#937000", "#4b5560", "#7a4fd0")
SERIES_DARK = ("#5cb6f5", "#ff9155", "#3fd1a1", "#ee93d8", "#e5c04a", "#b4bec8", "#b79bff")

_CHOSEN = 5
_GOLDEN_ANGLE = 137.508


def variables(series: int) -> tuple[dict[str, str], dict[str, str]]:
    """Returns all colors by name, light and dark; `series-0`, `series-1` and so on are that
    many."""
    return (
        {**LIGHT, **_series(series, SERIES_LIGHT, lightness=38)},
        {**DARK, **_series(series, SERIES_DARK, lightness=66)},
    )


def _series(count: int, chosen: tuple[str, ...], lightness: int) -> dict[str, str]:
    # A few get colors chosen by eye; many get hues that differ most from one to the next.
    if count > _CHOSEN:
        hues = (210 + index * _GOLDEN_ANGLE for index in range(count))
        chosen = tuple(f"hsl({hue:.0f} 70% {lightness}%)" for hue in hues)
    return {f"series-{index}": chosen[index] for index in range(count)}
