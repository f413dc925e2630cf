"""Drawing of figures 5 to 9 of Lai & Polak from what `networked_queues` has measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillover.tools.report.log_ticks import plain_ticks
from spillover.tools.report.palette import OKABE_ITO

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


ISOLATED, NETWORKED = OKABE_ITO[1], OKABE_ITO[0]
SPEEDUPS = ("mean", "max", "min", "std")


def draw_queue_lengths(data: dict[str, Any], figure: Figure) -> None:
    """Draws rates on top, then the queue lengths of both runs on one scale, and the networked ones
    on their own."""
    figure.set_size_inches(9, 8)
    rates, alone, together, near = figure.subplots(4, 1, sharex=True)
    times_s = data["times_s"]
    panels: tuple[tuple[Axes, str, dict[str, list[float]]], ...] = (
        (rates, "users arriving per second", data["user_rate_per_s"]),
        (alone, "requests waiting, isolated", data["queue_length"]["isolated"]),
        (together, "requests waiting, networked, same scale", data["queue_length"]["networked"]),
        (near, "requests waiting, networked, magnified", data["queue_length"]["networked"]),
    )
    for axes, title, series in panels:
        axes.set_title(title, fontsize=10, loc="left")
        for place, (cluster, values) in enumerate(series.items()):
            axes.plot(times_s, values, color=OKABE_ITO[place], label=cluster, linewidth=1)
        axes.grid(alpha=0.3)
    together.set_ylim(alone.get_ylim())
    rates.legend(ncols=5, frameon=False, fontsize=8, title="cluster", title_fontsize=8)
    near.set_xlabel("time, s")


def draw_acceptance(data: dict[str, Any], figure: Figure) -> None:
    """Draws a panel for each cluster."""
    clusters = list(data["p"])
    figure.set_size_inches(9, 1.5 * len(clusters) + 0.6)
    panels = figure.subplots(len(clusters), 1, sharex=True, sharey=True)
    for place, (cluster, axes) in enumerate(zip(clusters, panels, strict=True)):
        color = OKABE_ITO[place % len(OKABE_ITO)]
        axes.plot(data["times_s"], data["r"][cluster], color=color, alpha=0.4, linewidth=1)
        axes.plot(data["times_s"], data["p"][cluster], color=color, linewidth=1)
        axes.set_ylabel(cluster, rotation=0)
        axes.set_ylim(0, 1.05)
        axes.grid(alpha=0.3)
    panels[0].set_title("P (strong) and R (pale)", fontsize=10, loc="left")
    panels[-1].set_xlabel("time, s")


def draw_system_times(data: dict[str, Any], figure: Figure) -> None:
    """Draws ranges on top, speed-ups below."""
    figure.set_size_inches(9, 6.5)
    times, factors = figure.subplots(2, 1)
    run = data["runs"][0]
    clusters = list(data["speedup_per_cluster"])
    times.set_yscale("log")
    times.set_title(
        f"system time, ms: least to mean + std, mean, greatest (seed {run['seed']})",
        fontsize=10,
        loc="left",
    )
    for side, color, offset in (("isolated", ISOLATED, -0.12), ("networked", NETWORKED, 0.12)):
        for x, cluster in enumerate(clusters):
            own = run["per_cluster"][side][cluster]
            top = own["mean"] + own["std"]
            label = side if x == 0 else None
            at = [x + offset, x + offset]
            # No bars: on a logarithmic axis they would begin anywhere.
            times.plot(at, [own["min"], own["max"]], color=color, linewidth=1)
            times.plot(
                at,
                [own["min"], top],
                color=color,
                linewidth=5,
                alpha=0.5,
                label=label,
                solid_capstyle="butt",
            )
            times.plot(at[:1], [own["mean"]], marker="o", color=color)
            times.plot(at[:1], [own["max"]], marker="_", color=color, markersize=10)
    times.legend(frameon=False)
    _groups(times, clusters)
    plain_ticks(times.yaxis)
    _draw_speedups(factors, data["speedup_per_cluster"])
    factors.set_title("isolated divided by networked", fontsize=10, loc="left")


def draw_larger(data: dict[str, Any], figure: Figure) -> None:
    """Draws a panel for each topology of figure 8, and one for all of each topology."""
    figure.set_size_inches(9, 8)
    ten, twenty, all_of = figure.subplots(3, 1)
    for axes, name in ((ten, "chord10"), (twenty, "chord20")):
        found = data["topologies"][name]
        _draw_speedups(axes, found["speedup_per_cluster"])
        axes.set_title(f"{name}: isolated divided by networked", fontsize=10, loc="left")
    _draw_speedups(all_of, {n: t["speedup"] for n, t in data["topologies"].items()})
    all_of.set_title("all populations together", fontsize=10, loc="left")


def draw_hops(data: dict[str, Any], figure: Figure) -> None:
    """Draws stacked shares of the forwarded requests, by population."""
    figure.set_size_inches(9, 3.6)
    axes = figure.subplots()
    clusters = list(data["hops"])
    most = max(int(h) for own in data["hops"].values() for h in own)
    floor = [0.0] * len(clusters)
    for hop in range(1, most + 1):
        shares = [100 * own.get(str(hop), 0) / sum(own.values()) for own in data["hops"].values()]
        color = OKABE_ITO[(hop - 1) % len(OKABE_ITO)]
        axes.bar(range(len(clusters)), shares, 0.7, bottom=floor, color=color, label=str(hop))
        floor = [low + share for low, share in zip(floor, shares, strict=True)]
    axes.set_title("forwarded requests, % of the population's", fontsize=10, loc="left")
    _groups(axes, clusters)
    axes.set_ylim(top=axes.get_ylim()[1] * 1.25)
    axes.legend(ncols=most, frameon=False, fontsize=8, title="times", title_fontsize=8)


def _draw_speedups(axes: Axes, by_name: dict[str, dict[str, dict[str, float]]]) -> None:
    width = 0.6 / len(SPEEDUPS)
    for place, statistic in enumerate(SPEEDUPS):
        offset = -0.3 + width * (place + 0.5)
        found = [own[statistic] for own in by_name.values()]
        middle = [one["median"] for one in found]
        reach = [
            [one["median"] - one["min"] for one in found],
            [one["max"] - one["median"] for one in found],
        ]
        at = [x + offset for x in range(len(found))]
        axes.errorbar(
            at, middle, reach, fmt="o", color=OKABE_ITO[place], markersize=5, elinewidth=1.2,
            capsize=2, label=statistic,
        )  # fmt: skip
    axes.axhline(1, color="#666666", linewidth=0.8)
    axes.set_yscale("log")
    _groups(axes, list(by_name))
    axes.set_ylim(top=axes.get_ylim()[1] * 3)  # room for the legend
    axes.legend(ncols=len(SPEEDUPS), frameon=False, fontsize=8, loc="upper right")
    plain_ticks(axes.yaxis, suffix="\N{MULTIPLICATION SIGN}")


def _groups(axes: Axes, names: list[str]) -> None:
    """A place for each, without lines that would look like values."""
    axes.set_xticks(range(len(names)), names)
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.grid(visible=False, axis="x")
    axes.grid(axis="y", alpha=0.3)
