"""The common part of both engines of `sim probing`: the access probabilities, the length of the
warm-up, and the figures of the batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from random import Random
from typing import Any, NamedTuple

from spillover.model.errors import InputError
from spillover.sim.queue.system import SOURCE, ProbingFigures, ProbingSystem

BATCHES = 30
STUDENT_T = 2.045229642132703
"""The 97.5 % quantile of Student's law with BATCHES - 1 degrees of freedom."""
WARM_UP_SHARE = 0.1
"""The share of warm-up objects; they are handed out before the first batch and counted nowhere."""
WARM_UP_ROUNDS = 10
"""The warm-up is at least so many objects for each consumer and each place in a buffer."""

Row = list[tuple[int, float]]
"""Producers that a consumer may probe, with their access probabilities."""


class Sums(NamedTuple):
    """Over one batch, in the order of the kernel's. Waits and hops are of the requests that got
    their object in it, probes and empty ones of the probes that arrived in it; `producing` is time
    by production rate, `consumed` by consumers."""

    waits: float
    hops: float
    probes: float
    empty: float
    time: float
    producing: float
    consumed: float


@dataclass(frozen=True, slots=True)
class ProbingRun:
    """The measurements of a simulation. `ci95` is half the width of each figure's 95 % interval."""

    figures: ProbingFigures
    ci95: ProbingFigures
    objects: int

    def as_dict(self) -> dict[str, Any]:
        """Returns the object that `sim probing --json` prints."""
        return {**asdict(self.figures), "ci95": asdict(self.ci95), "objects": self.objects}


def check_objects(objects: int) -> None:
    """Raise InputError for fewer objects than batches."""
    if objects < BATCHES:
        expected = f"expected at least {BATCHES}, one for each batch, got {objects}"
        raise InputError(SOURCE, "objects", expected)


def access_rows(system: ProbingSystem, random: Random) -> list[Row]:
    """Returns who may probe whom: one row for all consumers alike, or one row for each.

    Restricted access is spread evenly: consumer by consumer takes, at random, producers that the
    fewest others have taken, so that no two producers differ by more than one consumer.
    """
    if not system.is_restricted:
        shares = [kind.access / kind.count for kind in system.kinds for _ in range(kind.count)]
        return [list(enumerate(shares))]
    width = system.probed
    taken = [0] * system.producers
    rows = []
    for _ in range(system.consumers):
        order = sorted(range(system.producers), key=lambda j: (taken[j], random.random()))
        row = sorted(order[:width])
        for j in row:
            taken[j] += 1
        rows.append([(j, 1.0 / width) for j in row])
    return rows


def warm_up(system: ProbingSystem, objects: int) -> int:
    """Returns how many objects are handed out before the first batch."""
    places = system.consumers + system.producers * system.buffers
    return max(math.ceil(WARM_UP_SHARE * objects), WARM_UP_ROUNDS * places)


def sum_up(system: ProbingSystem, objects: int, batches: Sequence[tuple[int, Sums]]) -> ProbingRun:
    """Figures are of all batches together; intervals from how the batches differ."""
    per_batch = [_figures(system, count, sums) for count, sums in batches]
    sums_of_all = Sums(*map(math.fsum, zip(*(sums for _, sums in batches), strict=True)))
    widths = {}
    for field in fields(ProbingFigures):
        values = [getattr(figures, field.name) for figures in per_batch]
        mean = math.fsum(values) / BATCHES
        variance = math.fsum((value - mean) ** 2 for value in values) / (BATCHES - 1)
        widths[field.name] = STUDENT_T * math.sqrt(variance / BATCHES)
    return ProbingRun(
        figures=_figures(system, objects, sums_of_all),
        ci95=ProbingFigures(**widths),
        objects=objects,
    )


def _figures(system: ProbingSystem, objects: int, sums: Sums) -> ProbingFigures:
    return ProbingFigures(
        probes_mean=sums.hops / objects,
        wait_mean=sums.waits / objects,
        # The objects of a small batch may all have been on their way when it began.
        empty_probability=sums.empty / sums.probes if sums.probes else 0.0,
        producer_utilization=sums.producing / (system.capacity * sums.time),
        consumer_utilization=sums.consumed / (system.consumers * sums.time),
        throughput=objects / sums.time,
    )
