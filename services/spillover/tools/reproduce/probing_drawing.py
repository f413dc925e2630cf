"""Drawing of Johnson's figures from what `probing` has measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Curves: TypeAlias = dict[str, list[dict[str, Any]]]

GRAY = "#888888"
NAMES = {"h_max": r"$h_{max}$"}


def draw_2(data: dict[str, Any], figure: Figure) -> None:
    """Draws probes against h_max."""
    axes = figure.subplots()
    _curves(axes, data["curves"], "probes_mean")
    axes.set_title("probes for one object, on average")
    axes.legend(loc="upper left")
    _hops(axes)


def draw_3(data: dict[str, Any], figure: Figure) -> None:
    """Draws waits against h_max; excess over the model against the number of producers."""
    figure.set_size_inches(10, 4.5)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _curves(left, data["curves"], "wait_mean")
    left.set_title("wait for an object, in message times")
    left.legend()
    left.set_ylim(bottom=0)
    _hops(left)
    for place, (name, points) in enumerate(data["many_producers"].items()):
        excess, half = [], []
        for point in points:
            model = point["model"]["wait_mean"]
            excess.append(100 * (point["simulated"]["wait_mean"] / model - 1))
            half.append(100 * point["ci95"]["wait_mean"] / model)
        x = [point["x"] * (1 + 0.03 * place) for point in points]
        right.errorbar(x, excess, half, fmt="o", color=f"C{place}", capsize=3, label=_label(name))
    right.axhline(0, color=GRAY, linewidth=0.8)
    right.set_xscale("log")
    right.set_xticks([point["x"] for point in points], [str(point["x"]) for point in points])
    right.minorticks_off()
    right.set_xlabel("producers, and consumers")
    right.set_title("load 100 %: simulated, % above")
    right.legend()


def draw_4(data: dict[str, Any], figure: Figure) -> None:
    """Draws empty and blocked producers against h_max, lines only."""
    figure.set_size_inches(10, 4.5)
    left, right = figure.subplots(1, 2)
    _curves(left, data["curves"], "empty_probability")
    left.set_title("probes that find an empty producer")
    _curves(right, data["curves"], "producer_utilization", lambda used: 1 - used)
    right.set_title("share of the time in which a producer is blocked")
    for axes in (left, right):
        _hops(axes)
        axes.set_ylim(0, 1)
    right.legend()


def draw_5(data: dict[str, Any], figure: Figure) -> None:
    """Draws utilization and blocking against buffers."""
    figure.set_size_inches(10, 4.5)
    left, right = figure.subplots(1, 2)
    _curves(left, data["curves"], "producer_utilization")
    left.set_title("share of production that is used")
    _curves(right, data["curves"], "producer_utilization", lambda used: 1 - used)
    right.set_title("share of the time in which a producer is blocked")
    for axes in (left, right):
        axes.set_xlabel("buffers at each producer")
        axes.set_xticks(range(0, 21, 5))
        axes.set_ylim(0, 1.02)
    right.legend()


def draw_6(data: dict[str, Any], figure: Figure) -> None:
    """Draws waits against h_max; far apart, so in logarithms."""
    axes = figure.subplots()
    _curves(axes, data["curves"], "wait_mean")
    _log_waits(axes)
    axes.legend()
    _hops(axes)


def draw_7(data: dict[str, Any], figure: Figure) -> None:
    """Draws waits against h_max for both sets of producers."""
    axes = figure.subplots()
    _curves(axes, data["curves"], "wait_mean")
    axes.set_title("wait for an object, in message times")
    axes.set_ylim(bottom=0)
    axes.legend()
    _hops(axes)


def draw_8(data: dict[str, Any], figure: Figure) -> None:
    """Draws waits against the share of probes to fast producers."""
    axes = figure.subplots()
    _curves(axes, data["curves"], "wait_mean")
    for place, share in enumerate(data["made_by_fast"].values()):
        axes.axvline(share, color=f"C{place}", linestyle=":", linewidth=1)
    _log_waits(axes)
    axes.set_xlabel("share of the probes that goes to fast producers")
    axes.set_xlim(0, 1)
    axes.legend()


def draw_9(data: dict[str, Any], figure: Figure) -> None:
    """Draws waits against the number of producers that a consumer may probe."""
    axes = figure.subplots()
    _curves(axes, data["curves"], "wait_mean")
    for place, points in enumerate(data["curves"].values()):
        printed = [point["printed"]["wait_mean"] for point in points]
        x = [point["x"] for point in points]
        axes.plot(x, printed, color=f"C{place}", linestyle="--", linewidth=0.9)
    _log_waits(axes)
    axes.set_xscale("log")
    ticks = [1, 2, 3, 5, 10, 20, 50, 100]
    axes.set_xticks(ticks, list(map(str, ticks)))
    axes.minorticks_off()
    axes.set_xlabel("producers that a consumer may probe")
    axes.legend()


def _curves(
    axes: Axes, curves: Curves, field: str, shown: Callable[[float], float] = float
) -> None:
    """The model as lines, what was simulated as points with intervals."""
    for place, (name, points) in enumerate(curves.items()):
        color, x = f"C{place}", [point["x"] for point in points]
        model = [shown(point["model"][field]) for point in points]
        axes.plot(x, model, color=color, linewidth=1.2, label=_label(name))
        if "simulated" in points[0]:
            simulated = [shown(point["simulated"][field]) for point in points]
            half = [point["ci95"][field] for point in points]
            axes.errorbar(
                x, simulated, half, fmt="o", color=color, markersize=4, linestyle="none",
                elinewidth=0.9,
            )  # fmt: skip


def _label(name: str) -> str:
    for plain, drawn in NAMES.items():
        name = name.replace(plain, drawn)
    return name


def _log_waits(axes: Axes) -> None:
    axes.set_yscale("log")
    ticks = [2, 5, 10, 20, 50, 100, 200]
    axes.set_yticks(ticks, list(map(str, ticks)))
    axes.set_title("wait for an object, in message times")


def _hops(axes: Axes) -> None:
    axes.set_xlabel(r"most probes allowed, $h_{max}$")
    axes.set_xticks(range(1, 11))
