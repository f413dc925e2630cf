"""An emulated service that bears so many requests at a time: up to that number none slows another
down, and beyond it they get in each other's way, so that all together are the slower the more there
are. What it bears changes with time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from spillover.core.overflow import events as ev
from spillover.core.tokens.sharing import SharedServer
from spillover.model.request import Outcome
from spillover.sim.engine.world import World

Bears: TypeAlias = Sequence[tuple[float, int]]
"""Instants in seconds, from 0 on, and how many requests at a time a service bears from then on."""


class BearingService:
    """The service behind one cluster. `tell` hears how each service ended, unless it was stopped
    before."""

    def __init__(self, world: World, bears: Bears, tell: Callable[[Any], None]) -> None:
        self._world = world
        self._since_s = [since_s for since_s, _ in bears]
        self._bears = [number for _, number in bears]
        self._tell = tell
        self._server = SharedServer(1.0)
        self._began_s: dict[int, float] = {}
        self._alarm = 0
        """The number of the one alarm that counts."""
        for since_s in self._since_s[1:]:
            world.at(since_s, self._pace)

    def start(self, command: ev.Start, work_s: float) -> None:
        """Begin a service that takes so long alone."""
        self._began_s[command.ref] = self._world.now_s
        self._server.add(command.ref, self._world.now_s, work_s)
        self._pace()

    def stop(self, ref: int) -> bool:
        """End a service without a word; whether it ran."""
        if self._began_s.pop(ref, None) is None:
            return False
        self._server.remove(ref, self._world.now_s)
        self._pace()
        return True

    def _pace(self) -> None:
        """Run as fast as so many do now, and ring when the next one ends."""
        now_s, running = self._world.now_s, len(self._began_s)
        bears = self._bears[bisect_right(self._since_s, now_s) - 1]
        self._server.advance(now_s)
        self._server.rate = float(running) if running <= bears else bears * bears / running
        self._alarm += 1
        if (end := self._server.next_end()) is not None:
            self._world.at(max(now_s, end[0]), self._ended, end[1], self._alarm)

    def _ended(self, ref: int, alarm: int) -> None:
        if alarm != self._alarm:
            return
        took_s = self._world.now_s - self._began_s[ref]
        self.stop(ref)
        self._tell(ev.ServiceEnded(ref, Outcome.DONE, took_s))
