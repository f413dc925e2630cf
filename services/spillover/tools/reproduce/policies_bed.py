"""Where overflow policies are compared: federations under even, random load, and the very same
requests for every policy. What is asked of them is in `policies`.

All times are in services: a request takes one, on average. A *cell* is one federation under one
load; each policy is measured in it with the same seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from spillover.model.ids import ClusterId
from spillover.model.topology import Cluster, Link, Topology

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from spillover.sim.fast.overflow.arrivals import ArrivalArrays

SERVICE_MS = 1_000.0

SHARED = "shared"
"""In place of a policy: one queue for all, without any way."""

HYPEREXPONENTIAL_C2 = 4.0
"""Squared coefficient of variation, with balanced means."""

WARM_UP = 0.05
"""The first of the requests are left out: they find everything empty."""

T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Student's t for 95 %, from one degree of freedom on; beyond, 1.96 is near enough."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One federation under one load."""

    shape: str
    """A key of SHAPES."""
    load: float
    law: str
    """Of service times: constant, exponential or hyperexponential."""
    rtt: float
    """There and back between neighbors, in services."""
    period: float
    """Between reports, in services."""
    deadline: float = 1e6
    requests: int = 50_000
    hot: float | None = None
    """Load of the first cluster; None: as that of the others."""


# --- the cells of each figure ---------------------------------------------------------------------

GAP_CELLS = tuple(
    Cell(shape, 0.9, "exponential", rtt, period)
    for shape, rtt, period in product(("4x8", "8x5"), (0.02, 0.5), (0.05, 0.2, 1.0, 3.0, 10.0))
)

LOADS = (0.5, 0.7, 0.9, 0.98)
RTTS = (0.0, 0.02, 0.5, 2.0)
GRID_CELLS = tuple(
    Cell(shape, load, law, rtt, period)
    for shape, load, law, rtt, period in product(
        ("4x8", "unlike"),
        LOADS,
        ("constant", "exponential", "hyperexponential"),
        RTTS,
        (0.05, 1.0, 10.0),
    )
)

OVERLOAD_CELLS = tuple(
    Cell(shape, load, "exponential", 0.07, 0.05, 10.0)
    for shape, load in product(("4x8", "8x5", "unlike"), (1.5, 3.0))
)

# The first site has too much to do, the others have not.
HOT_CELLS = tuple(
    Cell("4x8", cold, "exponential", 0.02, 0.05, 60.0, hot=hot)
    for hot, cold in ((2.0, 0.6), (3.0, 0.6), (4.0, 0.3))
)


# --- what they are made of ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shape:
    """Servers by cluster, and which of them are linked."""

    servers: tuple[int, ...]
    links: tuple[tuple[int, int], ...]
    ways: tuple[float, ...] = ()
    """By link, as multiples of the cell's; none: all alike."""


def _mesh(count: int) -> tuple[tuple[int, int], ...]:
    return tuple(combinations(range(count), 2))


def _chords(count: int) -> tuple[tuple[int, int], ...]:
    """A ring in which each cluster also knows the next but one."""
    pairs = {tuple(sorted((x, (x + k) % count))) for x in range(count) for k in (1, 2)}
    return tuple(sorted((a, b) for a, b in pairs))


SHAPES: Mapping[str, Shape] = {
    "4x8": Shape((8,) * 4, _mesh(4)),
    "8x5": Shape((5,) * 8, _chords(8)),
    "unlike": Shape((2, 4, 8, 16), _mesh(4)),
    "uneven": Shape((8,) * 4, _mesh(4), (0.1, 0.3, 1.0, 1.0, 2.0, 5.0)),
}


def topology_of(cell: Cell) -> Topology:
    """Returns the federation of a cell; its policy is the default one."""
    shape = SHAPES[cell.shape]
    ids = [ClusterId(f"s{x + 1}") for x in range(len(shape.servers))]
    clusters = tuple(
        Cluster(
            id=cluster,
            servers=servers,
            service_ms=SERVICE_MS,
            delivery_ms=0.0,
            queue_limit=1_000_000,
        )
        for cluster, servers in zip(ids, shape.servers, strict=True)
    )
    one_way_ms = cell.rtt / 2 * SERVICE_MS
    ways = shape.ways or (1.0,) * len(shape.links)
    return Topology(
        name=cell.shape,
        clusters=clusters,
        links=tuple(
            Link(between=(ids[a], ids[b]), delay_ms=way * one_way_ms)
            for (a, b), way in zip(shape.links, ways, strict=True)
        ),
        gossip_period_ms=cell.period * SERVICE_MS,
        default_deadline_ms=cell.deadline * SERVICE_MS,
    )


