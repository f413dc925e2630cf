"""A simulated process, whatever its machine: it lives or not, it may stand still, and it has a
clock of its own. Messages that reach it while it stands still wait in its kernel.

Which machine it runs, and what a message is, is not known here.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from spillover.core.machine import Machine
from spillover.sim.engine.clock import Clock
from spillover.sim.engine.world import World


class Process:
    """One process over all of its lives. `boot` and `halt` begin and end one."""

    def __init__(self, name: str, world: World, clock: Clock) -> None:
        self.name, self.world, self.clock = name, world, clock
        self.life = 0
        self.alive = self.paused = False
        self.timers = Timers(self)
        self._kernel: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()

    @property
    def runs(self) -> bool:
        """Returns whether it does what it is told at once."""
        return self.alive and not self.paused

    def boot(self) -> None:
        self.life += 1
        self.alive = True

    def halt(self) -> None:
        """It is gone, and all that it knew."""
        self.alive = self.paused = False
        self._kernel.clear()
        self.timers.cancel()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        """Go on: first with what was due, then with what came meanwhile."""
        self.paused = False
        self.timers.run_due(self.clock.now_s())
        came, self._kernel = self._kernel, deque()
        for happen, args in came:
            self.deliver(happen, *args)
        self.timers.set_anew()

    def set_clock(self, rate: float) -> None:
        self.clock.set(rate, 0.0)
        self.timers.set_anew()

    def deliver(self, happen: Callable[..., None], *args: Any) -> None:
        """Something reaches it: now, once it goes on, or never."""
        if self.paused:
            self._kernel.append((happen, args))
        elif self.alive:
            happen(*args)

    def later(self, after_s: float, happen: Callable[..., None], *args: Any) -> None:
        """Let it happen in this life, after so long by its own clock."""
        at_s = self.world.now_s + after_s / self.clock.rate
        self.world.at(at_s, self._in_life, self.life, happen, args)

    def _in_life(self, life: int, happen: Callable[..., None], args: tuple[Any, ...]) -> None:
        if life == self.life:
            self.deliver(happen, *args)


class Watched:
    """A machine with somebody who looks on: `look(event, now_s, commands)` after each event."""

    def __init__(self, machine: Machine[Any, Any], look: Callable[..., None]) -> None:
        self._machine, self._look = machine, look
        self.next_deadline = machine.next_deadline
        self.check = machine.check

    def handle(self, event: Any, now_s: float) -> Sequence[Any]:
        commands = self._machine.handle(event, now_s)
        self._look(event, now_s, commands)
        return commands


class Timers:
    """The timers of one process, for one driver, which has one timer at a time: this is that timer,
    too."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._ring: Callable[[float], None] | None = None
        self._due_s = 0.0
        self._number = 0

    @property
    def clock(self) -> Callable[[], float]:
        return self._process.clock.now_s

    def at(self, due_s: float, ring: Callable[[float], None]) -> Timers:
        self._due_s, self._ring = due_s, ring
        self.set_anew()
        return self

    def cancel(self) -> None:
        self._ring = None

    @property
    def next_s(self) -> float:
        return math.inf if self._ring is None else self._due_s

    def run_due(self, now_s: float) -> None:
        if self._ring is not None and self._due_s <= now_s:
            ring, self._ring = self._ring, None
            ring(self._due_s)

    def set_anew(self) -> None:
        """The clock has been set, or the process goes on."""
        if self._ring is None:
            return
        self._number += 1
        process = self._process
        true_s = max(process.world.now_s, process.clock.true_s(self._due_s))
        process.world.at(true_s, self._come, self._number)

    def _come(self, number: int) -> None:
        if number == self._number and self._process.runs:
            self.run_due(self._due_s)
