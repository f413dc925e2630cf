"""The rows of the report's tables: system times, speed-ups, numbers of forwards.

A row is the name of a user population, None for all of them, and its cells. How they look is in
`report.html.jinja`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

from spillover.tools.demo.model import DemoResult
from spillover.tools.demo.series import hops_of, shared_hop_count, system_time_of
from spillover.tools.demo.speedup import SPEEDUP_FIELDS, speedups

Summary: TypeAlias = Mapping[str, float | None]
Pair: TypeAlias = tuple[float | None, float | None]
"""Measured and simulated."""


class Forwards(NamedTuple):
    """How many requests, and 0..1 by how many these are; None in a sum."""

    requests: int
    heat: float | None


def system_time_rows(result: DemoResult) -> list[tuple[str | None, list[Pair]]]:
    """Returns figure 7 in numbers: the statistics of the isolated, then of the networked run, in
    ms."""
    return [
        (name, [(live.get(f), told.get(f)) for live, told in runs for f in SPEEDUP_FIELDS])
        for name, runs in _summaries(result)
    ]


def speedup_rows(result: DemoResult) -> list[tuple[str | None, list[Pair]]]:
    """Returns the speed-ups of the same statistics."""
    rows: list[tuple[str | None, list[Pair]]] = []
    for name, (isolated, networked) in _summaries(result):
        live, simulated = map(speedups, isolated, networked)
        rows.append((name, [(live[field], simulated[field]) for field in SPEEDUP_FIELDS]))
    return rows


def forward_rows(result: DemoResult) -> list[tuple[str | None, list[Forwards]]]:
    """Returns figure 9 in numbers: how many requests were forwarded how many times, as a heat
    map."""
    columns = range(shared_hop_count(result.networked) + 1)
    by_cluster = {i: hops_of(result.networked, i) for i in result.topology.cluster_ids}
    most = max((n for counts in by_cluster.values() for n in counts.values()), default=0)
    totals = [sum(counts.get(hops, 0) for counts in by_cluster.values()) for hops in columns]
    return [
        *(
            (cluster_id, [_forwards(counts.get(hops, 0), most) for hops in columns])
            for cluster_id, counts in by_cluster.items()
        ),
        (None, [Forwards(total, None) for total in totals]),
    ]


def _forwards(requests: int, most: int) -> Forwards:
    # Logarithmic, so that the few that went far can be seen beside the many that stayed.
    return Forwards(requests, math.log1p(requests) / math.log1p(most) if requests else 0.0)


def _summaries(result: DemoResult) -> Iterator[tuple[str | None, list[tuple[Summary, Summary]]]]:
    """Of each population: what was measured and what was simulated, isolated and networked."""
    runs = {"isolated": result.isolated, "networked": result.networked}
    for cluster_id in (*result.topology.cluster_ids, None):
        yield (
            cluster_id,
            [
                (
                    system_time_of(run.load, cluster_id),
                    system_time_of(result.simulated.get(name, {}), cluster_id),
                )
                for name, run in runs.items()
            ],
        )
