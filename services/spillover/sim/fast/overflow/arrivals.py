"""Arrivals as flat arrays, for schedules of very many requests: from a list, or Poisson.

What the load generator draws is its own; here is only what a kernel can take.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spillover.model.errors import InputError
from spillover.model.schedule import Schedule
from spillover.model.topology import Topology
from spillover.sim.engine.world import stream


@dataclass(frozen=True, slots=True)
class ArrivalArrays:
    """Requests in order of time: entry i of each array is request i.

    time_s      from the start, not descending
    cluster     index of the home among `Topology.clusters`
    service_ms  of each request, NaN for the server's own; None if it is that for all
    """

    time_s: NDArray[np.float64]
    cluster: NDArray[np.int32]
    service_ms: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.time_s)

    def check(self, topology: Topology) -> None:
        """Raise InputError where the arrays do not fit each other or the topology."""
        count, clusters = len(self.time_s), len(topology.clusters)
        lengths = {len(self.cluster), count if self.service_ms is None else len(self.service_ms)}
        if lengths != {count}:
            raise InputError("schedule", "", "expected arrays of one length")
        if count == 0:
            return
        if not (np.isfinite(self.time_s).all() and self.time_s[0] >= 0):
            raise InputError("schedule", "time_s", "expected numbers of at least 0")
        descents = np.flatnonzero(np.diff(self.time_s) < 0)
        if len(descents):
            row = int(descents[0]) + 1
            expected = f"expected times that do not descend, got a descent at request {row}"
            raise InputError("schedule", "time_s", expected)
        if not (self.cluster.min() >= 0 and self.cluster.max() < clusters):
            raise InputError("schedule", "cluster", f"expected 0 to {clusters - 1}")
        if self.service_ms is not None and (self.service_ms < 0).any():
            raise InputError("schedule", "service_ms", "expected numbers of at least 0")


def arrays_of(schedule: Schedule, topology: Topology) -> ArrivalArrays:
    """Returns the arrays of a schedule. InputError if it names a cluster that the topology
    lacks."""
    place = {cluster: x for x, cluster in enumerate(topology.cluster_ids)}
    for cluster in {arrival.cluster for arrival in schedule} - place.keys():
        names = ", ".join(place)
        raise InputError("schedule", "cluster", f"expected one of {names}, got {cluster!r}")
    count = len(schedule)
    service_ms = None
    if any(arrival.service_ms is not None for arrival in schedule):
        times_ms = (np.nan if a.service_ms is None else a.service_ms for a in schedule)
        service_ms = np.fromiter(times_ms, np.float64, count)
    return ArrivalArrays(
        np.fromiter((arrival.time_s for arrival in schedule), np.float64, count),
        np.fromiter((place[arrival.cluster] for arrival in schedule), np.int32, count),
        service_ms,
    )


def poisson_arrays(
    topology: Topology, *, rate_per_s: float, requests: int, seed: int
) -> ArrivalArrays:
    """So many requests that come to each cluster as a Poisson process of this rate.

    Drawn as one process of the summed rate whose requests choose their homes evenly, which is the
    same law; not the numbers that the load generator draws.
    """
    clusters = len(topology.clusters)
    random = np.random.default_rng(stream(seed, "fast/poisson").getrandbits(64))
    time_s = random.exponential(1.0 / (rate_per_s * clusters), requests)
    np.cumsum(time_s, out=time_s)
    return ArrivalArrays(time_s, random.integers(clusters, size=requests, dtype=np.int32))
