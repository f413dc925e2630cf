"""The arguments and the answer of a policy, and the formulas that several policies need.

A policy is one function `choose` in a file of its own, and one line in `choosers`. It decides to
keep a request or to hand it on, and to which neighbor. It is asked only when no server is free,
since a request starts at once otherwise. The same source runs in the services and, compiled, in
`sim.fast`: so a policy keeps no state, asks no clock, makes no lists, and works alike on tuples and
on arrays.

Symbols of the paper (section II): N queue length (waiting only), m servers, P probability that a
cluster accepts, R probability that it or one of its neighbors does; a bar is the complement.

What the paper leaves open or prints wrongly, and what is done here:
* The formula printed for R is for its complement: Rbar_k = Pbar_k * product of Pbar_y. The text
  ("k or one of its neighbors will accept") defines R.
* Rbar_y is older than one's own P, so that 1 - Rbar_y / Pbar_k can be negative: it counts as 0.
* All weights can be 0: then the choice among the eligible neighbors is even. No neighbor
  eligible: KEEP, whatever was drawn, and the caller says what to do where keeping is impossible.
* A neighbor without a report is *unknown*, not idle: not eligible, and left out of R.
* N is what waits before the request joins, so that an empty queue always accepts (P = 1).
* A cluster that may not keep (queue full, draining) chooses as one with P = 0: Pbar_k = 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

KEEP = -1
"""The choice to hand the request to nobody."""


class OwnLoad(NamedTuple):
    """The state of a cluster as it knows it itself."""

    queue_length: int
    """N: the number of requests that wait, before this one joins."""
    servers: int
    """m: the number of servers, at least 1."""
    may_keep: bool
    """False where the request cannot stay: the queue is full, the cluster drains or rests."""
    service_s: float
    """The running mean of the time, in seconds, that a server takes for a request."""
    departure_s: float
    """`service_s` divided by the number of servers: the queue becomes one shorter in this time."""
    residual: float
    """(1 + c2) / 2, where c2 is the squared coefficient of variation of service times: the share of
    a service that is left, on average, while it is under way."""
    load: float
    """The work that the own clients bring, as a share of the cluster's capacity."""
    hops: int
    """The number of times that this request was handed on before."""
    now_s: float
    """The time by the cluster's clock."""
    unreported: Sequence[int]
    """The number of own requests, by neighbor, that it cannot have known of when it reported its
    load."""
    still_s: float = 0.0
    """The time for which no service has begun, where all servers are busy; 0 where that is not
    known."""


class NeighborLoads(NamedTuple):
    """The states of a cluster's neighbors as it knows them, each field by neighbor."""

    reject_near: Sequence[float]
    """Rbar_y as last reported: the probability that neither y nor any of its neighbors accepts."""
    queue_length: Sequence[int]
    """N_y as last reported."""
    delays_s: Sequence[float]
    """The time that a request takes to get there, in seconds."""
    servers: Sequence[int]
    ahead: Sequence[int]
    """N_y less its idle servers, as last reported."""
    load: Sequence[float]
    """The `load` of `OwnLoad`, as last reported."""
    departure_s: Sequence[float]
    residual: Sequence[float]
    """The `residual` of `OwnLoad`, as last reported."""
    told_s: Sequence[float]
    """The time at which `ahead` and `load` came, by the own clock."""
    overload: Sequence[float]
    """The `report_terms.overload` of the load. This and the next two are worked out once, when a
    report comes, and looked up at each choice of `adaptive`."""
    sure_drain: Sequence[float]
    """The `report_terms.sure_drain` of the load."""
    first_departure: Sequence[float]
    """The `report_terms.first_departure` of residual, load and servers."""
    period_s: float
    """The time between reports, in seconds."""


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
