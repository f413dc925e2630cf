"""When a node that has died is started again. Only reckoning: who starts it is the supervisor."""

from __future__ import annotations

DELAYS_S = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""The pauses before the first start in its place, the second, ...: after the last one nobody tries
again."""

WELL_AFTER_S = 30.0
"""A node that has lived so long did not die of its start: the next delay is the first one again."""


class Revival:
    """How often one cluster's node has died shortly after its start."""

    def __init__(self) -> None:
        self._deaths = 0

    def delay_s(self, lived_s: float) -> float | None:
        """Returns how long it is until the next start after one that has lived so long; None for
        never."""
        if lived_s >= WELL_AFTER_S:
            self._deaths = 0
        self._deaths += 1
        return DELAYS_S[self._deaths - 1] if self._deaths <= len(DELAYS_S) else None

    def forget(self) -> None:
        """Somebody asks for a start, and may have mended what was wrong."""
        self._deaths = 0
