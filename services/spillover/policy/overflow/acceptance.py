"""Keep a request or hand it on, and to whom: Lai & Polak's rule and its rivals.

Symbols of the paper (section II): N queue length (waiting only), m servers, P probability that a
cluster accepts, R probability that it or one of its neighbors does; a bar is the complement.
Arrays are indexed by neighbor. A chooser returns the index of a neighbor, or KEEP; it is called
only when no server is free, since a request starts at once otherwise.

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
from typing import TypeAlias

KEEP = -1

Chooser: TypeAlias = Callable[..., int]
"""chooser(queue_length, servers, may_keep, service_s, reject_near, lengths, delays_s, eligible,
weights, draw) -> index of a neighbor, or KEEP.

queue_length   own N, before the request joins
servers        own m
may_keep       False where the queue is full or the cluster is draining
service_s      mean service time of one request
reject_near[y] Rbar_y of neighbor y as last reported
lengths[y]     N_y as last reported
delays_s[y]    one-way delay of the link
eligible[y]    whether y may be chosen at all
weights[y]     buffer, written: the weights used in the choice; zeros where none were used
draw           uniform in [0, 1), the only randomness
"""


def accept_probability(queue_length: int, servers: int) -> float:
    """P_k = m_k / (N_k + m_k) (section II)."""
    return servers / (queue_length + servers)


def neighborhood_reject_probability(
    own_accept: float, accept: Sequence[float], known: Sequence[bool]
) -> float:
    """Rbar_k = Pbar_k * product over the known neighbors of Pbar_y (section II)."""
    reject = 1.0 - own_accept
    for y in range(len(accept)):
        if known[y]:
            reject *= 1.0 - accept[y]
    return reject


def pick_by_weight(weights: Sequence[float], total: float, draw: float) -> int:
    """The index in whose share of `total` the draw falls; KEEP where no weight is positive."""
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
    """One of the eligible indices, each as likely as the others; KEEP where there is none."""
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


def choose_isolated(
    queue_length: int,
    servers: int,
    may_keep: bool,
    service_s: float,
    reject_near: Sequence[float],
    lengths: Sequence[int],
    delays_s: Sequence[float],
    eligible: Sequence[bool],
    weights: list[float],
    draw: float,
) -> int:
    """Never forwards: the paper's point of comparison."""
    for y in range(len(weights)):
        weights[y] = 0.0
    return KEEP


def choose_paper(
    queue_length: int,
    servers: int,
    may_keep: bool,
    service_s: float,
    reject_near: Sequence[float],
    lengths: Sequence[int],
    delays_s: Sequence[float],
    eligible: Sequence[bool],
    weights: list[float],
    draw: float,
) -> int:
    """Keep with probability P_k, else y with P_ky = C * (1 - Rbar_y / Pbar_k) (section II).

    One draw serves both stages: given that it is not below P_k, the rest is uniform again.
    """
    for y in range(len(weights)):
        weights[y] = 0.0
    accept = accept_probability(queue_length, servers) if may_keep else 0.0
    if draw < accept:
        return KEEP
    reject = 1.0 - accept
    rest = (draw - accept) / reject
    total = 0.0
    for y in range(len(weights)):
        if eligible[y] and reject_near[y] < reject:
            weights[y] = 1.0 - reject_near[y] / reject
            total += weights[y]
    if total > 0.0:
        return pick_by_weight(weights, total, rest)
    return pick_evenly(eligible, rest)


def choose_two_choice(
    queue_length: int,
    servers: int,
    may_keep: bool,
    service_s: float,
    reject_near: Sequence[float],
    lengths: Sequence[int],
    delays_s: Sequence[float],
    eligible: Sequence[bool],
    weights: list[float],
    draw: float,
) -> int:
    """The shorter of two neighbors drawn with replacement, if its queue and the way are shorter.

    Forwards to y if N > N_y + 1 + m * delay / service (contract, section 2): what the own servers
    would finish while the request travels counts as length. The first drawn wins a tie. Where a
    service takes no time, no way is short enough.
    """
    count = 0
    for y in range(len(weights)):
        weights[y] = 0.0
        if eligible[y]:
            count += 1
    first = pick_evenly(eligible, draw)
    if first == KEEP:
        return KEEP
    second = pick_evenly(eligible, draw * count - int(draw * count))
    weights[first] = 1.0
    weights[second] = 1.0
    y = second if lengths[second] < lengths[first] else first
    if not may_keep:
        return y
    shorter_by = queue_length - lengths[y] - 1
    return y if shorter_by * service_s > servers * delays_s[y] else KEEP
