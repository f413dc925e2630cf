"""Rules of others for where a request is served, each after its published description, on the
requests of `reproduce policies`.

Sites are FIFOs in front of servers, as ours are, with links and reports as they are set; a request
moves once at most. What a rule leaves open is chosen in its favor: its thresholds are the best of
several, the servers of a site share a queue, and nothing is lost or refused. Sources:

- `Envoy`: Envoy 1.40, load_aware_locality.rst and its proto.
- `Grid`: praxis-proxy/grid, docs/site-selection.md.
- `Prequal`: Wydrowski et al., NSDI 2024 (arXiv 2312.10172).
- `Gorgo`: arXiv 2602.11688, in its distributed form; without caches its cost is way and queue.
- `SkyWalker`: arXiv 2505.24095 (EuroSys 2026), and its authors' sky/serve/load_balancer.py.
- `Nats`: NATS ADR-42 and docs.nats.io/learn/jetstream/priority-groups.md, policy `overflow`.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random
from statistics import fmean
from typing import NamedTuple, TypeAlias

from spillover.model.topology import Topology
from spillover_lab.rivals.rules import ENVOY_PROBE, ENVOY_VARIANCE, PREQUAL_HOT

ENVOY_EVERY_S, ENVOY_SMOOTHING_S = 1.0, 5.0
"""Envoy computes its weights so often, of utilizations that are averaged over so long."""
AFTER_S = 1e-9
"""What comes with a report is seen so long after it: else rounding could show the one before."""
NATS_PENDING = (1, 2, 4, 8)
"""The thresholds of NATS that are tried."""


class Asked(NamedTuple):
    """A request: when it came, where, and what it takes."""

    number: int
    home: int
    time_s: float
    service_s: float


@dataclass(slots=True)
class Site:
    """A FIFO and its servers, and what both have been."""

    servers: int
    busy: int = 0
    queue: deque[Asked] = field(default_factory=deque)
    times_s: list[float] = field(default_factory=lambda: [-math.inf])
    states: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    """Servers that are busy, and requests that wait, from each of the times on."""

    def note(self, now_s: float) -> None:
        self.times_s.append(now_s)
        self.states.append((self.busy, len(self.queue)))

    def at(self, time_s: float) -> tuple[int, int]:
        return self.states[bisect_right(self.times_s, time_s) - 1]


class Sites:
    """All sites, what lies between them, and what each knows."""

    def __init__(self, topology: Topology) -> None:
        ids = topology.cluster_ids
        self.all = [Site(cluster.server_count) for cluster in topology.clusters]
        self.period_s = topology.gossip_period_ms / 1e3
        self.ways_s = [
            {ids.index(one.id): one.delay_ms / 1e3 for one in topology.neighbors(cluster)}
            for cluster in ids
        ]
        self.sent_s: dict[tuple[int, int], deque[float]] = {
            (site, to): deque() for site, ways_s in enumerate(self.ways_s) for to in ways_s
        }
        """When what a site has sent to a neighbor comes there, as far as no report has told it."""
        self.own = [dict.fromkeys((site, *ways_s), 0) for site, ways_s in enumerate(self.ways_s)]
        """The number of its requests that a site has under way at each."""

    def known(self, viewer: int, site: int, now_s: float) -> tuple[int, int, int]:
        """Returns the busy servers and the waiting requests in a site's last report, and what the
        viewer has sent there that is not in it."""
        if viewer == site:
            return self.all[site].busy, len(self.all[site].queue), 0
        told_s = (now_s - self.ways_s[viewer][site]) // self.period_s * self.period_s
        sent_s = self.sent_s[viewer, site]
        while sent_s and sent_s[0] <= told_s:
            sent_s.popleft()
        return *self.all[site].at(told_s), len(sent_s)

    def next_report_s(self, viewer: int, now_s: float) -> float:
        return min(
            ((now_s - way_s) // self.period_s + 1) * self.period_s + way_s + AFTER_S
            for way_s in self.ways_s[viewer].values()
        )


class Rule:
    """A rule that sends each request at once, and to its home if nothing else is said."""

    pulls = False
    """Whether sites hear of free servers as they become free, and from reports only otherwise."""
    looks_at_reports = False
    """Whether a report has a site look at its queue again."""

    def __init__(self, sites: Sites, seed: int) -> None:
        self.sites = sites
        self.draws = Random(seed)

    def choose(self, home: int, now_s: float) -> int:
        """Returns where a request that comes now is sent."""
        return home

    def spill(self, site: int, now_s: float) -> int | None:
        """Returns where the first request in a site's queue is sent; None to let it wait."""
        return None

    def places(self, home: int) -> list[int]:
        """Returns the site and its neighbors."""
        return [home, *self.sites.ways_s[home]]

    def rtt_s(self, home: int, site: int) -> float:
        return 2 * self.sites.ways_s[home].get(site, 0.0)


