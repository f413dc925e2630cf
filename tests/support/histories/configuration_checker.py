"""What must hold of a federation whose configuration changes, while it does and at the end.

All of `sim.overflow.checkers`, and besides: nobody goes back to an older configuration in one life;
no link is closed while anything is left of it; no request ends otherwise than done, unless its home
died, or something had gone wrong before and it had no key. At the end, nodes that can hear each
other go by one configuration, the links are those that it has, at both ends, and whoever took
another one knows that it lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

from spillover.core.overflow import events as ev
from spillover.core.overflow.visit import VisitState
from spillover.model.configuration import Stamp
from spillover.model.faults import Direction
from spillover.model.ids import ClusterId
from spillover.model.request import Answer, Outcome
from spillover.sim.overflow.checkers import Checker as OverflowChecker
from spillover.sim.overflow.checkers import Client
from spillover.sim.overflow.faulty_cluster import FaultyCluster
from spillover.sim.overflow.network import Channel
from support.histories.configured_site import Site

MAX_HOPS = 16
"""The most that any configuration of a history allows."""


class Checker(OverflowChecker):
    """Looks on at the sites of one history. Raises `Broken` at once."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, MAX_HOPS)
        self._sites: Mapping[ClusterId, Site] = {}
        self._channels: Mapping[Direction, Channel] = {}
        self._stamps: dict[tuple[ClusterId, int], Stamp] = {}
        self._dead: set[ClusterId] = set()
        """Nodes that somebody else than an operator ended."""
        self._troubled = False
        self.ends: Counter[str] = Counter()
        """What came of requests."""
        self.stamps: set[Stamp] = set()
        """What living nodes of clusters that are not removed went by at the end."""

    def watch(self, sites: Mapping[ClusterId, Site], channels: Mapping[Direction, Channel]) -> None:
        """These are all that there can be."""
        self._sites, self._channels = sites, channels

    # --- while it goes on ---------------------------------------------------------------------

    def trouble(self) -> None:
        """From now on a request without a key may be lost."""
        self._troubled = True

    def died(self, site: Site) -> None:
        self._dead.add(site.id)

    def is_absent(self, site: Site) -> bool:
        """Returns whether it is not there because nobody has started it."""
        return not site.alive and site.id not in self._dead

    def answered(self, client: Client, answer: Answer, now_s: float) -> None:
        super().answered(client, answer, now_s)
        self.ends[answer.outcome] += 1
        self.ends["forwarded"] += len(answer.path) > 1
        may_be_lost = self._troubled and not client.request.keyed
        allowed = {Outcome.DONE, Outcome.UNKNOWN} if may_be_lost else {Outcome.DONE}
        if answer.outcome not in allowed:
            self._fail(f"{client.request.id} ended {answer.outcome}: {answer.problem}", now_s)

    def refused(self, client: Client, now_s: float) -> None:
        super().refused(client, now_s)
        self._fail(f"{client.request.id} was refused by {client.home}, which serves", now_s)

    def lost(self, client: Client, now_s: float) -> None:
        super().lost(client, now_s)
        self.ends["lost"] += 1

    def after(self, cluster: FaultyCluster, event: Any, now_s: float, commands: list[Any]) -> None:
        super().after(cluster, event, now_s, commands)
        site = cast("Site", cluster)
        if (configuration := getattr(site, "configuration", None)) is None:
            return
        stamp, life = configuration.current.stamp, (site.id, site.life)
        if stamp < self._stamps.get(life, stamp):
            self._fail(f"back to {stamp} from {self._stamps[life]}", now_s, cluster)
        self._stamps[life] = stamp
        for command in commands:
            if type(command) is ev.Disconnect:
                self._closed(cluster, command.neighbor, now_s)

    def _closed(self, cluster: FaultyCluster, handle: int, now_s: float) -> None:
        for visit in cluster.machine.register.visits.values():
            is_there = visit.state is VisitState.AWAY and visit.target.handle == handle
            if is_there or visit.origin == handle:
                what = f"the link closed over which {visit.request.id} is away or has come"
                self._fail(what, now_s, cluster)

    # --- the end ------------------------------------------------------------------------------

    def unsettled(self) -> str:
        """Returns what is left to be done, in words; empty if that is nothing."""
        if self.waiting:
            return f"{self.waiting} clients wait"
        if self.outstanding(self._sites.values()):
            return "requests are left"
        for site in self._sites.values():
            if site.alive and (left := self._left_at(site)):
                return f"{site.id} {left}"
        return self._divided()

    def _left_at(self, site: Site) -> str:
        machine, member = site.machine, site.member
        wanted = set() if member.removed else {n.id for n in member.topology.neighbors(site.id)}
        if set(machine.neighbors.ids) != wanted:
            return f"has links to {machine.neighbors.ids}, and not to {sorted(wanted)}"
        for row in machine.neighbors:
            if row.handle in machine.parting:
                return f"parts from {row.id}"
            one_way = self._cut(site.id, row.id) != self._cut(row.id, site.id)
            if not one_way and row.known != self._hears(site.id, row.id):
                return f"knows {row.id}: {row.known}"
        if site.member.removed != machine.draining or (site.member.removed and not machine.drained):
            return "is removed and not drained, or the other way round"
        policy, max_hops = site.member.topology.policy, site.member.topology.max_hops
        servers = site.member.topology.cluster(site.id).server_count
        settings = machine.settings
        if (machine.policy, settings.max_hops, settings.servers) != (policy, max_hops, servers):
            return "has other settings than its configuration"
        return self._not_told(site)

    def _not_told(self, site: Site) -> str:
        """Whether what an operator last got taken in this life is lost, and nobody says so. It may
        have been lost and have come back with one that was built on it."""
        current, superseded = site.configuration.current, site.configuration.superseded
        mine = [stamp for life, stamp in site.taken if life == site.life]
        if not mine:
            return ""
        said = None if superseded is None else superseded.stamp
        if current.builds_on(mine[-1]) or said == mine[-1]:
            return ""
        return f"took {mine[-1]}, goes by {current.stamp}, and says superseded: {said}"

    def _divided(self) -> str:
        """Whether two go by different ones of which one hears the other: it asks for reports, or
        is asked for them."""
        for (x, y), channel in self._channels.items():
            one, other = self._sites[x], self._sites[y]
            may_speak = one.alive and other.alive and not (channel.cut or self._cut(y, x))
            if may_speak and y in one.machine.neighbors.index and one.stamp != other.stamp:
                return f"{x} goes by {one.stamp}, and {y} by {other.stamp}"
        return ""

    def _cut(self, x: ClusterId, y: ClusterId) -> bool:
        return self._channels[x, y].cut

    def _hears(self, x: ClusterId, y: ClusterId) -> bool:
        """Whether y lives, has the link too, and nothing is cut between the two."""
        other = self._sites[y]
        linked = x in other.machine.neighbors.index
        return other.alive and linked and not (self._cut(x, y) or self._cut(y, x))

    def settled(  # type: ignore[override]
        self, now_s: float
    ) -> None:
        """Time enough has passed since the last disturbance."""
        if left := self.unsettled():
            self._fail(f"it does not end: {left}", now_s)
        for site in self._sites.values():
            if site.alive:
                self._check_machine(site, now_s, complete=True)
        living = [site for site in self._sites.values() if site.alive]
        self.stamps = {site.stamp for site in living if not site.member.removed}
