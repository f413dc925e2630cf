"""The admission of requests to a cluster's queue, and the answer to neighbors about it.

A request that came from a client may use the whole queue, one that a neighbor sends only the first
nine tenths: under overload those that have nowhere else to go come first. A request that would
wait beyond its deadline is not taken at all: it would only make others late. The same shares hold
for bytes (`held`), and there for requests that could start at once or be handed on, too: these are
held until their answer comes.
"""

from __future__ import annotations

import math

from spillover.core.overflow.health import SLOW_START_SHARE, Health
from spillover.core.overflow.held import HeldBytes
from spillover.core.overflow.neighbors import Neighbors
from spillover.core.overflow.pool import FittingServers, ServerPool
from spillover.core.overflow.settings import NodeSettings
from spillover.core.overflow.visit import Visit
from spillover.model.request import Refusal
from spillover.model.unlike_servers import REFUSE
from spillover.policy.overflow.admission import (
    foreign_waiting_max,
    is_full,
    is_too_late,
    takes_foreign,
)
from spillover.policy.overflow.base import accept_probability
from spillover.policy.overflow.degradation import BAD, SAME, degraded_rank


class Admission:
    """The admission to the queue. It looks at the servers and the visits that wait for them, and
    changes neither. When to drain is the machine's business."""

    def __init__(
        self,
        settings: NodeSettings,
        servers: ServerPool,
        *,
        health: Health,
        neighbors: Neighbors,
        held: HeldBytes,
    ) -> None:
        self.draining = False
        """True while nothing is taken from neighbors."""
        self.emptying = False
        """True when clients' requests are not kept here either: the lame duck is over."""
        self.lame_until_s = math.inf
        """The instant at which the lame duck ends; infinity before and after one."""
        self.invites = False
        """Whether a neighbor may send a probe while work goes elsewhere. The machine sets it."""
        self.stalled = False
        """Whether the servers are all held for too long, and all neighbors fail work, one of them
        not all. The machine sets it (`evidence.is_stalled`)."""
        self.bounds_foreign = False
        """True where few neighbors' requests may wait. The machine sets it, by its policy."""
        self.hands_on = False
        """True where a neighbor's request can go on to another cluster. The machine sets it, by its
        policy."""
        self._refuses_blocked = servers.on_block == REFUSE
        self._health, self._here = health, health.here
        self._neighbors = neighbors
        self._settings = settings
        self._servers = servers
        self._held = held

    def use(self, settings: NodeSettings) -> None:
        self._settings = settings

    def drain(self, now_s: float, lame_duck_s: float, *, drains: bool) -> None:
        """Set whether the cluster drains now, and until when clients do not notice: for
        `lame_duck_s` from the beginning of a drain on, but no longer than was said before in the
        same drain."""
        was_serving, until_s = not self.emptying, now_s + lame_duck_s
        if self.draining:
            until_s = min(until_s, self.lame_until_s)
        self.draining = drains
        self.emptying = drains and not (was_serving and until_s > now_s)
        self.lame_until_s = until_s if drains and not self.emptying else math.inf

    @property
    def foreign_waiting_limit(self) -> int:
        """Returns how many of the neighbors' requests may wait, whichever rule sets the limit."""
        limit, servers = self._settings.foreign_limit, self._settings.servers
        return min(foreign_waiting_max(servers), limit) if self.bounds_foreign else limit

    @property
    def rank(self) -> float:
        """Returns how good a place for work this cluster is; 0 where it is well."""
        if self._servers.down:
            return math.inf
        here = self._here
        return degraded_rank(here.share.last, 0) if here.degraded else 0.0

    @property
    def elsewhere_first(self) -> bool:
        """Returns whether work should go to neighbors even if there is room here: the cluster
        rests, or is degraded and can reach a better one. If all fail alike, none is worse than
        another."""
        if self._servers.resting:
            return True
        if not self._here.degraded:
            return False
        return self._neighbors.knowledge().best + SAME < self.rank

    @property
    def relay_hops(self) -> int:
        """Returns how many hops away the cluster is that is well and gets all work, as this one is
        not well. Returns 0 if this one is well, or if a neighbor's request could get to no such
        cluster."""
        if not (self._here.degraded or self._servers.down) or not self.hands_on:
            return 0
        best = self._neighbors.knowledge().best
        return int(best) + 1 if best + 2.0 <= min(self._settings.max_hops, BAD) else 0

    def takes(self, fitting: FittingServers) -> bool:
        """Returns whether a neighbor's request that these servers fit would be accepted now."""
        servers = self._servers
        if self.draining or not self._held.takes_foreign:
            return False
        if servers.down or not fitting.working or (self._here.degraded and self.relay_hops):
            return self.relay_hops > 0
        is_ready = fitting.ready
        if self.elsewhere_first:
            return self.invites and is_ready
        if is_ready:
            return True
        if self._refuses_blocked or self.stalled:
            return False
        has_room = takes_foreign(0, servers.site_waiting, self._settings.foreign_limit)
        return has_room and not self._has_enough_foreign(fitting)

    def accept_probability(self, fitting: FittingServers, waiting: int) -> float:
        """Returns P of these servers, for which so many wait: 0 where nothing is accepted whatever
        N is, small where only a probe is. Stuck servers do not count as servers."""
        if not self.takes(fitting):
            return 0.0
        if self._servers.down or self.elsewhere_first:
            return SLOW_START_SHARE if self.invites and fitting.ready else 0.0
        return accept_probability(waiting, fitting.working) * self._health.start_share

    def objection(self, visit: Visit, now_s: float) -> Refusal | None:
        """Returns why the visit should not join the queue; None if it may."""
        settings, servers, is_home = self._settings, self._servers, visit.is_home
        fitting = visit.group.fitting
        why: Refusal | None = None
        if self.emptying or (self.draining and not is_home):
            why = Refusal.DRAINING
        elif servers.down or not (fitting.up if is_home else fitting.working):
            why = Refusal.NO_SERVERS if visit.group.is_known else Refusal.UNKNOWN_TYPE
        elif not is_home and self.elsewhere_first:
            why = Refusal.DEGRADED
        elif servers.has_seats and servers.seats(visit):
            pass  # it waits at a server, not in the queue
        elif self._refuses_blocked and (fitting.resting or self.blocks(visit)):
            why = Refusal.NO_SERVERS if fitting.resting else Refusal.BLOCKED
        elif is_full(
            servers.site_waiting, is_home, settings.queue_limit, settings.foreign_limit
        ) or (
            # A request that was asked for has a server, or will have one when it is here.
            not (is_home or visit.pulled) and self._has_enough_foreign(fitting)
        ):
            why = Refusal.QUEUE_FULL
        else:
            stay_s = servers.stay_s(visit, now_s)
            if stay_s and is_too_late(stay_s, visit.deadline_s - now_s, is_home):
                why = Refusal.TOO_LATE
        return why

    def blocks(self, visit: Visit) -> bool:
        """Returns whether servers that fit the visit take jobs, and none of them has a place."""
        servers, fitting = self._servers, visit.group.fitting
        if servers.down or fitting.resting or not fitting.up:
            return False
        return not (servers.may_start(visit) or servers.seats(visit))

    def _has_enough_foreign(self, fitting: FittingServers) -> bool:
        """Returns whether as many of the neighbors' requests wait for these servers as may. There
        is no bound for a neighbor that fails its work, and has to have it done."""
        if not self.bounds_foreign or fitting.site_foreign < foreign_waiting_max(fitting.up):
            return False
        return not self._neighbors.any_fails
