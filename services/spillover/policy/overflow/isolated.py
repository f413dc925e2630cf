"""The isolated policy, which is the paper's point of comparison."""

from __future__ import annotations

from collections.abc import Sequence

from spillover.policy.overflow.base import KEEP, NeighborLoads, OwnLoad


def choose(
    own: OwnLoad,
    near: NeighborLoads,
    eligible: Sequence[bool],
    weights: list[float],
    draw: float,
) -> int:
    """Returns KEEP, always."""
    for y in range(len(weights)):
        weights[y] = 0.0
    return KEEP
