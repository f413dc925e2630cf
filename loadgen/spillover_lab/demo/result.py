"""What a demo gave, and the numbers taken from it: the input of tables, figures and report.

Times are as measured, so that a run at a time scale of 2 shows everything twice as long; the
simulated values are of the same stretched topology. Nothing is drawn here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from spillover.model.topology import Topology

SPEEDUP_FIELDS = ("mean", "max", "min", "std")
POINTS_MAX = 400
"""More than a screen can show side by side, and few enough for a small file."""

Summary: TypeAlias = Mapping[str, float | None]
Row: TypeAlias = tuple[str | None, list[tuple[float | None, float | None]]]
"""A population, None for all of them, and pairs of what was measured and simulated."""
Points: TypeAlias = list[tuple[float, float]]
"""Time in s and a value, in order of time."""


@dataclass(slots=True, frozen=True)
class Sample:
    """What all clusters showed at one moment, each by cluster id."""

    time_s: float
    """Since the start of the schedule."""
    queue_length: dict[str, int]
    accept_probability: dict[str, float]
    neighborhood_accept_probability: dict[str, float]


@dataclass(slots=True, frozen=True)
class RunResult:
    """One run of the schedule under one policy."""

    policy: str
    load: dict[str, Any]
    """The object of `spillover-loadgen run --json`, with `kept_up`."""
    samples: list[Sample]
    """In order of time."""

    def points(self, value: Callable[[Sample], float | None]) -> Points:
        """Returns one value of each sample that has it, at most POINTS_MAX: of each stretch of time
        the lowest and the highest stay, so that no peak is lost."""
        found = [(sample.time_s, value(sample)) for sample in self.samples]
        series = [(time_s, number) for time_s, number in found if number is not None]
        if len(series) <= POINTS_MAX:
            return series
        kept: Points = []
        bins = POINTS_MAX // 2
        for index in range(bins):
            part = series[index * len(series) // bins : (index + 1) * len(series) // bins]
            kept += sorted({min(part, key=_value), max(part, key=_value)})
        return kept

    @property
    def longest_queue(self) -> int:
        """Returns the most requests seen waiting in one cluster."""
        return max((n for one in self.samples for n in one.queue_length.values()), default=0)

    @property
    def hops_max(self) -> int:
        """Returns the largest number of times that any request was forwarded."""
        counts = [self.hops_of(cluster_id) for cluster_id in self.load.get("per_cluster", {})]
        return max((hops for count in counts for hops in count), default=0)

    def hops_of(self, cluster_id: str) -> dict[int, int]:
        """Returns how many requests of a population were forwarded how many times."""
        found = self.load.get("per_cluster", {}).get(cluster_id, {}).get("hops", {})
        return {int(hops): int(count) for hops, count in found.items()}

    def pile_up_s(self, topology: Topology) -> float:
        """Returns for how long, at worst, one cluster had more than two requests waiting for each
        server."""
        longest = 0.0
        for cluster in topology.clusters:
            current = 0.0
            for before, after in pairwise(self.samples):
                above = before.queue_length.get(cluster.id, 0) > 2 * cluster.server_count
                current = current + after.time_s - before.time_s if above else 0.0
                longest = max(longest, current)
        return longest


@dataclass(slots=True, frozen=True)
class DemoResult:
    """The same schedule twice, isolated and networked, and what the simulator says of both."""

    topology: Topology
    """The topology as it ran: its durations are already multiplied by `time_scale`."""
    seed: int
    time_scale: float
    duration_s: float
    isolated: RunResult
    networked: RunResult
    simulated: dict[str, dict[str, Any]]
    """`isolated` and `networked`, each an object of `sim overflow --json`. Where the
    networked run has another policy than the default one, that too, by its name."""
    ledgers_balanced: bool
    user_rates: dict[str, list[tuple[float, float]]]
    """The users per second by cluster id: pairs of the time from which on, and how many."""
    finished_at: str
    """Date and time as the report shows it."""

    def times_of(self, population: str | None) -> tuple[Summary, Summary]:
        """Returns the system times of a population, or of all: isolated and networked."""
        runs = (self.isolated, self.networked)
        isolated, networked = (system_time_of(run.load, population) for run in runs)
        return isolated, networked

    def simulated_times_of(self, population: str | None) -> tuple[Summary, Summary]:
        """Returns the same, as simulated."""
        names = ("isolated", "networked")
        found = [system_time_of(self.simulated.get(name, {}), population) for name in names]
        return found[0], found[1]

    def _populations(self) -> Iterator[tuple[str | None, tuple[Summary, ...], tuple[Summary, ...]]]:
        for population in (*self.topology.cluster_ids, None):
            yield population, self.times_of(population), self.simulated_times_of(population)

    @property
    def system_time_rows(self) -> list[Row]:
        """Returns figure 7 in numbers: the statistics of the isolated, then of the networked run,
        in ms."""
        return [
            (
                name,
                [(a.get(f), b.get(f)) for a, b in zip(*both, strict=True) for f in SPEEDUP_FIELDS],
            )
            for name, *both in self._populations()
        ]

    @property
    def speedup_rows(self) -> list[Row]:
        """Returns the speed-ups of the same statistics."""
        rows: list[Row] = []
        for name, live, simulated in self._populations():
            one, other = speedups(*live), speedups(*simulated)
            rows.append((name, [(one[field], other[field]) for field in SPEEDUP_FIELDS]))
        return rows

    @property
    def forward_rows(self) -> list[tuple[str | None, list[Forwards]]]:
        """Returns figure 9 in numbers: how many requests were forwarded how many times, as a heat
        map."""
        columns = range(self.networked.hops_max + 1)
        by_cluster = {i: self.networked.hops_of(i) for i in self.topology.cluster_ids}
        most = max((n for counts in by_cluster.values() for n in counts.values()), default=0)
        rows: list[tuple[str | None, list[Forwards]]] = [
            (cluster_id, [_forwards(counts.get(hops, 0), most) for hops in columns])
            for cluster_id, counts in by_cluster.items()
        ]
        totals = [sum(counts.get(hops, 0) for counts in by_cluster.values()) for hops in columns]
        return [*rows, (None, [Forwards(total, None) for total in totals])]


class Forwards(NamedTuple):
    """How many requests, and 0..1 by how many these are; None in a sum."""

    requests: int
    heat: float | None


def _forwards(requests: int, most: int) -> Forwards:
    # Logarithmic, so that the few that went far can be seen beside the many that stayed.
    return Forwards(requests, math.log1p(requests) / math.log1p(most) if requests else 0.0)


def _value(point: tuple[float, float]) -> float:
    return point[1]


def system_time_of(report: Mapping[str, Any], population: str | None) -> dict[str, float | None]:
    """Returns the summary of system times in a load or simulator object: of one population, or of
    all. It is empty where there is none."""
    part = report if population is None else report.get("per_cluster", {}).get(population, {})
    return dict(part.get("system_time_ms", {}))


def speedups(isolated: Summary, networked: Summary) -> dict[str, float | None]:
    """Returns isolated over networked for each of SPEEDUP_FIELDS (Lai & Polak, section III); above
    1 the networked run is better, None where a value is missing or the divisor is 0."""
    found: dict[str, float | None] = {}
    for field in SPEEDUP_FIELDS:
        one, other = isolated.get(field), networked.get(field)
        found[field] = one / other if one is not None and other else None
    return found
