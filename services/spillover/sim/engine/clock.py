"""The clocks of one simulated cluster, which may go wrong; `World.now_s` is the true time.

The *monotonic* clock, which the machine is told, runs at a rate and never jumps: that much an
operating system promises. The *wall* clock may be set, back too, and serves the epochs alone.
"""

from __future__ import annotations

from spillover.sim.engine.world import World

EPOCH_AT_START = 1_000_000_000_000
"""The time of a wall clock at the start of a run, in milliseconds: some must be left to set it back
by."""


class Clock:
    """Times are in seconds. A clock that was never tampered with, and that began with the world,
    shows the world's time exactly; `begun_s` is what it shows then."""

    def __init__(self, world: World, begun_s: float = 0.0) -> None:
        self._world = world
        self.rate = 1.0
        self.is_true = begun_s == 0.0
        self._mark_s, self._mark_true_s = begun_s, 0.0
        self._wall_ahead_s = 0.0

    def now_s(self) -> float:
        """Returns what the monotonic clock shows."""
        if self.is_true:
            return self._world.now_s
        return self._mark_s + (self._world.now_s - self._mark_true_s) * self.rate

    def true_s(self, shown_s: float) -> float:
        """Returns when the monotonic clock shows this, if it goes on as it does now."""
        if self.is_true:
            return shown_s
        return self._mark_true_s + (shown_s - self._mark_s) / self.rate

    def set(self, rate: float, offset_s: float) -> None:
        """Run at `rate` from now on, and put the wall clock forward."""
        self._mark_s, self._mark_true_s = self.now_s(), self._world.now_s
        self.rate = rate
        self.is_true = False
        self._wall_ahead_s += offset_s

    def epoch(self) -> int:
        """Returns the wall clock in milliseconds, as a start takes it for its epoch."""
        return EPOCH_AT_START + round((self.now_s() + self._wall_ahead_s) * 1e3)
