"""The object of contract section 3, `sim overflow`: the same for every engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

from spillover.model.ids import ClusterId
from spillover.model.topology import Topology

Summary: TypeAlias = dict[str, float | None]
"""As `model.statistics.summarize` gives it."""


class Run(Protocol):
    """What there is to tell of a run, besides its system times."""

    topology: Topology
    hops: dict[ClusterId, Counter[int]]
    outcomes: Counter[str]
    ended: int
    queue_length_max: int
    reports: int
    events: int
    faults: int
    wall_s: float


def run_as_dict(
    run: Run,
    engine: str,
    policy: str,
    every_ms: Summary,
    per_cluster_ms: Mapping[ClusterId, Summary],
) -> dict[str, Any]:
    """Returns the object; the summaries are of the system times, of all and by home cluster."""
    all_hops: Counter[int] = sum(run.hops.values(), Counter())
    answered = all_hops.total()
    return {
        "engine": engine,
        "topology": run.topology.name,
        "policy": policy,
        "requests": run.ended,
        "outcomes": dict(run.outcomes),
        "faults": run.faults,
        "system_time_ms": every_ms,
        "per_cluster": {
            cluster: {"system_time_ms": summary, "hops": _hops_as_dict(run.hops[cluster])}
            for cluster, summary in per_cluster_ms.items()
        },
        "forwarded_share": (answered - all_hops[0]) / answered if answered else 0.0,
        "hops": _hops_as_dict(all_hops),
        "queue_length_max": run.queue_length_max,
        "reports": run.reports,
        "events": run.events,
        "requests_per_s": run.ended / run.wall_s if run.wall_s else 0.0,
    }


def _hops_as_dict(hops: Counter[int]) -> dict[str, int]:
    return {str(count): hops[count] for count in sorted(hops)}