class Envoy(Rule):
    """All stays local while the local utilization is at most a little above the mean of the others,
    but for a few; else a site is chosen by lot, by its servers and their headroom."""

    def __init__(self, sites: Sites, seed: int) -> None:
        super().__init__(sites, seed)
        self.busy = [dict.fromkeys(self.places(home), 0.0) for home in range(len(sites.all))]
        self.due_s = [0.0] * len(sites.all)

    def choose(self, home: int, now_s: float) -> int:
        busy = self.busy[home]
        while self.due_s[home] <= now_s:
            share = 1 - math.exp(-ENVOY_EVERY_S / ENVOY_SMOOTHING_S)
            for site in busy:
                is_busy, _, _ = self.sites.known(home, site, self.due_s[home])
                busy[site] += share * (is_busy / self.sites.all[site].servers - busy[site])
            self.due_s[home] += ENVOY_EVERY_S
        others = [site for site in busy if site != home]
        if busy[home] <= fmean(busy[site] for site in others) + ENVOY_VARIANCE:
            return home if self.draws.random() >= ENVOY_PROBE else self.draws.choice(others)
        headroom = [self.sites.all[one].servers * max(1 - busy[one], 1e-6) for one in busy]
        return self.draws.choices(list(busy), headroom)[0]


class Grid(Rule):
    """Of two sites, drawn by what each can have without a queue, the one that has less of it; a
    gateway does not count what it has sent."""

    def choose(self, home: int, now_s: float) -> int:
        places = self.places(home)
        ceilings = [self.sites.all[site].servers for site in places]
        first = self.draws.choices(places, ceilings)[0]
        at = places.index(first)
        del places[at], ceilings[at]
        second = self.draws.choices(places, ceilings)[0]

        def share(site: int) -> float:
            is_busy, waiting, _ = self.sites.known(home, site, now_s)
            return (is_busy + waiting) / self.sites.all[site].servers

        return min(first, second, key=share)


class Prequal(Rule):
    """Of the sites that are not hot, which have less in flight than most, the one with the least
    latency: its wait and the way."""

    def choose(self, home: int, now_s: float) -> int:
        flying, latency_s = {}, {}
        for site in self.places(home):
            is_busy, waiting, sent = self.sites.known(home, site, now_s)
            servers = self.sites.all[site].servers
            flying[site] = (is_busy + waiting + sent) / servers
            wait_s = max(0, is_busy + waiting + sent + 1 - servers) / servers
            latency_s[site] = wait_s + self.rtt_s(home, site)
        hot = sorted(flying.values())[min(int(PREQUAL_HOT * len(flying)), len(flying) - 1)]
        cold = [site for site, share in flying.items() if share < hot]
        return min(cold, key=latency_s.__getitem__) if cold else min(flying, key=flying.__getitem__)


class Gorgo(Rule):
    """The least sum of the way and of what the home itself has under way there."""

    def choose(self, home: int, now_s: float) -> int:
        own = self.sites.own[home]

        def cost_s(site: int) -> float:
            return self.rtt_s(home, site) + own[site] / self.sites.all[site].servers

        return min(own, key=cost_s)


class SkyWalker(Rule):
    """Selective pushing: a request leaves its home's queue for a server that has nothing to do, at
    home or, if there is none, at the nearest site that has one by its last report."""

    looks_at_reports = True

    def spill(self, site: int, now_s: float) -> int | None:
        free = []
        for other, way_s in self.sites.ways_s[site].items():
            is_busy, waiting, sent = self.sites.known(site, other, now_s)
            if waiting == 0 and is_busy + sent < self.sites.all[other].servers:
                free.append((way_s, other))
        return min(free)[1] if free else None


class Nats(Rule):
    """Servers pull: their own site's queue always, others while so many wait there."""

    pulls = True

    def __init__(self, sites: Sites, seed: int, *, pending: int) -> None:
        super().__init__(sites, seed)
        self.pending = pending

    def spill(self, site: int, now_s: float) -> int | None:
        if len(self.sites.all[site].queue) < self.pending:
            return None
        open_pulls = []
        for other, way_s in self.sites.ways_s[site].items():
            is_busy, _ = self.sites.all[other].at(now_s - way_s)
            sent_s = self.sites.sent_s[site, other]
            while sent_s and sent_s[0] <= now_s - way_s:
                sent_s.popleft()
            if is_busy + len(sent_s) < self.sites.all[other].servers:
                open_pulls.append((way_s, other))
        return min(open_pulls)[1] if open_pulls else None


