"""The clients that wait for a request to end, without a task: those that ask for a request which is
already under way, those that ask for its state, and those that would rather not wait longer than a
while.

The code that lets them wait decides what they are told.
"""

from __future__ import annotations

from collections.abc import Callable

from spillover.apps.http.exchange import Exchange
from spillover.live.overflow.shell import NodeShell
from spillover.live.overflow.waiters import Told


class WaitingClient:
    """One client that waits until a visit has ended, `due_s` has come, or it leaves. One of
    `on_end` and `on_late` is called, unless it leaves."""

    __slots__ = ("_on_end", "_on_late", "_ref", "_timer", "_waiters")

    def __init__(
        self, ref: int, on_end: Callable[[Told], None], on_late: Callable[[], None]
    ) -> None:
        self._ref = ref
        self._on_end = on_end
        self._on_late = on_late

    def begin(self, shell: NodeShell, exchange: Exchange, due_s: float) -> bool:
        """Begins to wait. Returns False if too many wait for the visit already: nothing is called
        then."""
        self._waiters = shell.requests.waiters
        if not self._waiters.wait(self._ref, self):
            return False
        self._timer = shell.timers.at(due_s, self._too_late)
        exchange.watch(self._leave)
        return True

    def __call__(self, told: Told) -> None:
        self._timer.cancel()
        self._on_end(told)

    def _leave(self) -> None:
        self._timer.cancel()
        self._waiters.leave(self._ref, self)

    def _too_late(self, _: float) -> None:
        self._waiters.leave(self._ref, self)
        self._on_late()
