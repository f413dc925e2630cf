"""Which handlers hang, as far as that can be told: those that said they would report and do not.

A handler that has told of progress once is expected to go on doing so. Only time in which it could
have counts: while something else keeps the interpreter (a native call) or the event loop, its
runtime does not beat, and nobody on it is judged; but a runtime that stands still for much longer
hangs as a whole. A handler that never reports is never judged, busy or not.
"""

from __future__ import annotations

from spillover.live.leases.renewal.memory import LeaseMemory

BLOCKED_LEASES = 4.0
BLOCKED_FACTOR = 2.0
"""A runtime hangs after so many leases, and so many times what a handler may take."""


class ProgressGuard:
    """Hanging is for good: an epoch that once was told as hung is not renewed again."""

    def __init__(self, memory: LeaseMemory, max_progress_s: float | None, lease_s: float) -> None:
        self._memory = memory
        self._max_s = max_progress_s
        self._blocked_max_s = BLOCKED_LEASES * lease_s
        if max_progress_s is not None:
            self._blocked_max_s = max(self._blocked_max_s, BLOCKED_FACTOR * max_progress_s)
        self._hung: set[tuple[int, int]] = set()

    def hung(
        self, held: list[tuple[int, int]], now_s: float, awake_since_s: float
    ) -> list[tuple[int, int]]:
        """Returns those of `held`, (partition, epoch), that hang. `awake_since_s`: for so long the
        member has been watched and not been stopped; what a stopped one failed to do is no sign."""
        if self._max_s is None:
            return []
        self._hung.intersection_update(held)
        for partition, epoch in held:
            idle_s = self._memory.idle_s(partition)
            if idle_s is None:
                continue
            blocked_s = min(self._memory.silent_s(partition, now_s), now_s - awake_since_s)
            if idle_s > self._max_s or blocked_s > self._blocked_max_s:
                self._hung.add((partition, epoch))
        return [pair for pair in held if pair in self._hung]
