"""Drawing of Comte's figures from what `tokens` has measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOOKS = {
    "dynamic": ("tokens", "C0", "-"),
    "static-best": ("best static", "C1", "-"),
    "static-uniform": ("uniform static", "C2", "-"),
    "ideal": ("ideal", "#888888", "--"),
}
"""The colors C0, C1, ... are those of the page, light or dark."""

SIZE_LOOKS = {
    "hyper": ("simulated, a law for each type", "o", -0.012),
    "hyper-by-class": ("simulated, a law for each server", "s", 0.012),
}


def draw_policies(data: dict[str, Any], figure: Figure) -> None:
    """Draws figures 9 and 12: occupancy above, blocking below, a line for each policy."""
    figure.set_size_inches(8, 7)
    upper, lower = figure.subplots(2, 1, sharex=True)
    for policy, curve in data["curves"].items():
        label, color, style = LOOKS[policy]
        for axes, what in ((upper, "occupancy"), (lower, "blocking")):
            axes.plot(data["loads"], curve[what], color=color, linestyle=style, label=label)
    upper.set_title("share of the servers' capacity in use")
    upper.legend(loc="lower right")
    lower.set_title("share of jobs turned away")
    _bound(lower, data["loads"])


def draw_tokens(data: dict[str, Any], figure: Figure) -> None:
    """Draws figure 10: blocking, a line for each number of tokens."""
    axes = figure.subplots()
    for place, (tokens, curve) in enumerate(data["curves"].items()):
        plural = "" if tokens == "1" else "s"
        axes.plot(
            data["loads"], curve["blocking"], color=f"C{place}", label=f"{tokens} token{plural}"
        )
    _, color, style = LOOKS["ideal"]
    axes.plot(data["loads"], data["ideal"]["blocking"], color=color, linestyle=style, label="ideal")
    axes.set_title("share of jobs turned away")
    axes.legend(loc="upper left")
    _bound(axes, data["loads"])


def draw_sizes(data: dict[str, Any], figure: Figure) -> None:
    """Draws figure 13: exact lines and simulated marks above, their difference below."""
    figure.set_size_inches(8, 7)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    for place, (name, line) in enumerate(data["lines"].items()):
        color = f"C{place}"
        upper.plot(data["loads"], line, color=color, label=f"type {place + 1}, exact")
        for sizes, (label, marker, aside) in SIZE_LOOKS.items():
            marks = data["marks"][sizes]
            loads = [mark["load"] for mark in marks]
            simulated = [mark["simulated"][name] for mark in marks]
            off = [mark["simulated"][name] - mark["exact"][name] for mark in marks]
            wide = [mark["ci95"][name] for mark in marks]
            if sizes == "hyper":
                upper.plot(loads, simulated, marker, color=color, markersize=5)
            lower.errorbar(
                [load + aside for load in loads], off, wide, fmt=marker, color=color,
                markersize=4, elinewidth=0.9, linestyle="none",
                markerfacecolor=color if sizes == "hyper" else "none",
                label=f"type {place + 1}, {label}",
            )  # fmt: skip
    lower.axhline(0, color="#888888", linewidth=0.8)
    upper.set_title("share of jobs turned away; marks: simulated, a law of sizes for each type")
    upper.legend(loc="upper left")
    lower.set_title("simulated less exact, with 95 % intervals")
    lower.set_ylim(-0.006, 0.009)
    lower.legend(loc="upper left", ncols=2, fontsize=7.5)
    _bound(lower, data["loads"])


def _bound(axes: Axes, loads: list[float]) -> None:
    axes.set_xlabel("load")
    axes.set_xlim(0, loads[-1] + 0.04)  # with room for half a mark