RuleOf: TypeAlias = Callable[[Sites, int], Rule]

QUEUE_RIVALS: Mapping[str, RuleOf] = {
    "Envoy": Envoy,
    "Grid": Grid,
    "Prequal": Prequal,
    "GORGO": Gorgo,
    "SkyWalker": SkyWalker,
    **{f"NATS {pending}": partial(Nats, pending=pending) for pending in NATS_PENDING},
}


def play(
    topology: Topology,
    requests: Sequence[tuple[float, int, float]],
    rule_of: RuleOf,
    seed: int,
) -> list[tuple[float, bool]]:
    """Plays requests: the time, the home, and the service of each, in s. Returns how long each was
    on its way there and back and in queues, and whether it was moved."""
    sites = Sites(topology)
    playing = _Playing(sites, rule_of(sites, seed))
    for number, (time_s, home, service_s) in enumerate(requests):
        playing.run_until(time_s)
        playing.ask(Asked(number, home, time_s, service_s))
    playing.run_until(math.inf)
    return [playing.ended[number] for number in range(len(requests))]


class _Playing:
    """One run: what is under way, and what has ended."""

    def __init__(self, sites: Sites, rule: Rule) -> None:
        self.ended: dict[int, tuple[float, bool]] = {}
        self._sites = sites
        self._rule = rule
        self._order = count()
        self._looking: set[int] = set()
        """Sites that look at their queue when the next report comes."""
        self._events: list[tuple[float, int, Callable[[float], None]]] = []

    def run_until(self, until_s: float) -> None:
        while self._events and self._events[0][0] <= until_s:
            due_s, _, then = heappop(self._events)
            then(due_s)

    def ask(self, asked: Asked) -> None:
        to = self._rule.choose(asked.home, asked.time_s)
        if to == asked.home:
            self._sites.own[to][to] += 1
            self._come(to, asked, asked.time_s)
        else:
            self._send(asked, to, asked.time_s)

    def _at(self, time_s: float, then: Callable[[float], None]) -> None:
        heappush(self._events, (time_s, next(self._order), then))

    def _send(self, asked: Asked, to: int, now_s: float) -> None:
        comes_s = now_s + self._sites.ways_s[asked.home][to]
        self._sites.sent_s[asked.home, to].append(comes_s)
        self._sites.own[asked.home][to] += 1
        self._at(comes_s, partial(self._come, to, asked))

    def _come(self, number: int, asked: Asked, now_s: float) -> None:
        queue = self._sites.all[number].queue
        # Who has pulled it has it in hand.
        is_pulled = self._rule.pulls and asked.home != number
        (queue.appendleft if is_pulled else queue.append)(asked)
        self._look(number, now_s)

    def _look(self, number: int, now_s: float) -> None:
        """Has the servers of a site take what waits, and the rule what they do not."""
        site = self._sites.all[number]
        while site.queue and site.busy < site.servers:
            asked = site.queue.popleft()
            site.busy += 1
            self._at(now_s + asked.service_s, partial(self._end, number, asked))
        while site.queue and site.queue[0].home == number:
            if (to := self._rule.spill(number, now_s)) is None:
                break
            self._sites.own[number][number] -= 1
            self._send(site.queue.popleft(), to, now_s)
        site.note(now_s)
        if site.queue and self._rule.looks_at_reports and number not in self._looking:
            self._looking.add(number)
            self._at(self._sites.next_report_s(number, now_s), partial(self._hear, number))

    def _hear(self, number: int, now_s: float) -> None:
        self._looking.remove(number)
        self._look(number, now_s)

    def _end(self, number: int, asked: Asked, now_s: float) -> None:
        way_s = self._sites.ways_s[asked.home].get(number, 0.0)
        waited_s = now_s + way_s - asked.time_s - asked.service_s
        self.ended[asked.number] = waited_s, number != asked.home
        self._sites.all[number].busy -= 1
        self._at(now_s + way_s, partial(self._back, asked.home, number))
        self._look(number, now_s)
        if self._rule.pulls:
            for other, other_way_s in self._sites.ways_s[number].items():
                self._at(now_s + other_way_s, partial(self._look, other))

    def _back(self, home: int, number: int, _: float) -> None:
        self._sites.own[home][number] -= 1
