"""`spillover sim probing`: the distributed queue by its pseudo-code, with batch-means intervals.

The events are in `sim/fast/probing`, what is decided in `policy/probing`. Here: who probes whom,
how long the warm-up is, and what comes of the batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from random import Random
from typing import Any

from spillover.model.errors import InputError
from spillover.sim.engine.world import stream

# Above the kernel: it says in one line that numba is missing.
from spillover.sim.fast import compile as _numba_first  # noqa: F401
from spillover.sim.fast import queue as kernel
from spillover.sim.theory.queue.system import SOURCE, ProbingFigures, ProbingSystem

BATCHES = 30
STUDENT_T = 2.045229642132703
"""The 97.5 % quantile of Student's law with BATCHES - 1 degrees of freedom."""
WARM_UP_SHARE = 0.1
"""Of the objects asked for; they are handed out before the first batch and counted nowhere."""
WARM_UP_ROUNDS = 10
"""The warm-up is at least so many objects for each consumer and each place in a buffer."""
EVENTS_AT_ONCE = 500_000
"""Of the kernel, a fraction of a second: so soon Ctrl-C is heard and progress told."""

Row = list[tuple[int, float]]
"""Producers that a consumer may probe, with their access probabilities."""


@dataclass(frozen=True, slots=True)
class ProbingRun:
    """What a simulation measured. `ci95`: half the width of each figure's 95 % interval."""

    figures: ProbingFigures
    ci95: ProbingFigures
    objects: int

    def as_dict(self) -> dict[str, Any]:
        """Returns the object of contract section 3, `sim probing`."""
        return {**asdict(self.figures), "ci95": asdict(self.ci95), "objects": self.objects}


def simulate(
    system: ProbingSystem,
    objects: int,
    seed: int,
    on_progress: Callable[[int], None] | None = None,
    *,
    production_spread: float | None = None,
    avoid_visited: bool = False,
) -> ProbingRun:
    """Run until `objects` of them have reached their consumers, after a warm-up.

    With `production_spread` s, the time to make an object is uniform within (1 - s) and (1 + s)
    times its mean instead of exponential (the document's figure 6: 1/3). `avoid_visited`: a
    request probes no producer twice while others are left. `on_progress` is told how many objects
    have come, the warm-up's not counted. Raises InputError for fewer objects than batches.
    """
    if objects < BATCHES:
        expected = f"expected at least {BATCHES}, one for each batch, got {objects}"
        raise InputError(SOURCE, "objects", expected)
    if production_spread is not None and not 0.0 <= production_spread <= 1.0:
        expected = f"expected a share of 0 to 1, got {production_spread:g}"
        raise InputError(SOURCE, "production_spread", expected)
    rates = [kind.rate for kind in system.kinds for _ in range(kind.count)]
    rows = access_rows(system, stream(seed, "probing/access"))
    net = kernel.new_net(rates, system.consumers, rows, avoid_visited=avoid_visited)
    law = kernel.Law(
        consumption_time=1.0 / system.consumption_rate,
        message_time=system.message_time,
        buffers=system.buffers,
        max_hops=system.max_hops,
        spread=kernel.EXPONENTIAL if production_spread is None else production_spread,
    )
    seeds = stream(seed, "probing/kernel")
    kernel.begin(net, law, seeds.getrandbits(32))
    _run_batch(net, law, _warm_up(system, objects), seeds.getrandbits(32), lambda _: None)
    batches = []
    done = 0
    for batch in range(BATCHES):
        until = objects * (batch + 1) // BATCHES

        def left(objects_left: int, until: int = until) -> None:
            if on_progress is not None:
                on_progress(until - objects_left)

        _run_batch(net, law, until - done, seeds.getrandbits(32), left)
        batches.append((until - done, net.sums.tolist()))
        done = until
    return _summary(system, objects, batches)


def _run_batch(
    net: kernel.Net, law: kernel.Law, objects: int, seed: int, left: Callable[[int], None]
) -> None:
    """In parts, between which Ctrl-C is heard and `left` is told how many objects are to come."""
    kernel.begin_batch(net, seed)
    while objects:
        objects = kernel.advance(net, law, objects, EVENTS_AT_ONCE)
        left(objects)


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


def _warm_up(system: ProbingSystem, objects: int) -> int:
    places = system.consumers + system.producers * system.buffers
    return max(math.ceil(WARM_UP_SHARE * objects), WARM_UP_ROUNDS * places)


def _summary(
    system: ProbingSystem, objects: int, batches: list[tuple[int, list[float]]]
) -> ProbingRun:
    """Figures are of all batches together; intervals from how the batches differ."""
    per_batch = [_figures(system, count, sums) for count, sums in batches]
    sums_of_all = [math.fsum(column) for column in zip(*(s for _, s in batches), strict=True)]
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


def _figures(system: ProbingSystem, objects: int, sums: list[float]) -> ProbingFigures:
    time, probes = sums[kernel.TIME], sums[kernel.PROBES]
    return ProbingFigures(
        probes_mean=sums[kernel.HOPS] / objects,
        wait_mean=sums[kernel.WAITS] / objects,
        # The objects of a small batch may all have been on their way when it began.
        empty_probability=sums[kernel.EMPTY] / probes if probes else 0.0,
        producer_utilization=sums[kernel.PRODUCING] / (system.capacity * time),
        consumer_utilization=sums[kernel.CONSUMED] / (system.consumers * time),
        throughput=objects / time,
    )
