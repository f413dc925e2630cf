"""What one cluster takes into its queue, and what it tells others about that.

A request that came from a client may use the whole queue, one that a neighbor sends only the first
nine tenths: under overload those that have nowhere else to go come first. A request that would
wait beyond its deadline is not taken at all: it would only make others late. The same shares hold
for bytes (`held`), and there for requests that could start at once or be handed on, too: these are
held until their answer comes.
"""

from __future__ import annotations

from spillover.core.fifo import Fifo
from spillover.core.overflow.decider import Decider
from spillover.core.overflow.health import SLOW_START_SHARE, Health
from spillover.core.overflow.held import Held
from spillover.core.overflow.neighbors import Neighbors
from spillover.core.overflow.servers import Servers
from spillover.core.overflow.settings import NodeSettings
from spillover.core.overflow.visit import Visit
from spillover.model.request import Refusal
from spillover.policy.overflow.admission import (
    is_full,
    is_too_late,
    stay_s,
    takes_foreign,
    tells_wait,
)
from spillover.policy.overflow.base import accept_probability


class Admission:
    """Looks at the queue and the servers, changes neither. `draining` is set by the machine."""

    __slots__ = (
        "_decider",
        "_health",
        "_held",
        "_neighbors",
        "_queue",
        "_servers",
        "_settings",
        "draining",
        "invites",
    )

    def __init__(
        self,
        settings: NodeSettings,
        queue: Fifo[Visit],
        servers: Servers,
        decider: Decider,
        *,
        health: Health,
        neighbors: Neighbors,
        held: Held,
    ) -> None:
        self.draining = False
        self.invites = False
        """While work goes elsewhere: whether a neighbor may send a probe. Set by the machine."""
        self._health = health
        self._neighbors = neighbors
        self._settings = settings
        self._queue = queue
        self._servers = servers
        self._decider = decider
        self._held = held

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
        return takes_foreign(servers.free, len(self._queue), self._settings.foreign_limit)

    @property
    def accept_probability(self) -> float:
        """P; 0 where nothing is accepted whatever N is, and small where only a probe is. Stuck
        servers do not count as servers."""
        if not self.accepting:
            return 0.0
        if self.elsewhere_first:
            return SLOW_START_SHARE
        accept = accept_probability(len(self._queue), self._servers.working)
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
        settings, is_home = self._settings, visit.is_home
        waiting = len(self._queue)
        if self.draining:
            return Refusal.DRAINING
        if self._servers.down or not (is_home or self._servers.working):
            return Refusal.NO_SERVERS
        if not is_home and self.elsewhere_first:
            return Refusal.DEGRADED
        if is_full(waiting, is_home, settings.queue_limit, settings.foreign_limit):
            return Refusal.QUEUE_FULL
        if tells_wait(waiting, settings.servers):
            left_s = visit.deadline_s - now_s
            if is_too_late(self._stay_s(waiting, now_s), left_s, is_home):
                return Refusal.TOO_LATE
        return None

    def retry_after_s(self, now_s: float) -> float:
        """Returns when about as many will have been served as wait now, and one more."""
        served_s = (len(self._queue) + 1) * self._decider.service_s / max(1, self._servers.working)
        return self._servers.rest_s(now_s) + served_s

    def _stay_s(self, waiting: int, now_s: float) -> float:
        """How long a request that joins now will be here, with a margin."""
        decider, servers = self._decider, self._servers
        working, delivery_s = max(1, servers.working), self._settings.delivery_s
        service_s, spread_s = decider.service_s, decider.service_spread_s
        return stay_s(waiting, working, service_s, spread_s, delivery_s) + servers.rest_s(now_s)
