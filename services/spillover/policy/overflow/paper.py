"""Lai & Polak's rule: a request goes by chance to a neighbor that is likely to have a free server,
or to be near one (section II)."""

from __future__ import annotations

from collections.abc import Sequence

from spillover.policy.overflow.base import (
    KEEP,
    NeighborLoads,
    OwnLoad,
    accept_probability,
    pick_by_weight,
    pick_evenly,
)


def choose(
    own: OwnLoad,
    near: NeighborLoads,
    eligible: Sequence[bool],
    weights: list[float],
    draw: float,
) -> int:
    """Returns KEEP with probability P_k, else y with P_ky = C * (1 - Rbar_y / Pbar_k).

    One draw serves both stages: given that it is not below P_k, the rest is uniform again.
    """
    for y in range(len(weights)):
        weights[y] = 0.0
    accept = accept_probability(own.queue_length, own.servers) if own.may_keep else 0.0
    if draw < accept:
        return KEEP
    reject = 1.0 - accept
    rest = (draw - accept) / reject
    reject_near = near.reject_near
    total = 0.0
    for y in range(len(weights)):
        if eligible[y] and reject_near[y] < reject:
            weights[y] = 1.0 - reject_near[y] / reject
            total += weights[y]
    if total > 0.0:
        return pick_by_weight(weights, total, rest)
    return pick_evenly(eligible, rest)
