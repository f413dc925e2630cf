"""The policy of two choices goes to the shorter queue of two neighbors drawn at random."""

from __future__ import annotations

from collections.abc import Sequence

from spillover.policy.overflow.base import KEEP, NeighborLoads, OwnLoad, pick_evenly


def choose(
    own: OwnLoad,
    near: NeighborLoads,
    eligible: Sequence[bool],
    weights: list[float],
    draw: float,
) -> int:
    """Returns the one with the shorter queue of two neighbors, drawn with replacement, if its queue
    and the way are shorter, else KEEP.

    Forwards to y if N > N_y + 1 + m * delay / service (decision 0004): what the own servers
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
    lengths = near.queue_length
    y = second if lengths[second] < lengths[first] else first
    if not own.may_keep:
        return y
    shorter_by = own.queue_length - lengths[y] - 1
    return y if shorter_by * own.service_s > own.servers * near.delays_s[y] else KEEP
