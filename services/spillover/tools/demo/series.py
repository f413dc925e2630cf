"""Numbers taken from a demo's samples and summaries, ready to draw or to tell.

Pure functions of `demo.model`; drawing is in `figures`, wording in `report`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from spillover.tools.demo.model import DemoResult, RunResult, Sample

Points = list[tuple[float, float]]
"""Time in s and a value, in order of time."""

POINTS_MAX = 400
"""More than a screen can show side by side, and few enough for a small file."""


def points(samples: Sequence[Sample], value: Callable[[Sample], float | None]) -> Points:
    """Returns one value of each sample that has it, thinned to about `POINTS_MAX` points."""
    found = [(sample.time_s, value(sample)) for sample in samples]
    return thin([(time_s, number) for time_s, number in found if number is not None])


def thin(series: Points) -> Points:
    """Returns at most `POINTS_MAX` points: of each stretch of time the lowest and the highest stay,
    so that no peak is lost."""
    if len(series) <= POINTS_MAX:
        return series
    bins = POINTS_MAX // 2
    kept: Points = []
    for index in range(bins):
        part = series[index * len(series) // bins : (index + 1) * len(series) // bins]
        low, high = min(part, key=_value), max(part, key=_value)
        kept += sorted({low, high})
    return kept


def longest_queue(run: RunResult) -> int:
    """Returns the most requests seen waiting in one cluster."""
    return max((n for sample in run.samples for n in sample.queue_length.values()), default=0)


def longest_pile_up_s(result: DemoResult, run: RunResult) -> float:
    """Returns for how long, at worst, one cluster had more than two requests waiting for each
    server."""
    return max(
        _longest_above_s(run.samples, c.id, 2 * c.server_count) for c in result.topology.clusters
    )


def shared_hop_count(run: RunResult) -> int:
    """Returns the largest number of times that any request was forwarded."""
    counts = [hops_of(run, cluster_id) for cluster_id in run.load.get("per_cluster", {})]
    return max((hops for count in counts for hops in count), default=0)


def hops_of(run: RunResult, cluster_id: str) -> dict[int, int]:
    """Returns how many requests of a population were forwarded how many times."""
    found = run.load.get("per_cluster", {}).get(cluster_id, {}).get("hops", {})
    return {int(hops): int(count) for hops, count in found.items()}


def system_time_of(report: Mapping[str, object], cluster_id: str | None) -> dict[str, float | None]:
    """Returns the summary of system times in a load or simulator object: of one population, or of
    all.

    Empty where there is none.
    """
    part: object = report
    if cluster_id is not None:
        clusters = report.get("per_cluster")
        part = clusters.get(cluster_id) if isinstance(clusters, Mapping) else None
    summary = part.get("system_time_ms") if isinstance(part, Mapping) else None
    return dict(summary) if isinstance(summary, Mapping) else {}


def _longest_above_s(samples: Sequence[Sample], cluster_id: str, limit: int) -> float:
    longest = current = 0.0
    for before, after in pairwise(samples):
        above = before.queue_length.get(cluster_id, 0) > limit
        current = current + after.time_s - before.time_s if above else 0.0
        longest = max(longest, current)
    return longest


def _value(point: tuple[float, float]) -> float:
    return point[1]
