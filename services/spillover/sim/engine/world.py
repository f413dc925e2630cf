"""Virtual time: a heap of things to happen, and random streams that do not disturb each other."""

from __future__ import annotations

import gc
import heapq
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any


def stream(seed: int, name: str) -> Random:
    """Returns a random stream of its own for each purpose: a draw added here shifts no other
    stream."""
    return Random(f"{seed}/{name}")


@contextmanager
def rare_collections() -> Iterator[None]:
    """Have the garbage collector look for cycles less often: next to nothing here is one, and
    looking would take an eighth of a run's time."""
    thresholds = gc.get_threshold()
    gc.set_threshold(max(10_000, thresholds[0]), *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


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

    def at_each(self, times_s: Sequence[float], happen: Callable[[int], None]) -> None:
        """Let `happen(k)` happen at times_s[k], for each k. All count as made now, though only the
        next one lies in the heap: a long schedule does not make everything else slower."""
        first = self._made + 1
        self._made += len(times_s)
        order = iter(sorted(range(len(times_s)), key=times_s.__getitem__))

        def turn(k: int) -> None:
            plan_next()
            happen(k)

        def plan_next() -> None:
            k = next(order, None)
            if k is not None:
                heapq.heappush(self._heap, (times_s[k], first + k, turn, (k,)))

        plan_next()

    def run(self, done: Callable[[], bool]) -> None:
        """Let things happen in order of time until `done`, or until nothing is left to happen."""
        heap, pop = self._heap, heapq.heappop
        while heap and not done():
            self.now_s, _, happen, args = pop(heap)
            self.happened += 1
            happen(*args)
