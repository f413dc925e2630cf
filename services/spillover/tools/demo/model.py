"""What a demo gave, as plain values: the input of the report.

Times are as measured, so that a run at a time scale of 2 shows everything twice as long; the
simulated values are of the same stretched topology. Nothing is computed or drawn here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spillover.model.topology import Topology


@dataclass(slots=True, frozen=True)
class Sample:
    """What all clusters showed at one moment, each by cluster id."""

    time_s: float
    """Since the start of the schedule."""
    queue_length: dict[str, int]
    accept_probability: dict[str, float]
    neighborhood_accept_probability: dict[str, float]
    forwards: dict[str, int]
    """Handed to a neighbor since the start."""


@dataclass(slots=True, frozen=True)
class RunResult:
    """One run of the schedule under one policy."""

    policy: str
    load: dict[str, Any]
    """The load generator's object (contract section 3), with `kept_up`."""
    samples: list[Sample]
    """In order of time."""


@dataclass(slots=True, frozen=True)
class DemoResult:
    """The same schedule twice, isolated and networked, and what the simulator says of both."""

    topology: Topology
    """As it ran: its durations are already multiplied by `time_scale`."""
    seed: int
    time_scale: float
    duration_s: float
    isolated: RunResult
    networked: RunResult
    simulated: dict[str, dict[str, Any]]
    """`isolated` and `networked`, each an object of `sim overflow` (contract section 3). Where the
    networked run has another policy than the default one, that too, by its name."""
    ledgers_balanced: bool
    user_rates: dict[str, list[tuple[float, float]]]
    """By cluster id: from `time_s` on, so many users per second."""
    finished_at: str
    """Date and time as the report shows it."""
