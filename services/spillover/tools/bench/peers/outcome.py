"""What became of a schedule, live or in virtual time, and the figures of it.

Values and their arithmetic only; in which order things are measured is in `measuring`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spillover.model.errors import RunError
from spillover.model.schedule import Schedule
from spillover.model.statistics import summarize
from spillover.tools.bench.model import Figure
from spillover.tools.bench.peers.workloads import GOODPUT, WAITS, Workload
from spillover_loadgen.record import Outcome, Record

_OVERLOADED = frozenset((Outcome.REFUSED, Outcome.EXPIRED, Outcome.UNKNOWN))
"""What may happen to a request with a deadline where there is more work than servers: the client
gives up some seconds after its deadline, which is `UNKNOWN`."""


@dataclass(frozen=True, slots=True)
class Done:
    """A request that was done: until the end of its service, and how often it was moved."""

    system_time_ms: float
    hops: int


Fates = Sequence[Done | None]
"""Of all requests, in the order of the schedule."""


def fates_of(side: str, workload: Workload, records: Sequence[Record]) -> Fates:
    """Returns the fates that a side's records tell. Raises RunError for a failure that none of the
    workload explains: figures of what is left would flatter."""
    allowed = frozenset((Outcome.OK,)) if workload.deadline_ms is None else _OVERLOADED
    fates: list[Done | None] = []
    for record in records:
        if record.system_time_ms is not None and record.hops is not None:
            fates.append(Done(record.system_time_ms, record.hops))
        elif record.outcome in allowed:
            fates.append(None)
        else:
            told = f"{record.outcome}, {record.reason}"
            raise RunError(f"{workload.name}, {side}: request {record.index} has failed: {told}")
    return fates


def values_of(workload: Workload, schedule: Schedule, fates: Fates) -> dict[Figure, float]:
    """Returns the workload's figures. Raises RunError if nothing was done."""
    from_s = min(workload.settled_s, schedule[-1].time_s / 2)
    counted = [
        (arrival, fate)
        for arrival, fate in zip(schedule, fates, strict=True)
        if arrival.time_s >= from_s
    ]
    done = [(arrival, fate) for arrival, fate in counted if fate is not None]
    if not done:
        raise RunError(f"{workload.name}: not one request was done")
    moved = 100 * sum(fate.hops > 0 for _, fate in done) / len(done)
    hops = 100 * sum(fate.hops for _, fate in done) / len(done)
    if workload.figures == GOODPUT:
        deadline_ms = workload.deadline_ms or 0.0
        in_time = sum(fate.system_time_ms <= deadline_ms for _, fate in done)
        firsts = [100 * in_time / len(counted)]
    else:
        less_service = workload.figures == WAITS
        summary = summarize(
            [
                fate.system_time_ms - (arrival.service_ms or 0.0) * less_service
                for arrival, fate in done
            ]
        )
        firsts = [summary[name] or 0.0 for name in ("mean", "p99", "max")]
    return dict(zip(workload.figures, (*firsts, moved, hops), strict=True))


def best_threshold(
    figure: Figure, values: Mapping[int, Sequence[Mapping[Figure, float]]]
) -> tuple[int, dict[int, float]]:
    """Returns the threshold with the best mean of a figure over all runs, the lowest of several,
    and those means."""
    means = {
        threshold: sum(run[figure] for run in runs) / len(runs)
        for threshold, runs in values.items()
    }
    best = max if figure in GOODPUT else min
    return best(sorted(means), key=lambda threshold: means[threshold]), means
