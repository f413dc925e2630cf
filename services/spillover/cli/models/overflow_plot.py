"""The picture of `sim overflow --plot` shows how long requests took, by policy."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillover.cli.models.plotting import OKABE_ITO, plain_ticks
from spillover.model.errors import InputError
from spillover.model.extras import check_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".pdf", ".png", ".svg")


def check_plot_file(file: str) -> Path:
    """Returns the path, if a picture can be written there. Raises InputError."""
    path = Path(file)
    if path.suffix.lower() not in FORMATS:
        expected = f"expected a name ending in {', '.join(FORMATS)}; got {file!r}"
        raise InputError("--plot", "", expected)
    if not path.parent.is_dir() or path.is_dir() or not os.access(path.parent, os.W_OK):
        raise InputError("--plot", "", f"expected a file in a directory to write to; got {file!r}")
    # Of an installation by hand one may be there without the other.
    check_extra("drawing", "report", "matplotlib", "numpy")
    return path


def draw_runs(runs: Mapping[str, Any], path: Path) -> None:
    """Draw on the left the share of requests that took longer than a time; on the right mean and
    p99 by home."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.4), layout="constrained")
    shares, homes = figure.subplots(1, 2)
    shares.set(xscale="log", yscale="log", xlabel="system time, ms")
    homes.set(yscale="log", xlabel="home")
    for place, (policy, run) in enumerate(runs.items()):
        color = OKABE_ITO[place % len(OKABE_ITO)]
        _draw_shares(shares, policy, run, color)
        _draw_homes(homes, place, len(runs), run, color)
    shares.set_title("share of requests that took longer")
    shares.legend(frameon=False)
    homes.set_title("system time, ms: mean (dot) to p99 (dash)")
    for axes in (shares, homes):
        axes.grid(axis="both" if axes is shares else "y", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        plain_ticks(axes.yaxis, suffix=" %" if axes is shares else "")
    plain_ticks(shares.xaxis)
    whole = next(iter(runs.values()))
    figure.suptitle(f"{whole.topology.name}: {whole.ended} requests")
    partial = path.with_name(f".{path.name}.part")
    figure.savefig(partial, format=path.suffix[1:].lower(), dpi=150)
    partial.replace(path)


def _draw_shares(axes: Axes, policy: str, run: Any, color: str) -> None:
    import numpy as np

    times = np.sort(np.concatenate([np.asarray(t) for t in run.system_time_ms.values()]))
    if not len(times):
        return
    longer = 100.0 * (1.0 - np.arange(1, len(times) + 1) / (len(times) + 1))  # percent
    # A few thousand points draw the same line as a few million.
    last = len(times) - 1
    shown = np.unique(np.r_[np.linspace(0, last, 2000).astype(int), max(0, last - 2000) : last + 1])
    axes.step(times[shown], longer[shown], color=color, label=policy, where="post")


def _draw_homes(axes: Axes, place: int, count: int, run: Any, color: str) -> None:
    """Draw a line from the mean to p99 for each home; bars would begin anywhere."""
    figures = run.as_dict()["per_cluster"]
    width = 0.7 / count
    for x, own in enumerate(figures.values()):
        times = own["system_time_ms"]
        if times["mean"] is None:
            continue
        at = x - 0.35 + width * (place + 0.5)
        axes.plot([at, at], [times["mean"], times["p99"]], color=color, linewidth=1.2, alpha=0.6)
        axes.plot([at], [times["mean"]], marker="o", color=color, markersize=4)
        axes.plot([at], [times["p99"]], marker="_", color=color, markersize=7, markeredgewidth=2)
    axes.set_xticks(range(len(figures)), list(figures))
