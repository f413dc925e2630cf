"""The deadlines of the visits of one cluster, earliest first."""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection

STALE_MAX = 1024
"""Entries of ended visits may stay in the heap up to this many beyond the living ones."""


class Deadlines:
    """A heap of (time, ref). Entries whose ref is not among `living` are stale: they are dropped
    when they come to the top, and all at once when they outnumber the living."""

    __slots__ = ("_heap", "_living", "next_s")

    def __init__(self, living: Collection[int]) -> None:
        self._heap: list[tuple[float, int]] = []
        self._living = living
        self.next_s = math.inf
        """The earliest of the living; infinity if there is none."""

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, deadline_s: float, ref: int) -> None:
        if deadline_s == math.inf:
            return
        heapq.heappush(self._heap, (deadline_s, ref))
        self.next_s = self._heap[0][0]
        if len(self._heap) > STALE_MAX + 2 * len(self._living):
            self._heap = [entry for entry in self._heap if entry[1] in self._living]
            heapq.heapify(self._heap)

    def find_next(self) -> None:
        """To be called when one lives no more."""
        heap = self._heap
        while heap and heap[0][1] not in self._living:
            heapq.heappop(heap)
        self.next_s = heap[0][0] if heap else math.inf

    def pop_due(self, now_s: float) -> int | None:
        """Returns a ref whose deadline has passed, None if there is none."""
        if self.next_s > now_s:
            return None
        ref = heapq.heappop(self._heap)[1]
        self.find_next()
        return ref
