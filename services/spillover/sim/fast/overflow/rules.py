"""Admission, learning and choice of a kernel's cluster: by the formulas of `policy.overflow`,
compiled. Here they are fed from records, and the policy of a run is found by its number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from spillover.policy.overflow.admission import is_full, is_too_late, stay_s, tells_wait
from spillover.policy.overflow.base import KEEP, Chooser, NeighborLoads, OwnLoad
from spillover.policy.overflow.choosers import BY_LOAD, CHOOSERS
from spillover.policy.overflow.estimate import learned, residual
from spillover.sim.fast.compile import inlined, inner
from spillover.sim.fast.overflow.draws import draw
from spillover.sim.fast.overflow.loads import departure_s, measure
from spillover.sim.fast.overflow.reporting import refresh
from spillover.sim.fast.overflow.state import TRIED_MASK, TRIED_SHIFT, ByLoad, KernelState

FREE = 0
"""There is no objection: the request may join the queue."""
QUEUE_FULL = 1
TOO_LATE = 2


@inlined
def objection(cluster: Any, is_home: bool, left_s: float) -> int:  # noqa: FBT001
    """Returns why a request with `left_s` seconds left should not join the queue, or FREE."""
    waiting = cluster.waiting
    if is_full(waiting, is_home, cluster.queue_limit, cluster.foreign_limit):
        return QUEUE_FULL
    if tells_wait(waiting, cluster.servers):
        spread_s = math.sqrt(cluster.variance_s2)
        here_s = stay_s(waiting, cluster.servers, cluster.service_s, spread_s, cluster.delivery_s)
        if is_too_late(here_s, left_s, is_home):
            return TOO_LATE
    return FREE


@inlined
def learn(cluster: Any, service_s: float) -> None:
    """A server took this time."""
    cluster.served += 1
    mean_s, variance_s2 = learned(cluster.service_s, cluster.variance_s2, cluster.served, service_s)
    cluster.service_s = mean_s
    cluster.variance_s2 = variance_s2


class Told(NamedTuple):
    """The contents of messages, by neighbor. All are None where the policy does not go by the load:
    one that reads them all the same does not compile."""

    unreported: Any
    ahead: Any
    load: Any
    told_s: Any
    overload: Any
    sure_drain: Any
    first_departure: Any


def _asked(choose: Chooser) -> Callable[..., int]:
    """Returns the asking of a policy.

    What is known is gathered where it is used: handed through the chain below, it would be copied
    at each link, which costs as much as the choice.
    """

    @inlined
    def ask(s: KernelState, told: Told, x: int, hops: int, problem: int, drawn: float) -> int:
        cluster, table, run = s.clusters[x], s.table, s.run[0]
        start, stop = cluster.links_from, cluster.links_to
        return choose(
            OwnLoad(
                cluster.waiting,
                cluster.servers,
                problem == FREE,
                cluster.service_s,
                departure_s(cluster),
                residual(cluster.service_s, cluster.variance_s2),
                cluster.load,
                hops,
                run.now_s,
                told.unreported,
                run.now_s - cluster.started_s,
            ),
            NeighborLoads(
                table.reject_near[start:stop],
                table.lengths[start:stop],
                table.delays_s[start:stop],
                table.servers[start:stop],
                told.ahead,
                told.load,
                table.departure_s[start:stop],
                table.residual[start:stop],
                told.told_s,
                told.overload,
                told.sure_drain,
                told.first_departure,
                run.period_s,
            ),
            table.eligible[start:stop],
            table.weights[start:stop],
            drawn,
        )

    return ask


def _or_else(
    number: int, ask: Callable[..., int], others: Callable[..., int]
) -> Callable[..., int]:
    """A chooser by number: this one if it is asked for, else one of the others."""

    @inlined
    def by_number(s: KernelState, told: Told, x: int, hops: int, problem: int, drawn: float) -> int:
        if s.run[0].policy != number:
            return others(s, told, x, hops, problem, drawn)
        return ask(s, told, x, hops, problem, drawn)

    return by_number


@inlined
def _nobody(*_: Any) -> int:
    """The end of the chains below: no number leads here."""
    return KEEP


by_policy: Callable[..., int] = _nobody
"""by_policy(s, told, x, hops, problem, draw): the choice of the policy of the run at cluster x.

A chain of comparisons, since a kernel can call no function that it finds at run time. What goes by
the load has a chain of its own: it is long, and would make all others slower."""
by_load_policy: Callable[..., int] = _nobody
for _number, (_name, _chooser) in enumerate(CHOOSERS.items()):
    _ask = _asked(inlined(_chooser))
    if _name in BY_LOAD:
        by_load_policy = _or_else(_number, _ask, by_load_policy)
    else:
        by_policy = _or_else(_number, _ask, by_policy)


@inlined
def _choice(
    s: KernelState, by_load: ByLoad | None, x: int, hops: int, problem: int, drawn: float
) -> int:
    if by_load is None:
        return by_policy(s, Told(None, None, None, None, None, None, None), x, hops, problem, drawn)
    start, stop = s.clusters[x].links_from, s.clusters[x].links_to
    told = Told(
        by_load.unreported[start:stop],
        by_load.ahead[start:stop],
        by_load.load[start:stop],
        by_load.told_s[start:stop],
        by_load.overload[start:stop],
        by_load.sure_drain[start:stop],
        by_load.first_departure[start:stop],
    )
    return by_load_policy(s, told, x, hops, problem, drawn)


@inner
def mark_eligible(s: KernelState, slot: int, x: int) -> None:
    """Neighbors that accept, have not refused this visit, and have not had the request."""
    cluster, under, table = s.clusters[x], s.under, s.table
    depth = under.slots[slot].depth
    for link in range(cluster.links_from, cluster.links_to):
        refresh(s, link)
        eligible = table.accepting[link]
        for back in range(depth):
            if under.path[slot, back] == s.links[link].peer:
                eligible = False
        y = link - cluster.links_from
        if (under.tried[slot, y >> TRIED_SHIFT] >> (y & TRIED_MASK)) & 1:
            eligible = False
        table.eligible[link] = eligible


@inner
def choose(s: KernelState, slot: int, x: int, problem: int) -> int:
    """Returns the neighbor to hand the request to, by its place among the neighbors of x, or KEEP;
    `problem` is what speaks against its joining the queue."""
    cluster, table, run = s.clusters[x], s.table, s.run[0]
    start, stop = cluster.links_from, cluster.links_to
    room = cluster.queue_limit + cluster.away_limit
    hops = s.under.slots[slot].depth
    measure(s, s.by_load, x)
    if (
        hops < run.max_hops
        and cluster.away < cluster.away_limit
        and cluster.waiting + cluster.away < room
    ):
        mark_eligible(s, slot, x)
    else:
        table.eligible[start:stop] = False
    return _choice(s, s.by_load, x, hops, problem, draw(s, x))