def arrivals_of(cell: Cell, seed: int) -> ArrivalArrays:
    """Returns the requests of a cell: Poisson at each cluster, in proportion to its servers and its
    load."""
    import numpy as np  # noqa: PLC0415 - only figures need it

    from spillover.sim.fast.overflow.arrivals import ArrivalArrays  # noqa: PLC0415 - as above

    busy = np.array(SHAPES[cell.shape].servers, float) * cell.load
    if cell.hot is not None:
        busy[0] *= cell.hot / cell.load
    random = np.random.default_rng([seed, cell.requests, len(busy)])
    gaps_s = random.exponential(1.0, cell.requests) * (SERVICE_MS / 1e3)
    homes = random.choice(len(busy), cell.requests, p=busy / busy.sum())
    time_s = np.cumsum(gaps_s) / busy.sum()
    return ArrivalArrays(
        time_s, homes.astype(np.int32), _services_ms(cell.law, random, cell.requests)
    )


def _services_ms(law: str, random: np.random.Generator, count: int) -> NDArray[np.float64]:
    import numpy as np  # noqa: PLC0415 - as above

    if law == "constant":
        return np.full(count, SERVICE_MS)
    if law == "exponential":
        return random.exponential(SERVICE_MS, count)
    short = 0.5 * (1.0 + math.sqrt((HYPEREXPONENTIAL_C2 - 1.0) / (HYPEREXPONENTIAL_C2 + 1.0)))
    means_ms = np.where(
        random.random(count) < short, 1.0 / (2.0 * short), 1.0 / (2.0 - 2.0 * short)
    )
    times_ms: NDArray[np.float64] = random.exponential(SERVICE_MS, count) * means_ms
    return times_ms


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one policy made of one seed of a cell. Waits are system times less the services, in
    services."""

    wait_mean: float
    wait_p99: float
    done_share: float
    forwards: float
    """A request, hop by hop."""
    cold_wait_mean: float
    """Of the clients of all but the first cluster."""
    hot_done_share: float
    """Of those of the first."""


def play(cell: Cell, policy: str, seed: int) -> Outcome:
    """Plays one seed of a cell under a policy, or SHARED."""
    import numpy as np  # noqa: PLC0415 - as above

    from spillover.sim.fast.overflow.queue import DONE  # noqa: PLC0415 - as above
    from spillover.sim.fast.overflow.run import run_fast  # noqa: PLC0415 - as above

    topology, arrivals = topology_of(cell), arrivals_of(cell, seed)
    shared = policy == SHARED
    run = run_fast(
        topology if shared else topology.with_policy(policy), arrivals, seed, shared=shared
    )
    first = int(WARM_UP * cell.requests)
    done = run.requests.outcome[first:] == DONE
    assert arrivals.service_ms is not None  # noqa: S101 - as made above
    waits = (run.requests.system_time_ms - arrivals.service_ms)[first:][done] / SERVICE_MS
    hops = run.requests.hops[first:][done]
    is_hot = arrivals.cluster[first:] == 0
    return Outcome(
        wait_mean=float(waits.mean()),
        wait_p99=float(np.quantile(waits, 0.99)),
        done_share=float(done.mean()),
        forwards=float(hops.mean()),
        cold_wait_mean=float(waits[~is_hot[done]].mean()),
        hot_done_share=float(done[is_hot].mean()),
    )


def half_width(values: Sequence[float]) -> float:
    """Returns that of the 95 % confidence interval of the mean; infinite for a single value."""
    count = len(values)
    if count < 2:
        return math.inf
    factor = T95[count - 2] if count - 2 < len(T95) else 1.96
    return factor * stdev(values) / math.sqrt(count)


@dataclass(frozen=True, slots=True)
class Paired:
    """A mean over the mean of another, on the same seeds."""

    ratio: float
    half_width: float
    """Of the paired difference, as a share of the other's mean."""


def paired(ours: Sequence[float], other: Sequence[float]) -> Paired:
    """Returns the ratio of the means of two series on the same seeds."""
    mean = fmean(other)
    if mean == 0.0:
        return Paired(1.0 if fmean(ours) == 0.0 else math.inf, 0.0)
    differences = [(a - b) / mean for a, b in zip(ours, other, strict=True)]
    return Paired(fmean(ours) / mean, half_width(differences))


def play_until(
    cell: Cell,
    policies: Sequence[str],
    seed: int,
    *,
    seeds_min: int,
    seeds_max: int,
    enough: Callable[[Mapping[str, Sequence[Outcome]]], bool],
) -> dict[str, list[Outcome]]:
    """Plays seed after seed, all policies on each, until that is `enough` or `seeds_max` are
    played. The same first `seed` gives the same results."""
    played: dict[str, list[Outcome]] = {policy: [] for policy in policies}
    for place in range(seeds_max):
        for policy in policies:
            played[policy].append(play(cell, policy, seed + place))
        if place + 1 >= seeds_min and enough(played):
            break
    return played
