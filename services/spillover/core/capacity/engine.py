"""The bound that an engine's reports set to the search (`policy.capacity.ceiling`)."""

from __future__ import annotations

from spillover.core.capacity.search import CapacitySearch
from spillover.model.engine_load import EngineLoad
from spillover.policy.capacity import ceiling, holds_back

LOOKS = 2
"""The number of looks in a row that have to find requests held back: one look may find a request
that has just come."""


class EngineBound:
    """The last report of an engine, and for how many looks it has held requests back."""

    __slots__ = ("_held_back", "_took", "load")

    def __init__(self) -> None:
        self.load: EngineLoad | None = None
        """The last report; None where nothing is known."""
        self._held_back = 0
        self._took = 0.0
        """The number of requests that were not held back at the last look."""

    def said(
        self, load: EngineLoad | None, search: CapacitySearch, busy: int, now_s: float
    ) -> bool:
        """Take a report of the engine, or (None) that it has been silent for long, while so many
        requests were under way there. Returns whether there is another limit."""
        self.load = load
        if load is None:
            self._held_back, self._took = 0, 0.0
            return search.bound(search.most, now_s)
        waiting, held = load.waiting or 0.0, load.held or 0.0
        # Some of those under way here are on their way, or read slowly: nobody holds them back.
        took, took_before = max(load.running or 0.0, busy - waiting), self._took
        self._took = took
        self._held_back = self._held_back + 1 if holds_back(waiting, held) else 0
        if 0 < self._held_back < LOOKS:
            return False
        told = max(took, took_before), waiting, held
        return search.bound(ceiling(search.ceiling, search.least, search.most, *told), now_s)
