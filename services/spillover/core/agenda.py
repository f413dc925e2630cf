"""What a machine is to do later: reactions with the instants at which they are due, in a heap."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Any


class Agenda:
    """Reactions, earliest first; those due at the same instant as made."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._made = 0

    def at(self, due_s: float, react: Callable[..., None], *args: Any) -> None:
        """Have `react(*args, now_s)` called once that time has come. Nothing is taken back: what
        reacts looks whether it still should."""
        self._made += 1
        heapq.heappush(self._heap, (due_s, self._made, react, args))

    def first_s(self) -> float:
        """Returns when the next is due, infinity if there is none."""
        return self._heap[0][0] if self._heap else math.inf

    def run_due(self, now_s: float) -> None:
        """Call all that is due, what becomes due meanwhile included."""
        while self._heap and self._heap[0][0] <= now_s:
            _, _, react, args = heapq.heappop(self._heap)
            react(*args, now_s)

    def clear(self) -> None:
        self._heap.clear()
