"""Random histories of a federation whose configuration changes: all drawn from one seed, checked
after each event, and at last mended, so that everything must come to its end.

Operators set configurations, at times two at once; clusters are added, removed, started and ended.
In rough histories nodes die and are started with an old file or the present one, and links are cut.
Some histories end with a node that is dead, or a link that is cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations

from spillover.model.faults import Direction, LinkFault
from spillover.model.ids import ClusterId
from spillover.model.topology import Cluster, Link, Topology
from spillover.sim.engine.world import World, stream
from spillover.sim.overflow.federation import request_of
from spillover.sim.overflow.network import Channel
from support.histories.configuration_checker import Checker
from support.histories.configured_site import Site

IDS = tuple(ClusterId(name) for name in "abcde")
WAY_S = (0.002, 0.02, 0.1)
BUSY_S = 6.0
"""Requests come, configurations are set and troubles begin within so long."""

BURST_S = 0.5
"""Most requests come within so long, at one cluster."""

REQUESTS_MAX = 20
CHANGES_MAX = 4
TROUBLES_MAX = 3
LASTS_S = (0.1, 1.0, 7.0)
"""How long troubles last, at most. The longest ends with requests given up by their links."""

DEADLINE_S = 60.0
LOOK_S = 0.5
SETTLE_S_MAX = 50.0
"""So long after the last trouble nothing may be left to be done: less than a link that is parted
from stays at most, so that none of them needs that."""


@dataclass(slots=True)
class Told:
    """What one history was like."""

    requests: Counter[str] = field(default_factory=Counter)
    """By outcome."""
    happened: Counter[str] = field(default_factory=Counter)
    """Changes by kind, troubles by kind, and what came of proposals."""
    versions: int = 0
    """How many living nodes went by at the end; more than one where some cannot hear others."""
    simulated_s: float = 0.0


class History:
    """The history of this seed. `play` it; raises `Broken` where anything does not hold."""

    def __init__(self, seed: int) -> None:
        self.told = Told()
        self.world = World()
        self._random = random = stream(seed, "membership history")
        self.rough = random.random() < 0.6
        self._keyed = random.random() < 0.5
        self.checker = Checker(seed)
        first = self._first()
        whole = replace(first, clusters=tuple(self._cluster(name) for name in IDS))
        self.sites = {
            name: Site(
                first if name in first.cluster_ids else whole, name, self.world, seed, self.checker
            )
            for name in IDS
        }
        self._links = {pair: random.choice(WAY_S) for pair in combinations(IDS, 2)}
        self.channels: dict[Direction, Channel] = {
            (x, y): Channel(self.world, seed, f"link/{x}/{y}", way_s)
            for pair, way_s in self._links.items()
            for x, y in (pair, pair[::-1])
        }
        self.checker.watch(self.sites, self.channels)
        for name, site in self.sites.items():
            if name not in first.cluster_ids:
                site.crash()
            site.connect(self.sites, self.channels)
        for name in first.cluster_ids:
            for end in self.sites[name].ends.values():
                end.listener.begin()
        self._ended_s = 0.0
        """When the last of what was planned is over."""

    def _cluster(self, name: ClusterId) -> Cluster:
        random = self._random
        return Cluster(
            id=name,
            servers=random.choice((1, 1, 2, 3)),
            service_ms=random.choice((50.0, 200.0, 1000.0)),
            queue_limit=1000,
            url=f"http://{name}",
        )

    def _first(self) -> Topology:
        random = self._random
        names = sorted(random.sample(IDS, random.choice((3, 4, 5))))
        pairs = [(random.choice(names[:k]), names[k]) for k in range(1, len(names))]
        pairs += [pair for pair in combinations(names, 2) if random.random() < 0.4]
        return Topology(
            name="histories",
            policy=random.choice(("paper", "two-choice", "adaptive")),
            gossip_period_ms=random.choice((200.0, 500.0, 1000.0)),
            clusters=tuple(self._cluster(name) for name in names),
            links=tuple(Link(between=pair, delay_ms=self._delay_ms()) for pair in sorted({*pairs})),
        )

    def _delay_ms(self) -> float:
        return self._random.choice((2.0, 20.0, 100.0))

    # --- what happens -------------------------------------------------------------------------

    def play(self) -> Told:
        """Let it all happen."""
        random = self._random
        hot, burst_s = random.choice(IDS), random.random() * BUSY_S
        for number in range(random.randint(5, REQUESTS_MAX)):
            if random.random() < 0.7:
                self._plan(burst_s + random.random() * BURST_S, self._submit, number, hot)
            else:
                self._plan(random.random() * BUSY_S, self._submit, number, random.choice(IDS))
        for _ in range(random.randint(1, CHANGES_MAX)):
            self._plan_change(random.random() * BUSY_S)
        for _ in range(random.randint(1, TROUBLES_MAX) if self.rough else 0):
            self._plan_trouble(random.random() * BUSY_S)
        while self.world.now_s < self._ended_s:  # what happens may plan more
            self._until(self._ended_s)
        settled_s = self.world.now_s + SETTLE_S_MAX
        while self.world.now_s < settled_s and self.checker.unsettled():
            self._until(self.world.now_s + LOOK_S)
        self.checker.settled(self.world.now_s)
        self.told.simulated_s = self.world.now_s
        self.told.requests = self.checker.ends
        self.told.versions = len(self.checker.stamps)
        return self.told

    def _plan(self, at_s: float, happen: Callable[..., None], *args: object) -> None:
        self.world.at(at_s, happen, *args)
        self._ended_s = max(self._ended_s, at_s)

    def _until(self, until_s: float) -> None:
        self.world.at(until_s, lambda: None)
        self.world.run(lambda: self.world.now_s >= until_s)

    def _submit(self, number: int, home: ClusterId) -> None:
        """A client takes a node that is there and is not being removed, as far as that knows."""
        serving = [s for s in self.sites.values() if s.alive and not s.machine.draining]
        if not serving:
            return
        site = self.sites[home] if self.sites[home] in serving else self._random.choice(serving)
        work_s = self._random.choice((0.05, 0.5, 2.0))
        request = request_of(number, None, work_s, "default", keyed=self._keyed)
        client = self.checker.submitted(request, site)
        site.submit(
            request,
            self.world.now_s + DEADLINE_S,
            lambda answer: self.checker.answered(client, answer, self.world.now_s),
            lambda _: self.checker.refused(client, self.world.now_s),
            lambda: self.checker.lost(client, self.world.now_s),
        )

    # --- changes ------------------------------------------------------------------------------

    def _plan_change(self, at_s: float) -> None:
        """One, or two at once at two nodes that have not heard of each other's."""
        self._plan(at_s, self._change)
        if self._random.random() < 0.4:
            self._plan(at_s + self._random.choice((0.0, 0.01, 0.1)), self._change)

    def _change(self) -> None:
        members = [site for site in self.sites.values() if site.alive and not site.member.removed]
        if not members:
            return
        site = self._random.choice(members)
        topology = site.configuration.current.topology
        for _ in range(self._random.choice((1, 1, 2))):
            topology = self._changed(topology, site.id)
        taken = len(site.taken)
        site.propose(topology)
        if len(site.taken) == taken:
            self.told.happened["refused"] += 1
            return
        self.told.happened["taken"] += 1
        file = replace(topology, version=site.stamp.version)
        for name in sorted({*IDS} - {*topology.cluster_ids}):
            if self._random.random() < 0.5:
                self._plan(self.world.now_s + self._random.random() * 5.0, self._end, name)
        for name in topology.cluster_ids:
            if not self.sites[name].alive and self.checker.is_absent(self.sites[name]):
                self._plan(self.world.now_s + self._random.random() * 2.0, self._start, name, file)

    def _changed(self, topology: Topology, own: ClusterId) -> Topology:
        """Another one, in which all are connected."""
        kinds = (self._add, self._remove, self._add_link, self._remove_link, self._settings)
        while True:
            change = self._random.choice(kinds)
            changed = change(topology, own)
            if changed is not None and _is_connected(changed):
                self.told.happened[change.__name__.strip("_")] += 1
                return changed

    def _add(self, topology: Topology, _: ClusterId) -> Topology | None:
        missing = [name for name in IDS if name not in topology.cluster_ids]
        if not missing:
            return None
        name = self._random.choice(missing)
        ends = self._random.sample(topology.cluster_ids, min(2, len(topology.clusters)))
        links = tuple(Link(between=(end, name), delay_ms=self._delay_ms()) for end in ends)
        cluster = self.sites[name].member.topology.cluster(name)
        clusters = (*topology.clusters, cluster)
        return replace(topology, clusters=clusters, links=(*topology.links, *links))

    def _remove(self, topology: Topology, own: ClusterId) -> Topology | None:
        others = [name for name in topology.cluster_ids if name != own]
        if not others:
            return None
        name = self._random.choice(others)
        clusters = tuple(cluster for cluster in topology.clusters if cluster.id != name)
        links = tuple(link for link in topology.links if name not in link.between)
        return replace(topology, clusters=clusters, links=links)

    def _add_link(self, topology: Topology, _: ClusterId) -> Topology | None:
        linked = {frozenset(link.between) for link in topology.links}
        missing = [
            pair for pair in combinations(topology.cluster_ids, 2) if frozenset(pair) not in linked
        ]
        if not missing:
            return None
        link = Link(between=self._random.choice(missing), delay_ms=self._delay_ms())
        return replace(topology, links=(*topology.links, link))

    def _remove_link(self, topology: Topology, _: ClusterId) -> Topology | None:
        if not topology.links:
            return None
        gone = self._random.choice(topology.links)
        return replace(topology, links=tuple(one for one in topology.links if one is not gone))

    def _settings(self, topology: Topology, _: ClusterId) -> Topology | None:
        random = self._random
        changed = random.choice(topology.clusters)
        other = replace(changed, servers=random.choice((1, 2, 3)), queue_limit=500)
        clusters = tuple(other if one is changed else one for one in topology.clusters)
        links = tuple(replace(link, delay_ms=self._delay_ms()) for link in topology.links)
        max_hops, policy = random.choice((1, 3, 16)), random.choice(("paper", "adaptive"))
        return replace(topology, clusters=clusters, links=links, max_hops=max_hops, policy=policy)

    # --- nodes that are started and ended, and troubles ---------------------------------------

    def _start(self, name: ClusterId, file: Topology) -> None:
        """An operator starts the node of a cluster that was added."""
        if not self.sites[name].alive:
            self.told.happened["started"] += 1
            self.sites[name].start_with(file)
            self._plan(self.world.now_s, lambda: None)

    def _end(self, name: ClusterId) -> None:
        """An operator ends the node of a cluster that was removed, once that has nothing left."""
        site = self.sites[name]
        if site.alive and site.member.removed and site.may_end:
            self.told.happened["ended"] += 1
            site.crash()

    def _plan_trouble(self, at_s: float) -> None:
        random = self._random
        lasts_s = random.random() * random.choice(LASTS_S)
        left = random.random() < 0.05
        kind = random.choice((self._cut, self._die, self._die))
        self._plan(at_s, kind, None if left else lasts_s)

    def _cut(self, lasts_s: float | None) -> None:
        """Some are cut off from the others, one way or both."""
        self.told.happened["cut"] += 1
        self.checker.trouble()
        some = set(self._random.sample(IDS, self._random.choice((1, 2))))
        one_way = self._random.random() < 0.2
        cut = [
            channel
            for (x, y), channel in self.channels.items()
            if (x in some and y not in some) or (not one_way and y in some and x not in some)
        ]
        for channel in cut:
            channel.change(LinkFault(at_s=0.0, action="cut", directions=()))
        if lasts_s is not None:
            for channel in cut:
                self._plan(self.world.now_s + lasts_s, channel.heal)

    def _die(self, lasts_s: float | None) -> None:
        """A node dies, and is started again with the file that it had, or with what counted."""
        alive = [site for site in self.sites.values() if site.alive]
        if not alive:
            return
        self.told.happened["died"] += 1
        self.checker.trouble()
        site = self._random.choice(alive)
        file, current = site.file, site.configuration.current
        if self._random.random() < 0.5 and not site.member.removed:
            file = replace(site.member.topology, version=current.stamp.version)
        self.checker.died(site)
        site.crash()
        if lasts_s is not None:
            self._plan(self.world.now_s + lasts_s, partial(self._restart, site, file))

    def _restart(self, site: Site, file: Topology) -> None:
        if not site.alive:
            self.told.happened["restarted"] += 1
            site.start_with(file)
            self._plan(self.world.now_s, lambda: None)


def _is_connected(topology: Topology) -> bool:
    names = topology.cluster_ids
    reached, new = {names[0]}, [names[0]]
    while new:
        near = topology.neighbors(new.pop())
        fresh = [neighbor.id for neighbor in near if neighbor.id not in reached]
        reached.update(fresh)
        new += fresh
    return len(reached) == len(names)
