"""Virtual time: a heap of things to happen, and random streams that do not disturb each other."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import Any


def stream(seed: int, name: str) -> Random:
    """A random stream of its own for each purpose: a draw added here shifts no other stream."""
    return Random(f"{seed}/{name}")


class World:
    """The clock and what is to come. Things due at the same instant happen in the order made."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.happened = 0
        """How many things have happened."""
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._made = 0

    def at(self, time_s: float, happen: Callable[..., None], *args: Any) -> None:
        self._made += 1
        heapq.heappush(self._heap, (time_s, self._made, happen, args))

    def run(self, done: Callable[[], bool]) -> None:
        """Let things happen in order of time until `done`, or until nothing is left to happen."""
        heap, pop = self._heap, heapq.heappop
        while heap and not done():
            self.now_s, _, happen, args = pop(heap)
            self.happened += 1
            happen(*args)
