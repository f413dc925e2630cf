"""What came of the requests of each type, where a topology has unlike servers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from spillover.model.errors import InputError
from spillover.model.request import Answer
from spillover.model.schedule import Schedule
from spillover.model.statistics import summarize
from spillover.model.topology import Topology

_SHOWN_MAX = 8
"""Types that a message names before it leaves the rest out."""


@dataclass(slots=True)
class TypeCounts:
    """Of one type. Times are in milliseconds."""

    outcomes: Counter[str] = field(default_factory=Counter)
    blocked: int = 0
    """Refused because no server that fits had a token."""
    system_time_ms: list[float] = field(default_factory=list)
    queued_ms: list[float] = field(default_factory=list)
    """How long they waited before their service began."""

    def done(self, answer: Answer) -> None:
        self.system_time_ms.append(answer.total_s * 1e3)
        self.queued_ms.append(answer.queued_s * 1e3)

    def as_dict(self) -> dict[str, Any]:
        """Returns what `per_type` has of it; `blocked` is a share."""
        requests = self.outcomes.total()
        return {
            "requests": requests,
            "outcomes": dict(self.outcomes),
            "blocked": self.blocked / requests if requests else 0.0,
            "system_time_ms": summarize(self.system_time_ms),
            "queued_ms": summarize(self.queued_ms),
        }


def count_types(topology: Topology, schedule: Schedule) -> dict[str, TypeCounts]:
    """Returns a place for the counts of each type that the schedule has, none of it counted yet;
    nothing where servers are alike, which serve every type.

    Raises InputError where neither a request's home nor a neighbor serves its type, as a node
    would refuse it.
    """
    groups = topology.type_groups
    if not groups.groups:
        return {}
    counts: dict[str, TypeCounts] = {}
    checked = set()
    for arrival in schedule:
        home, kind = arrival.cluster, arrival.type
        counts.setdefault(kind, TypeCounts())
        if (home, kind) in checked:
            continue
        checked.add((home, kind))
        near = [neighbor.id for neighbor in topology.neighbors(home)]
        reached = groups.reached_from(home, near)
        if kind not in reached and groups.plain.isdisjoint({home, *near}):
            rest = ", ..." if len(reached) > _SHOWN_MAX else ""
            expected = f"expected a type that cluster {home} or a neighbor serves"
            shown = ", ".join(reached[:_SHOWN_MAX]) + rest
            raise InputError("schedule", "type", f"{expected} ({shown}), got {kind!r}")
    return counts
