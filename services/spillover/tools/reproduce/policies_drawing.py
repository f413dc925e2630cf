"""Drawing of what `policies` has measured."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any

from spillover.tools.report.log_ticks import plain_ticks
from spillover.tools.report.palette import OKABE_ITO
from spillover.tools.reproduce.policies_bed import LOADS, RTTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = dict(zip(("adaptive", "paper", "two-choice", "isolated"), OKABE_ITO, strict=False))

MEASURES = {"mean": "mean", "p99": "p99", "max": "longest", "forwards": "hops"}


def draw_bursts(data: dict[str, Any], figure: Figure) -> None:
    """Draws ratios to the paper's rule, a panel for each topology."""
    from spillover.tools.reproduce.policies import burst_ratios  # noqa: PLC0415 - it imports this

    names = list(data["topologies"])
    figure.set_size_inches(9, 3.6)
    panels = figure.subplots(1, len(names), sharey=True)
    for axes, name in zip(panels, names, strict=True):
        axes.set_title(name, fontsize=10, loc="left")
        for offset, policy in ((-0.2, "two-choice"), (0.2, "adaptive")):
            ratios = burst_ratios(data, name, policy)
            axes.bar(
                [place + offset for place in range(len(MEASURES))],
                [ratios[key].ratio for key in MEASURES],
                0.38,
                yerr=[ratios[key].half_width for key in MEASURES],
                color=COLORS[policy],
                label=policy,
                error_kw={"linewidth": 1, "ecolor": "gray"},
            )
        axes.axhline(1.0, color=COLORS["paper"], linewidth=1.5, label="paper")
        axes.set_xticks(range(len(MEASURES)), MEASURES.values())
        axes.grid(alpha=0.3, axis="y")
    panels[0].set_ylabel("share of the paper's rule")
    panels[-1].set_ylim(0, 1.25)
    panels[-1].legend(frameon=False, fontsize=8, loc="upper right", ncols=3)


def draw_gap(data: dict[str, Any], figure: Figure) -> None:
    """Draws the share of the gap over the period of reports, a panel for each shape and way."""
    from spillover.tools.reproduce.policies import gap_share  # noqa: PLC0415 - it imports this

    cells = data["cells"]
    kinds = list(dict.fromkeys((cell["shape"], cell["rtt"]) for cell in cells))
    figure.set_size_inches(9, 6)
    panels = figure.subplots(2, 2, sharex=True, sharey=True).flat
    for axes, (shape, rtt) in zip(panels, kinds, strict=True):
        own = [cell for cell in cells if (cell["shape"], cell["rtt"]) == (shape, rtt)]
        axes.set_title(f"{shape}, round trip {rtt:g} services", fontsize=10, loc="left")
        for policy in ("adaptive", "two-choice", "paper"):
            shares = [100 * gap_share(cell, policy) for cell in own]
            periods = [cell["period"] for cell in own]
            axes.plot(periods, shares, "o-", color=COLORS[policy], label=policy, markersize=4)
        axes.set_xscale("log")
        plain_ticks(axes.xaxis)
        axes.grid(alpha=0.3)
    first = figure.axes[0]
    first.set_ylabel("share of the gap closed, %")
    first.legend(frameon=False, fontsize=8, loc="lower left")
    for axes in figure.axes[2:]:
        axes.set_xlabel("reports each ... services")


def draw_grid(data: dict[str, Any], figure: Figure) -> None:
    """Draws a dot for each cell, by round trip and, within, by load."""
    from spillover.tools.reproduce.policies import beside_best  # noqa: PLC0415 - it imports this

    figure.set_size_inches(9, 4.2)
    axes = figure.subplots()
    marks = {"4x8": "o", "unlike": "^"}
    for shape, mark in marks.items():
        cells = [cell for cell in data["cells"] if cell["shape"] == shape]
        places = [
            RTTS.index(cell["rtt"]) + 0.18 * (LOADS.index(cell["load"]) - 1.5) for cell in cells
        ]
        ratios = [beside_best(cell)[0].ratio for cell in cells]
        axes.plot(
            places, ratios, mark, color=COLORS["adaptive"], alpha=0.6, markersize=4, label=shape
        )
    axes.axhline(1.0, color=COLORS["paper"], linewidth=1.5, label="the best rival")
    axes.set_xticks(range(len(RTTS)), [f"round trip {rtt:g}" for rtt in RTTS])
    axes.set_ylabel("mean wait, share of the best rival's")
    axes.set_title(f"within each round trip: load {', '.join(map(str, LOADS))}", fontsize=9)
    axes.set_ylim(0, None)
    axes.grid(alpha=0.3, axis="y")
    axes.legend(frameon=False, fontsize=8, loc="lower right")


def draw_overload(data: dict[str, Any], figure: Figure) -> None:
    """Draws the share that is done in time."""
    figure.set_size_inches(9, 3.4)
    axes = figure.subplots()
    cells = data["cells"]
    for offset, policy in ((-0.26, "isolated"), (0.0, "paper"), (0.26, "adaptive")):
        axes.bar(
            [place + offset for place in range(len(cells))],
            [100 * fmean(cell["done"][policy]) for cell in cells],
            0.25,
            color=COLORS[policy],
            label=policy,
        )
    axes.set_xticks(range(len(cells)), [f"{cell['shape']}\n{cell['load']:g} x" for cell in cells])
    axes.set_ylabel("done in time, %")
    axes.grid(alpha=0.3, axis="y")
    axes.legend(frameon=False, fontsize=8)


def draw_faults(data: dict[str, Any], figure: Figure) -> None:
    """Draws mean waits in each case, and what was done where that is less than elsewhere."""
    figure.set_size_inches(9, 4)
    axes = figure.subplots()
    cases = data["cases"]
    most = [max(fmean(own) for own in case["done"].values()) for case in cases]
    for number, (policy, color) in enumerate(COLORS.items()):
        places = [place + 0.2 * (number - 1.5) for place in range(len(cases))]
        waits = [fmean(case["wait"][policy]) for case in cases]
        axes.plot(places, waits, "o", color=color, label=policy)
        for place, wait, case, best in zip(places, waits, cases, most, strict=True):
            done = fmean(case["done"][policy])
            if done < best - 0.01:
                axes.text(place, wait, f"{done:.0%}", ha="center", va="bottom", fontsize=6)
    axes.set_yscale("log")
    plain_ticks(axes.yaxis)
    axes.set_xticks(range(len(cases)), [case["case"].replace(" ", "\n", 2) for case in cases])
    axes.tick_params(axis="x", labelsize=7)
    axes.set_ylabel("mean wait, services")
    axes.grid(alpha=0.3, axis="y")
    axes.legend(frameon=False, fontsize=8)


def draw_fairness(data: dict[str, Any], figure: Figure) -> None:
    """Draws the mean wait of the cold sites' own clients."""
    figure.set_size_inches(9, 3.4)
    axes = figure.subplots()
    cells = data["cells"]
    for offset, policy in ((-0.26, "isolated"), (0.0, "paper"), (0.26, "adaptive")):
        places = [place + offset for place in range(len(cells))]
        waits = [max(fmean(cell["cold_wait"][policy]), 1e-3) for cell in cells]
        axes.plot(places, waits, "o", color=COLORS[policy], label=policy)
    axes.set_yscale("log")
    plain_ticks(axes.yaxis)
    names = [f"one at {cell['hot']:g},\nthree at {cell['cold']:g}" for cell in cells]
    axes.set_xticks(range(len(cells)), names)
    axes.set_ylabel("mean wait, services")
    axes.grid(alpha=0.3, axis="y")
    axes.legend(frameon=False, fontsize=8)
