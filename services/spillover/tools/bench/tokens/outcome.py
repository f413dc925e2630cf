"""What became of the jobs of a schedule, and what that says: shares blocked, by batch means, and
the mean time of a job.

Values and their arithmetic only; in which order things are measured is in `measuring`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from spillover.model.errors import RunError
from spillover.model.ids import ClusterId
from spillover.model.schedule import Schedule
from spillover.sim.tokens import BATCHES, STUDENT_T, Estimate, ratio
from spillover.tools.bench.load_process import Fates
from spillover_loadgen.record import Outcome

ALL = "all"
"""Every job, whatever its type."""

BLOCKED = "blocked"
"""The reason of an answer to a job that found no token."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job of a schedule."""

    at_s: float
    replica: ClusterId
    kind: str
    time_ms: float | None
    """Until its client had the answer; None if it was blocked."""


def jobs_of(side: str, schedule: Schedule, fates: Fates) -> list[Job]:
    """Returns what a side's fates tell. Raises RunError for a failure other than being blocked:
    figures of what is left would flatter."""
    for place, (outcome, reason) in fates.others.items():
        if (outcome, reason) != (Outcome.REFUSED, BLOCKED):
            raise RunError(f"{side}: job {place} has failed: {outcome}, {reason}")
    return [
        Job(arrival.time_s, arrival.cluster, arrival.type, None if place in fates.others else time)
        for place, (arrival, time) in enumerate(zip(schedule, fates.response_ms, strict=True))
    ]


def within(jobs: Sequence[Job], from_s: float, until_s: float) -> list[Job]:
    """Returns those that came then."""
    return [job for job in jobs if from_s <= job.at_s < until_s]


def blocking(jobs: Sequence[Job], replicas: int, from_s: float, until_s: float) -> Blocking:
    """Returns the share that was blocked of those that came then, of all jobs and by type.

    The batches are as many pieces of each replica as make at least BATCHES: replicas know nothing
    of each other, and a piece forgets how it began if it is long enough. Of more batches than that,
    intervals are 2 % too wide at most.
    """
    pieces = -(-BATCHES // replicas)
    batch_of: dict[ClusterId, int] = {}
    kinds = sorted({job.kind for job in jobs})
    arrived = {name: np.zeros(replicas * pieces) for name in (ALL, *kinds)}
    blocked = {name: np.zeros(replicas * pieces) for name in (ALL, *kinds)}
    for job in within(jobs, from_s, until_s):
        first = batch_of.setdefault(job.replica, len(batch_of) * pieces)
        batch = first + int(pieces * (job.at_s - from_s) / (until_s - from_s))
        for name in (ALL, job.kind):
            arrived[name][batch] += 1
            blocked[name][batch] += job.time_ms is None
    return Blocking(
        {name: ratio(blocked[name], arrived[name]) for name in arrived},
        {name: int(blocked[name].sum()) for name in blocked},
        {name: int(arrived[name].sum()) for name in arrived},
    )


@dataclass(frozen=True, slots=True)
class Blocking:
    """Of all jobs and of those of each type, by name."""

    shares: Mapping[str, Estimate]
    blocked: Mapping[str, int]
    arrived: Mapping[str, int]

    def errors_from(self, name: str, exact: float) -> float | None:
        """Returns by how many standard errors the share is above this one; None if it is not known
        how large they are."""
        estimate = self.shares[name]
        if not estimate.ci95 or estimate.value is None:
            return None
        return (estimate.value - exact) * STUDENT_T / estimate.ci95


def mean_time_ms(jobs: Sequence[Job], from_s: float, until_s: float) -> float:
    """Returns how long the jobs that were done took, of those that came then. Raises RunError if
    there is none."""
    times_ms = [job.time_ms for job in within(jobs, from_s, until_s) if job.time_ms is not None]
    if not times_ms:
        raise RunError("not one job was done")
    return math.fsum(times_ms) / len(times_ms)
