"""What a policy is given and what it answers, and what several policies need.

A policy is one function `choose` in a file of its own, and one line in `choosers`. It decides to
keep a request or to hand it on, and to whom. It is asked only when no server is free, since a
request starts at once otherwise. The same source runs in the services and, compiled, in
`sim.fast`: so a policy keeps no state, asks no clock, makes no lists, and works alike on tuples
and on arrays.

Symbols of the paper (section II): N queue length (waiting only), m servers, P probability that a
cluster accepts, R probability that it or one of its neighbors does; a bar is the complement.

What the paper leaves open or prints wrongly, and what is done here:
* The formula printed for R is for its complement: Rbar_k = Pbar_k * product of Pbar_y. The text
  ("k or one of its neighbors will accept") defines R.
* Rbar_y is older than one's own P, so that 1 - Rbar_y / Pbar_k can be negative: it counts as 0.
* All weights can be 0: then the choice among the eligible neighbors is even. No neighbor
  eligible: KEEP, whatever was drawn, and the caller says what to do where keeping is impossible.
* A neighbor not heard of is *unknown*, which is not idle: not eligible, and left out of R.
* N is what waits before the request joins, so that an empty queue always accepts (P = 1).
* A cluster that may not keep (queue full, draining) chooses as one with P = 0: Pbar_k = 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

KEEP = -1
"""The choice to hand the request to nobody."""


class OwnLoad(NamedTuple):
    """What a cluster knows of itself."""

    queue_length: int
    """N: how many requests wait, before this one joins."""
    servers: int
    """m, at least 1."""
    may_keep: bool
    """False where the request cannot stay: the queue is full, the cluster drains or rests."""
    service_s: float
    """Running mean of the time, in seconds, that a server takes for a request."""
    departure_s: float
    """That, by the number of servers: how long the queue takes to become one shorter."""
    residual: float
    """(1 + c2) / 2, c2 the squared coefficient of variation of service times: how much of a service
    is left, on average, of one under way."""
    load: float
    """What the own clients bring, as a share of what the cluster can do."""
    hops: int
    """How often this request was handed on before."""
    now_s: float
    """The cluster's clock."""
    unreported: Sequence[int]
    """By neighbor: own requests that it cannot have known of when it told its load."""


class NeighborLoads(NamedTuple):
    """What a cluster knows of its neighbors, each field by neighbor."""

    reject_near: Sequence[float]
    """Rbar_y as last reported: the probability that neither y nor any of its neighbors accepts."""
    queue_length: Sequence[int]
    """N_y as last reported."""
    delays_s: Sequence[float]
    """How long a request takes to get there, in seconds."""
    servers: Sequence[int]
    ahead: Sequence[int]
    """N_y less its idle servers, as last told."""
    load: Sequence[float]
    """As of `OwnLoad`, as last told."""
    departure_s: Sequence[float]
    residual: Sequence[float]
    """As of `OwnLoad`, as last reported."""
    told_s: Sequence[float]
    """When `ahead` and `load` were heard, by the own clock."""
    overload: Sequence[float]
    """What `adaptive` makes of what was told, here and below: it is worked out once, when that is
    heard, and looked up at each choice. Of the load: `report_terms.overload`."""
    sure_drain: Sequence[float]
    """Of the load: `report_terms.sure_drain`."""
    first_departure: Sequence[float]
    """Of residual, load and servers: `report_terms.first_departure`."""
    period_s: float
    """How far apart reports are."""


Chooser: TypeAlias = Callable[[OwnLoad, NeighborLoads, Sequence[bool], list[float], float], int]
"""choose(own, near, eligible, weights, draw) -> index of a neighbor, or KEEP.

own, near    what is known
eligible[y]  whether this request may go to neighbor y at all
weights[y]   buffer, written: the weights used in the choice; zeros where none were used
draw         uniform in [0, 1), the only randomness
"""


def accept_probability(queue_length: int, servers: int) -> float:
    """Returns P_k = m_k / (N_k + m_k) (section II)."""
    return servers / (queue_length + servers)


def neighborhood_reject_probability(
    own_accept: float, accept: Sequence[float], known: Sequence[bool]
) -> float:
    """Returns Rbar_k = Pbar_k * product over the known neighbors of Pbar_y (section II)."""
    reject = 1.0 - own_accept
    for y in range(len(accept)):
        if known[y]:
            reject *= 1.0 - accept[y]
    return reject


def pick_by_weight(weights: Sequence[float], total: float, draw: float) -> int:
    """Returns the index in whose share of `total` the draw falls; KEEP where no weight is
    positive."""
    target = draw * total
    reached = 0.0
    picked = KEEP
    for y in range(len(weights)):
        if weights[y] > 0.0:
            picked = y
            reached += weights[y]
            if target < reached:
                break
    return picked


def pick_evenly(eligible: Sequence[bool], draw: float) -> int:
    """Returns one of the eligible indices, each as likely as the others; KEEP where there is
    none."""
    count = 0
    for y in range(len(eligible)):
        if eligible[y]:
            count += 1
    place = min(int(draw * count), count - 1)
    for y in range(len(eligible)):
        if eligible[y]:
            if place == 0:
                return y
            place -= 1
    return KEEP
