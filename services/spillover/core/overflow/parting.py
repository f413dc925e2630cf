"""The neighbors that are to leave, and when their links may close.

Neither end can know whether the other one has heard of it. So a link that is parted from stays for
a while, for what the other end still sends, and for as long as either end has requests of the
other. All that comes after it has closed is refused, which surely means that it has not run.
`neighbors` has what a neighbor that is parted from is no longer given.
"""

from __future__ import annotations

from spillover.core.overflow.facts import NodeFacts
from spillover.core.overflow.neighbor import Neighbor
from spillover.core.overflow.visit import AWAY

PART_S_MIN = 2.0
"""The least time, in seconds, for which a link stays. Until then the other end has heard of the
parting too, and has begun to give away what waits there if it was removed."""

PART_S_MAX = 60.0
"""The longest time, in seconds, for an answer. A request that has none by then is given up, as if
the neighbor had gone, unless its answer has begun to pass."""


class Parting:
    """The parting from neighbors of one cluster. It is looked at when the timer fires, several
    times a second."""

    def __init__(self) -> None:
        self._since_s: dict[int, float] = {}
        """The time since which each neighbor parts, by handle."""
        self.is_removed = False
        """True if the cluster itself is to go: from all neighbors, once it has drained."""

    def __contains__(self, handle: int | None) -> bool:
        return handle in self._since_s

    @property
    def is_awaited(self) -> bool:
        """Returns whether any link may close soon."""
        return self.is_removed or bool(self._since_s)

    def begin(self, handle: int, now_s: float) -> None:
        self._since_s.setdefault(handle, now_s)

    def end(self, handle: int) -> None:
        """Forget a neighbor, which stays, or is gone."""
        self._since_s.pop(handle, None)

    def over(self, node: NodeFacts, now_s: float) -> list[int]:
        """Returns the neighbors whose links close now."""
        if self.is_removed and node.drained:
            return [*node.neighbors.by_handle]
        if not self._since_s:
            return []
        visits, rows = node.register.visits.values(), node.neighbors.by_handle
        senders = {visit.origin for visit in visits}
        answering = [visit for visit in visits if visit.answering]
        held = {visit.origin for visit in answering}
        held |= {visit.target.handle for visit in answering if visit.state is AWAY}
        return [
            handle
            for handle, since_s in self._since_s.items()
            if (now_s >= since_s + PART_S_MAX and handle not in held)
            or (handle not in senders and _is_over(rows[handle], now_s - since_s))
        ]


def _is_over(neighbor: Neighbor, age_s: float) -> bool:
    """Returns whether nothing is left there, and nothing more is to come from there."""
    if neighbor.away:
        return False
    if not neighbor.known:
        return True
    gives_away = not neighbor.willing and neighbor.queue_length > 0  # as a draining one does
    return age_s >= PART_S_MIN and not gives_away
