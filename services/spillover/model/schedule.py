"""A schedule: which request is meant to reach which cluster when.

Load generators send it, the simulator replays it; the same schedule makes the two comparable.
How schedules are drawn or read from files is in `spillover_loadgen`.
"""

from __future__ import annotations

from dataclasses import dataclass

from spillover.model.ids import ClusterId


@dataclass(frozen=True, slots=True)
class Arrival:
    """One intended request: `time_s` counts from the start of the schedule."""

    time_s: float
    cluster: ClusterId
    service_ms: float | None = None
    """The request's own service time, None for the cluster's."""
    type: str = "default"
    id: str | None = None


Schedule = list[Arrival]
"""In order of time."""
