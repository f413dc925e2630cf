"""Timers in virtual time, which wake the drivers of machines (`core.driver`). No event rings what
is due: of what is due at the same instant, what was planned first happens first.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from spillover.sim.engine.clock import Clock
from spillover.sim.engine.world import World

Ring = Callable[[float], None]


class WorldTimers:
    """The timers of a process with which nothing can go wrong; its clock is the world's."""

    next_s = math.inf

    def __init__(self, world: World) -> None:
        self._world = world

    def clock(self) -> float:
        return self._world.now_s

    def at(self, due_s: float, ring: Ring) -> WorldTimers:
        self._world.at(due_s, ring, due_s)
        return self

    def cancel(self) -> None:
        """Does nothing: the driver knows which of its timers counts."""

    def run_due(self, now_s: float) -> None:
        """Does nothing: what is due happens by itself."""


class ClockTimers(WorldTimers):
    """The timers of a process that may stop, for one driver, which has one timer at a time: this is
    that timer, too. Due times are of the process's own clock; nothing rings while it does not
    run.
    """

    def __init__(self, world: World, clock: Clock, runs: Callable[[], bool]) -> None:
        super().__init__(world)
        self._own = clock
        self._runs = runs
        self._number = 0

    def clock(self) -> float:
        return self._own.now_s()

    def at(self, due_s: float, ring: Ring) -> ClockTimers:
        self._number += 1
        true_s = max(self._world.now_s, self._own.true_s(due_s))
        self._world.at(true_s, self._come, self._number, due_s, ring)
        return self

    def cancel(self) -> None:
        self._number += 1

    def _come(self, number: int, due_s: float, ring: Ring) -> None:
        if number == self._number and self._runs():
            ring(due_s)
