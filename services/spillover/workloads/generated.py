"""The workloads that are drawn: the bursts of Lai & Polak (section III) and plain Poisson arrivals.

Pure functions of their arguments. Every cluster has its own stream of random numbers, seeded by
the seed, the workload and the cluster's id, so that adding a cluster leaves the arrivals at the
others as they were, and a longer schedule begins with the shorter one. Reading schedules from
files is in `traces`.
"""

from __future__ import annotations

import math
import random
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from operator import attrgetter

from spillover.model.errors import InputError
from spillover.model.ids import ClusterId
from spillover.model.schedule import Arrival, Schedule

REQUESTS_MAX = 12_000_000
"""A schedule is held in memory: one that is expected to be longer is refused. Somewhat above ten
million, which people ask for: of schedules drawn to be that long half are longer."""

_DIGITS = 9
"""Times are rounded to a nanosecond, so that how a platform rounds a logarithm does not show."""


def _check_size(field: str, requests_expected: float) -> None:
    if requests_expected > REQUESTS_MAX:
        got = f"got one of about {requests_expected:.3g}"
        _fail(field, f"a schedule of at most {REQUESTS_MAX} requests, {got}")


def _at_least(field: str, value: float, least: float) -> None:
    if not math.isfinite(value) or value < least:
        _fail(field, f"a number of at least {least:g}, got {value:g}")


def _above_zero(field: str, value: float) -> None:
    if not math.isfinite(value) or value <= 0:
        _fail(field, f"a number above 0, got {value:g}")


