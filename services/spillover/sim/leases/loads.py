"""How much work each partition of the lease simulation is, and what its handlers say of it.

A handler of a partition does its load in each normal lease time, and reports it a little wrong.
What members make of that is in `core.leases.loads`.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from spillover.core.leases.records import LOAD_MAX, LOAD_UNIT
from spillover.model.errors import InputError

SKEWED = "skewed"
"""Zipf's law: the k-th partition is 1/k of the work of the first; 100 on average."""

USUAL_LOAD = 100.0


def skewed_loads(partitions: int) -> list[float]:
    """Returns loads in units of work per normal lease time."""
    harmonic = sum(1.0 / k for k in range(1, partitions + 1))
    return [USUAL_LOAD * partitions / (harmonic * k) for k in range(1, partitions + 1)]


def check_loads(loads: Sequence[float], noise: float, partitions: int) -> None:
    """Raises InputError."""
    if len(loads) != partitions:
        expected = f"expected one for each of {partitions} partitions, got {len(loads)}"
        raise InputError("leases", "loads", expected)
    for load in loads:
        if not 0.0 <= load <= LOAD_MAX / LOAD_UNIT:
            expected = f"expected numbers of 0 to {LOAD_MAX / LOAD_UNIT:g}, got {load:g}"
            raise InputError("leases", "loads", expected)
    if not 0.0 <= noise <= 1.0:
        raise InputError("leases", "load_noise", f"expected a share of 0..1, got {noise:g}")


class PartitionWork:
    """The work of all partitions. Without loads, no handler reports anything."""

    def __init__(
        self, loads: Sequence[float] | None, noise: float, normal_lease_ms: float, random: Random
    ) -> None:
        self._loads = loads
        self._noise = noise
        self._normal_lease_ms = normal_lease_ms
        self._random = random
        self._told: dict[tuple[int, float], tuple[float, float]] = {}
        """The reports of a handler's run, by partition and start: the reported work, and the time
        up to which it is."""

    def done(self, partition: int, from_ms: float, now_ms: float) -> float | None:
        """Returns all that the handler that began at `from_ms` has reported; what it adds to it now
        is wrong by a share drawn from -noise..noise."""
        if self._loads is None:
            return None
        run = partition, from_ms
        told, since_ms = self._told.get(run, (0.0, from_ms))
        periods = (now_ms - since_ms) / self._normal_lease_ms
        wrong = self._noise * (2.0 * self._random.random() - 1.0)
        told += self._loads[partition] * periods * (1.0 + wrong)
        self._told[run] = told, now_ms
        return told

    def over_mean_max(self, owners: Sequence[int | None], nodes: Sequence[int]) -> float | None:
        """Returns the largest sum of true loads over these nodes' mean; None where there is nothing
        to compare. `owners`: of each partition."""
        if self._loads is None or not nodes or not sum(self._loads):
            return None
        held = dict.fromkeys(nodes, 0.0)
        for load, owner in zip(self._loads, owners, strict=True):
            if owner in held:
                held[owner] += load
        return max(held.values()) * len(nodes) / sum(self._loads)
