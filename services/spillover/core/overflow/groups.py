"""The groups of types, as one cluster sees them: each is a federation of its own, on the same links
(decision 0038). What is known of neighbors, asked of them and brought by the own clients is kept by
group. Which neighbors there are, and which live, is the same for all groups.

A federation of plain clusters has a single group. A federation with unlike servers has one for each
`model.type_groups.TypeGroup`, and one for the types that no pool names, which plain clusters serve.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from spillover.core.overflow.group_tables import FederationNeighbors, GroupNeighbors
from spillover.core.overflow.home_load import HomeLoad
from spillover.core.overflow.neighbors import Neighbors
from spillover.core.overflow.pool import FittingServers, ServerPool
from spillover.core.overflow.pulling import ENDS, Pulling
from spillover.core.overflow.settings import NodeSettings
from spillover.core.overflow.visit import Visit
from spillover.model.ids import ClusterId
from spillover.model.type_groups import TypeGroup
from spillover.policy.overflow.base import OwnLoad

WHOLE = ""
"""The id of the only group, or of the group of types that no pool names."""


class NoServers:
    """The servers that fit a group which is not served here, and estimates of what they can do."""

    up = working = waiting = waiting_foreign = site_waiting = site_foreign = ahead = idle = 0
    ready = resting = False
    lines = 1
    departure_s = 0.0
    """The departure time of no servers, which is not told."""
    residual = 1.0

    def __init__(self, service_s: float) -> None:
        self.service_s = service_s

    def own_load(
        self,
        visit: Visit,
        _: bool,  # noqa: FBT001 - as `ServerPool`
        load: float,
        now_s: float,
        unreported: tuple[int, ...],
    ) -> OwnLoad:
        """Returns a load with which the request cannot stay."""
        service_s, hops, may_keep = self.service_s, visit.request.hops, False
        return OwnLoad(0, 1, may_keep, service_s, service_s, 1.0, load, hops, now_s, unreported)

    def retry_after_s(self, _: Visit, now_s: float) -> float:
        return 0.0


class Group:
    """One group at one cluster. Its servers are `fitting`, of a pool that estimates what they can
    do."""

    def __init__(
        self,
        group: TypeGroup,
        fitting: FittingServers,
        estimates: ServerPool | NoServers,
        neighbors: Neighbors,
        pulling: Pulling,
        home_load: HomeLoad,
    ) -> None:
        self.id = group.id
        self.served_by = group.served_by
        self.fitting = fitting
        self.estimates = estimates
        self.is_alike = fitting is estimates
        """True where all own servers fit it, or none."""
        self.neighbors = neighbors
        """The table of neighbors, as far as it concerns this group."""
        self.pulling = pulling
        self.home_load = home_load
        self.started_s = 0.0
        """The time when a visit of the group last began to be served here."""
        self.is_known = True
        """True if this cluster or a neighbor serves the group, by the topology."""


class Groups:
    """The groups of one cluster, which has these servers and, at first, these neighbors (id,
    one-way delay in seconds). `beat_s` is the period of signs of life."""

    def __init__(
        self,
        settings: NodeSettings,
        servers: ServerPool,
        neighbors: Sequence[tuple[ClusterId, float]],
        beat_s: float,
        random: Random,
        now_s: float,
    ) -> None:
        self._told = settings.type_groups
        self._own = settings.cluster
        self._period_s = settings.gossip_period_s
        self._random = random
        self._ends = dict.fromkeys(ENDS, 0)
        """The ends of questions for work, in all groups."""
        self.home_load = HomeLoad(now_s)
        """The load that own clients bring, in all groups."""
        ids, delays_s = [one for one, _ in neighbors], [delay_s for _, delay_s in neighbors]
        told = (self._own, ids, delays_s, beat_s, self._period_s, settings.passes)
        self.only: Group | None = None
        """The only group, where there is one; None where a visit's type says which is its own."""
        self._by_type: dict[str, Group] = {}
        if not self._told.groups:
            self.neighbors = Neighbors(*told)
            whole = TypeGroup(WHOLE, (), frozenset())
            pulling = self._pulling(self.neighbors)
            fitting = servers.fitting(0)
            told_of = (self.neighbors, pulling, self.home_load)
            self.rest = Group(whole, fitting, servers, *told_of)
            self.only = self.rest
            self.all: tuple[Group, ...] = (self.rest,)
            self.named: tuple[Group, ...] = ()
            """The groups that reports tell of: those served here."""
        else:
            rest = TypeGroup(WHOLE, (), self._told.plain)
            nobody = NoServers(settings.service_s)
            made = []
            for index, group in enumerate((*self._told.groups, rest)):
                table = GroupNeighbors(group, *told)
                told_of = (table, self._pulling(table), HomeLoad(now_s))
                if self._own in group.served_by:
                    made.append(Group(group, servers.fitting(index), servers, *told_of))
                else:
                    made.append(Group(group, nobody, nobody, *told_of))
                self._by_type.update(dict.fromkeys(group.types, made[-1]))
            self.neighbors = FederationNeighbors([group.neighbors for group in made], *told)
            self.all, self.rest = tuple(made), made[-1]
            self.named = tuple(each for each in made[:-1] if self._own in each.served_by)
        for each in self.all:
            each.started_s = now_s
        self.by_id = {group.id: group for group in self.all}
        self.neighbors_changed()

    def _pulling(self, table: Neighbors) -> Pulling:
        return Pulling(table, self._period_s, self._random, self._ends)

    def of(self, kind: str) -> Group:
        """Returns the group of this type, where there are several."""
        return self._by_type.get(kind, self.rest)

    @property
    def types(self) -> tuple[str, ...]:
        """Returns the types that are named and served by this cluster or a neighbor."""
        return self._told.reached_from(self._own, self.neighbors.ids)

    @property
    def asks_under_way(self) -> int:
        return sum(group.pulling.coming for group in self.all)

    def neighbors_changed(self) -> None:
        """Note that the neighbors have changed. A neighbor that the topology did not have at the
        start may serve anything."""
        if self.only is not None:
            return
        near = {self._own, *self.neighbors.ids}
        every = self._told.plain.union(*(group.served_by for group in self.all))
        for group in self.all:
            group.is_known = bool(near & group.served_by or near - every)

    def forget(self, neighbor: int) -> None:
        """Forget the questions for work that went there: no answer will come."""
        for group in self.all:
            group.pulling.forget(neighbor)

    def check(self) -> None:
        self.neighbors.check()
        for group in self.all:
            group.pulling.check()
