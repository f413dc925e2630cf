"""What one cluster takes into its queue, and what it tells others about that.

A request that came from a client may use the whole queue, one that a neighbor sends only the first
nine tenths: under overload those that have nowhere else to go come first. A request that would
wait beyond its deadline is not taken at all: it would only make others late. The same shares hold
for bytes (`held`), and there for requests that could start at once or be handed on, too: these are
held until their answer comes.
"""

from __future__ import annotations

from spillover.core.overflow.health import SLOW_START_SHARE, Health
from spillover.core.overflow.held import Held
from spillover.core.overflow.neighbors import Neighbors
from spillover.core.overflow.pool import ServerPool
from spillover.core.overflow.settings import NodeSettings
from spillover.core.overflow.visit import Visit
from spillover.model.request import Refusal
from spillover.policy.overflow.admission import is_full, is_too_late, takes_foreign
from spillover.policy.overflow.base import accept_probability

UNLIMITED = 2**62


class Admission:
    """Looks at the servers and who waits for them, changes neither. `draining` is set by the
    machine."""

    __slots__ = (
        "_health",
        "_held",
        "_neighbors",
        "_servers",
        "_settings",
        "draining",
        "foreign_waiting_max",
        "invites",
    )

    def __init__(
        self,
        settings: NodeSettings,
        servers: ServerPool,
        *,
        health: Health,
        neighbors: Neighbors,
        held: Held,
    ) -> None:
        self.draining = False
        self.invites = False
        """While work goes elsewhere: whether a neighbor may send a probe. Set by the machine."""
        self.foreign_waiting_max = UNLIMITED
        """How many neighbors' requests may wait. Set by the machine, by its policy."""
        self._health = health
        self._neighbors = neighbors
        self._settings = settings
        self._servers = servers
        self._held = held

    @property
    def foreign_waiting_limit(self) -> int:
        """Returns how many of the neighbors' requests may wait, whatever sets the limit."""
        return min(self.foreign_waiting_max, self._settings.foreign_limit)

    @property
    def elsewhere_first(self) -> bool:
        """Returns whether work should go to neighbors even if there is room here: the cluster
        rests, or is degraded and can reach one that is not. Where all are, none is worse than
        another.
        """
        if self._servers.resting:
            return True
        return self._health.degraded and self._neighbors.knowledge().any_well

    @property
    def accepting(self) -> bool:
        """Returns whether a neighbor's request would be accepted now."""
        servers = self._servers
        if self.draining or servers.down or not (servers.working and self._held.takes_foreign):
            return False
        if self.elsewhere_first:
            return self.invites and servers.ready
        free = servers.total - servers.busy
        return takes_foreign(free, servers.waiting, self._settings.foreign_limit) and (
            free > 0 or servers.waiting_foreign < self.foreign_waiting_max
        )

    @property
    def accept_probability(self) -> float:
        """P; 0 where nothing is accepted whatever N is, and small where only a probe is. Stuck
        servers do not count as servers."""
        if not self.accepting:
            return 0.0
        if self.elsewhere_first:
            return SLOW_START_SHARE
        accept = accept_probability(self._servers.waiting, self._servers.working)
        return accept * self._health.start_share

    def refusal(self, visit: Visit) -> Refusal | None:
        """Returns why the visit can be neither started, kept nor handed on; None if it is to be
        decided.
        """
        if self.draining:
            return Refusal.DRAINING
        held, size_bytes = self._held, visit.request.size_bytes
        if held.fits(size_bytes, visit.is_home):
            return None
        if not held.can_fit(size_bytes, visit.is_home):
            return Refusal.TOO_LARGE
        if not visit.is_home:
            held.wanted_bytes = size_bytes
        return Refusal.MEMORY_FULL

    def objection(self, visit: Visit, now_s: float) -> Refusal | None:
        """Returns why the visit should not join the queue; None if it may."""
        settings, servers, is_home = self._settings, self._servers, visit.is_home
        if self.draining:
            return Refusal.DRAINING
        if servers.down or not (is_home or servers.working):
            return Refusal.NO_SERVERS
        if not is_home and self.elsewhere_first:
            return Refusal.DEGRADED
        is_full_now = is_full(
            servers.waiting, is_home, settings.queue_limit, settings.foreign_limit
        )
        if is_full_now or self._has_enough_like(visit):
            return Refusal.QUEUE_FULL
        stay_s = servers.stay_s(visit, now_s)
        if stay_s and is_too_late(stay_s, visit.deadline_s - now_s, is_home):
            return Refusal.TOO_LATE
        return None

    def _has_enough_like(self, visit: Visit) -> bool:
        """Whether as many of the neighbors' requests wait as may, and this is another one. What was
        asked for has a server."""
        if visit.is_home or visit.pulled:
            return False
        return self._servers.waiting_foreign >= self.foreign_waiting_max
