"""The lease simulation as seen from outside: which node ran which partition when.

The watcher takes no part: the nodes tell it when a handler starts and stops, and until when it may
act. Moves, standstills and double ownership are reckoned from that alone, alike for every rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(slots=True)
class Tenure:
    """One handler of a partition on a node, from start to stop, in ms of virtual time."""

    partition: int
    node: int
    epoch: int
    from_ms: float
    to_ms: float = math.inf
    fenced_ms: float = math.inf
    """The instant from which on the holder itself knows that it may not act any more. A rule
    without leases that the holder watches over never fences: infinite."""

    @property
    def entitled_to_ms(self) -> float:
        return min(self.to_ms, self.fenced_ms)


class TenureWatch:
    """All tenures, by partition in order of their start."""

    def __init__(self, partitions: int) -> None:
        self.tenures: list[list[Tenure]] = [[] for _ in range(partitions)]
        self.moves_ms: list[float] = []
        """When a partition started on another node than before; first claims are no moves."""

    def started(self, partition: int, node: int, epoch: int, now_ms: float) -> Tenure:
        tenure = Tenure(partition, node, epoch, now_ms)
        before = self.tenures[partition]
        if before and before[-1].node != node:
            self.moves_ms.append(now_ms)
        before.append(tenure)
        return tenure

    def owners(self) -> list[int | None]:
        """Returns the node that started each partition last."""
        return [tenures[-1].node if tenures else None for tenures in self.tenures]

    def died(self, node: int, now_ms: float) -> None:
        """The node is gone, and with it whatever it ran."""
        for tenures in self.tenures:
            for tenure in tenures:
                if tenure.node == node:
                    tenure.to_ms = min(tenure.to_ms, now_ms)

    def end(self, now_ms: float) -> None:
        """Close what is still running, so that it can be reckoned."""
        for tenures in self.tenures:
            for tenure in tenures:
                tenure.to_ms = min(tenure.to_ms, now_ms)

    def unowned_ms_max(self, end_ms: float) -> float:
        """Returns the longest time that a partition stood still, before its first claim
        included."""
        return max(_longest_gap_ms(tenures, end_ms) for tenures in self.tenures)

    def double_owned_ms(self) -> float:
        """Returns the time that handlers of one partition ran on two nodes, summed over
        partitions."""
        return sum(
            _overlap_ms((tenure.from_ms, tenure.to_ms) for tenure in tenures)
            for tenures in self.tenures
        )

    def double_entitled_ms(self) -> float:
        """Returns the part of it in which both thought themselves entitled to act."""
        return sum(
            _overlap_ms((tenure.from_ms, tenure.entitled_to_ms) for tenure in tenures)
            for tenures in self.tenures
        )


def _longest_gap_ms(tenures: list[Tenure], end_ms: float) -> float:
    """Returns the longest stretch of 0..end that no tenure covers."""
    longest = 0.0
    covered_ms = 0.0
    for tenure in tenures:
        if tenure.to_ms <= tenure.from_ms:
            continue
        longest = max(longest, tenure.from_ms - covered_ms)
        covered_ms = max(covered_ms, tenure.to_ms)
    return max(longest, end_ms - covered_ms)


def _overlap_ms(spans: Iterable[tuple[float, float]]) -> float:
    """How long two or more of the spans, given in order of their start, lie over each other."""
    total = 0.0
    one_to_ms = two_to_ms = -math.inf
    for from_ms, to_ms in spans:
        # one_to: up to where one span covers; two_to: up to where two do.
        overlap_to_ms = min(to_ms, one_to_ms)
        overlap_from_ms = max(from_ms, two_to_ms)
        if overlap_to_ms > overlap_from_ms:
            total += overlap_to_ms - overlap_from_ms
            two_to_ms = overlap_to_ms
        one_to_ms = max(one_to_ms, to_ms)
    return total