def _fail(field: str, expected: str) -> None:
    raise InputError("workload", field, f"expected {expected}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstLaw:
    """How users come and what they do; the values given are the paper's.

    Raises InputError naming the value that is out of range.
    """

    base_users_per_s: float = 10.0
    burst_users_per_s: float = 50.0
    first_burst_s: float = 2.3
    burst_length_s: float = 2.0
    burst_every_s: float = 5.0
    """The burst at the cluster with index k, from 0, begins this many seconds times k later."""
    start_s: float = 0.3
    stay_s_mean: float = 0.5
    request_rate_max: float = 20.0

    def __post_init__(self) -> None:
        for field in fields(self):
            _at_least(field.name, getattr(self, field.name), 0)
        _above_zero("stay_s_mean", self.stay_s_mean)
        _above_zero("request_rate_max", self.request_rate_max)

    @property
    def peak_users_per_s(self) -> float:
        return max(self.base_users_per_s, self.burst_users_per_s)

    @property
    def requests_per_user(self) -> float:
        """Returns the mean: 5 with the paper's values."""
        return self.stay_s_mean * self.request_rate_max / 2


PAPER_BURSTS = BurstLaw()


def burst_user_rate(cluster_index: int, time_s: float, *, law: BurstLaw = PAPER_BURSTS) -> float:
    """Returns the users per second that come to the cluster with this index, from 0, at
    `time_s`."""
    if time_s < law.start_s:
        return 0.0
    burst_start_s = law.first_burst_s + law.burst_every_s * cluster_index
    if burst_start_s <= time_s < burst_start_s + law.burst_length_s:
        return law.burst_users_per_s
    return law.base_users_per_s


def bursts(
    cluster_ids: Sequence[ClusterId],
    *,
    duration_s: float,
    seed: int,
    law: BurstLaw = PAPER_BURSTS,
) -> Schedule:
    """Returns the paper's users: they come at random, stay for a while and send requests meanwhile.

    Users come to each cluster as a Poisson process whose rate is `burst_user_rate`. Each stays
    for an exponential time of mean `stay_s_mean` and sends a Poisson stream of requests whose
    rate is uniform in 0..`request_rate_max` per second. The paper calls the stay "Poisson
    distributed with average 0.5 second"; of durations only the exponential law fits that.

    Raises InputError if the duration is negative or the schedule too long to hold.
    """
    _at_least("duration_s", duration_s, 0)
    peak_requests_per_s = law.peak_users_per_s * law.requests_per_user
    _check_size("duration_s", len(cluster_ids) * peak_requests_per_s * duration_s)
    schedule: Schedule = []
    for index, cluster in enumerate(cluster_ids):
        rng = random.Random(f"{seed}/bursts/{cluster}")
        for candidate_s in _poisson_times(rng, law.peak_users_per_s, law.start_s, duration_s):
            # Thinning: candidates come at the peak rate, and a share of rate / peak are users.
            users_per_s = burst_user_rate(index, candidate_s, law=law)
            if rng.random() * law.peak_users_per_s < users_per_s:
                times_s = _user_request_times(rng, candidate_s, law)
                # Cut after drawing: what later users draw must not depend on the duration.
                schedule += [_arrival(t, cluster) for t in times_s if t < duration_s]
    return _in_order(schedule)


def bursts_duration_s(cluster_count: int) -> float:
    """Returns how long the paper measures: 45 s for 5 clusters, 70 s for 10, 120 s for 20."""
    return 5.0 * cluster_count + 20.0


def poisson(
    cluster_ids: Sequence[ClusterId], *, rate_per_s: float, duration_s: float, seed: int
) -> Schedule:
    """Returns Poisson arrivals at `rate_per_s` requests per second at every cluster.

    Raises InputError naming the parameter that is out of range.
    """
    _at_least("rate_per_s", rate_per_s, 0)
    _at_least("duration_s", duration_s, 0)
    _check_size("rate_per_s, duration_s", len(cluster_ids) * rate_per_s * duration_s)
    return _in_order(
        [
            _arrival(time_s, cluster)
            for cluster in cluster_ids
            for time_s in _poisson_times(
                random.Random(f"{seed}/poisson/{cluster}"), rate_per_s, 0.0, duration_s
            )
        ]
    )


def typed(schedule: Schedule, weights: Mapping[str, float], *, seed: int) -> Schedule:
    """Returns the same schedule with a type for each request, drawn by these weights: of Poisson
    arrivals each type then has Poisson arrivals of its own."""
    streams: dict[ClusterId, random.Random] = {}
    types, cumulated = list(weights), list(accumulate(weights.values()))
    drawn = []
    for arrival in schedule:
        rng = streams.get(arrival.cluster)
        if rng is None:
            rng = streams[arrival.cluster] = random.Random(f"{seed}/types/{arrival.cluster}")
        kind = types[min(bisect(cumulated, rng.random() * cumulated[-1]), len(types) - 1)]
        drawn.append(replace(arrival, type=kind))
    return drawn


def sized(
    schedule: Schedule, spread2: float, means_ms: Mapping[ClusterId, float], *, seed: int
) -> Schedule:
    """Returns the same schedule with a service time for each request: lognormal, with the mean of
    its cluster and this squared coefficient of variation."""
    streams: dict[ClusterId, random.Random] = {}
    variance = math.log1p(spread2)
    drawn = []
    for arrival in schedule:
        name = arrival.cluster
        rng = streams.get(name)
        if rng is None:
            rng = streams[name] = random.Random(f"{seed}/sizes/{name}")
        size = rng.lognormvariate(-variance / 2.0, math.sqrt(variance))
        drawn.append(replace(arrival, service_ms=round(means_ms[name] * size, _DIGITS)))
    return drawn


def stretch(schedule: Schedule, time_scale: float) -> Schedule:
    """Returns the same schedule with all times and service times multiplied by `time_scale`."""
    _above_zero("time_scale", time_scale)
    return [
        replace(
            arrival,
            time_s=arrival.time_s * time_scale,
            service_ms=None if arrival.service_ms is None else arrival.service_ms * time_scale,
        )
        for arrival in schedule
    ]


def _poisson_times(
    rng: random.Random, rate_per_s: float, start_s: float, end_s: float
) -> Iterator[float]:
    """Returns the instants of a Poisson process in [start_s, end_s)."""
    if rate_per_s == 0:
        return
    time_s = start_s + rng.expovariate(rate_per_s)
    while time_s < end_s:
        yield time_s
        time_s += rng.expovariate(rate_per_s)


def _user_request_times(rng: random.Random, arrival_s: float, law: BurstLaw) -> list[float]:
    """Returns when a user that comes at `arrival_s` sends requests, over the whole stay."""
    leaves_s = arrival_s + rng.expovariate(1 / law.stay_s_mean)
    rate_per_s = law.request_rate_max * (1 - rng.random())
    return list(_poisson_times(rng, rate_per_s, arrival_s, leaves_s))


def _arrival(time_s: float, cluster: ClusterId) -> Arrival:
    return Arrival(round(time_s, _DIGITS), cluster)


def _in_order(schedule: Schedule) -> Schedule:
    """Returns arrivals by time; at equal times the cluster listed first comes first."""
    return sorted(schedule, key=attrgetter("time_s"))
