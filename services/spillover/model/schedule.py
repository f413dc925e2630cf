"""A schedule says which request is meant to reach which cluster when. Load generators send it, and
the simulator replays it; the same schedule makes the two comparable. `spillover.workloads` draws
schedules and reads them from files.
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
    """The request's own service time, or None for the cluster's."""
    type: str = "default"
    id: str | None = None


Schedule = list[Arrival]
"""Arrivals in order of time."""
