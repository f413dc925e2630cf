"""The agenda of a machine: its later reactions with the instants at which they are due, in a
heap."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Any

STALE_MAX = 64
"""Entries of what was dropped are kept as long as they are this many, or no more than the rest: to
take each out at once would cost more."""


class Agenda:
    """Reactions, earliest first; those due at the same instant as made."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._living: dict[int, tuple[Callable[..., None], tuple[Any, ...]]] = {}
        """What is to come, by number."""
        self._made = 0

    def __len__(self) -> int:
        """Returns how much memory it takes, in entries: what was dropped may be among them."""
        return len(self._heap)

    def at(self, due_s: float, react: Callable[..., None], *args: Any) -> int:
        """Have `react(*args, now_s)` called once that time has come. Returns what to `drop`. Where
        few are to come, none need be: then what reacts looks whether it still should."""
        self._made += 1
        self._living[self._made] = (react, args)
        heapq.heappush(self._heap, (due_s, self._made))
        return self._made

    def drop(self, number: int) -> None:
        """This one need not be called any more; nothing where it was. Deadlines are far away and
        seldom come: what was over long ago would fill the memory until then."""
        if self._living.pop(number, None) is None:
            return
        if len(self._heap) > STALE_MAX + 2 * len(self._living):
            self._heap = [entry for entry in self._heap if entry[1] in self._living]
            heapq.heapify(self._heap)

    def first_s(self) -> float:
        """Returns when the next is due, infinity if there is none."""
        while self._heap and self._heap[0][1] not in self._living:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf

    def run_due(self, now_s: float) -> None:
        """Call all that is due, what becomes due meanwhile included."""
        while self._heap and self._heap[0][0] <= now_s:
            _, number = heapq.heappop(self._heap)
            if (due := self._living.pop(number, None)) is not None:
                react, args = due
                react(*args, now_s)

    def clear(self) -> None:
        self._heap.clear()
        self._living.clear()
