"""The tables of the report as HTML: system times, speed-ups, numbers of forwards.

Every text is escaped here; what surrounds the tables is in `report`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape

from spillover.tools.demo.model import DemoResult
from spillover.tools.demo.series import hops_of, shared_hop_count, system_time_of
from spillover.tools.demo.speedup import SPEEDUP_FIELDS, speedups

MISSING = "\N{EN DASH}"
_STATISTICS = {"mean": "mean", "max": "max", "min": "min", "std": "std"}
_RUNS = ("isolated", "networked")


def milliseconds(value: float | None) -> str:
    """A duration with about three digits, or a dash."""
    if value is None:
        return MISSING
    decimals = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{decimals}f}"


def factor(value: float | None) -> str:
    """A speed-up with one decimal, or a dash."""
    return MISSING if value is None else f"{value:.1f}\N{MULTIPLICATION SIGN}"


def system_times_table(result: DemoResult) -> str:
    """Figure 7 in numbers: measured system times, the simulated ones below each."""
    heads = "".join(
        f'<th class="{run}" colspan="{len(_STATISTICS)}" scope="colgroup">{run}</th>'
        for run in _RUNS
    )
    names = "".join(f'<th scope="col">{name}</th>' for name in _STATISTICS.values()) * 2
    rows = []
    for cluster_id in _populations(result):
        cells = ""
        for run in _RUNS:
            live, simulated = _summaries(result, run, cluster_id)
            for field in _STATISTICS:
                below = milliseconds(simulated.get(field))
                cells += _cell(milliseconds(live.get(field)), below)
        rows.append(_row(cluster_id, cells))
    return _table(
        "System time in ms: measured, and simulated below it in small print",
        f'<tr><th scope="col" rowspan="2">users of</th>{heads}</tr><tr>{names}</tr>',
        rows,
    )


def speedups_table(result: DemoResult) -> str:
    """The speed-ups of the four statistics, measured, the simulated ones below each."""
    names = "".join(f'<th scope="col">{_STATISTICS[field]}</th>' for field in SPEEDUP_FIELDS)
    rows = []
    for cluster_id in _populations(result):
        isolated, networked = (_summaries(result, run, cluster_id) for run in _RUNS)
        live = speedups(isolated[0], networked[0])
        simulated = speedups(isolated[1], networked[1])
        cells = "".join(_cell(factor(live[f]), factor(simulated[f])) for f in SPEEDUP_FIELDS)
        rows.append(_row(cluster_id, cells))
    return _table(
        "Speed-up: measured, and simulated below it in small print",
        f'<tr><th scope="col">users of</th>{names}</tr>',
        rows,
    )


def forwards_table(result: DemoResult) -> str:
    """Figure 9 in numbers: how many requests were forwarded how many times, as a heat map."""
    columns = range(shared_hop_count(result.networked) + 1)
    names = "".join(f'<th scope="col">{hops}\N{MULTIPLICATION SIGN}</th>' for hops in columns)
    by_cluster = {i: hops_of(result.networked, i) for i in result.topology.cluster_ids}
    most = max((n for counts in by_cluster.values() for n in counts.values()), default=0)
    rows = []
    for cluster_id, counts in by_cluster.items():
        cells = "".join(_heat_cell(counts.get(hops, 0), most) for hops in columns)
        rows.append(_row(cluster_id, cells))
    totals = [sum(counts.get(hops, 0) for counts in by_cluster.values()) for hops in columns]
    rows.append(_row(None, "".join(f"<td>{total}</td>" for total in totals)))
    return _table(
        "Requests by the number of times they were forwarded, networked queues",
        f'<tr><th scope="col">users of</th>{names}</tr>',
        rows,
    )


def _populations(result: DemoResult) -> list[str | None]:
    return [*result.topology.cluster_ids, None]


def _summaries(
    result: DemoResult, run: str, cluster_id: str | None
) -> tuple[Mapping[str, float | None], Mapping[str, float | None]]:
    live = result.isolated if run == "isolated" else result.networked
    simulated = result.simulated.get(run, {})
    return system_time_of(live.load, cluster_id), system_time_of(simulated, cluster_id)


def _cell(measured: str, simulated: str) -> str:
    return f'<td>{measured}<small title="simulated">{simulated}</small></td>'


def _heat_cell(count: int, most: int) -> str:
    if not count:
        return "<td></td>"
    # Logarithmic, so that the few that went far can be seen beside the many that stayed.
    heat = math.log1p(count) / math.log1p(most)
    return f'<td class="heat" style="--heat: {heat:.2f}">{count}</td>'


def _row(cluster_id: str | None, cells: str) -> str:
    if cluster_id is None:
        return f'<tr class="all"><th scope="row">all</th>{cells}</tr>'
    return f'<tr><th scope="row">{escape(cluster_id)}</th>{cells}</tr>'


def _table(caption: str, head: str, rows: list[str]) -> str:
    body = "\n".join(rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f"<table><caption><span>{escape(caption)}</span></caption>\n"
        f"<thead>{head}</thead>\n<tbody>{body}</tbody></table></div>"
    )
