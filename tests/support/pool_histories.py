"""Random histories of small pools of unlike servers, each checked after every event.

A seed is a whole history: one or two clusters, some jobs of some types, and what goes wrong in the
few seconds of it: crashes, pauses, servers that are down, slow or failing, limits that change,
servers out and in, drains, cancellations, deadlines, handlers that cannot be stopped.
"""

import math
from collections import Counter

from spillover.core.overflow import events as ev
from spillover.inputs.random_faults import random_faults
from spillover.model.faults import IN, OUT, FaultSchedule, TokensFault
from spillover.model.request import Request
from spillover.model.token_orders import ORDERS
from spillover.model.topology import Cluster, Link, Topology
from spillover.model.unlike_servers import DISCIPLINES, ON_BLOCK, JobType, Server, ServerClass
from spillover.sim.engine.world import World, stream
from spillover.sim.overflow.checkers import Checker, is_used
from spillover.sim.overflow.faults import Faults, build_faulty_federation

LASTS_S = 1.5
JOBS = 16
WORK_S = 0.25
CHECK_EVERY = 8
"""Events of a cluster after which its machine counts all that it holds. Its tokens are counted
after each."""

LOOK_S = 0.5
LIMIT_S = 240.0
"""Some work is long, on a slow server, and cannot be stopped."""

TYPES = ("t0", "t1", "t2")


def pool_of(random):
    """Some servers, each in a class, and types that may join some classes."""
    servers = [Server(id=f"s{k}", rate=random.choice((0.5, 1.0, 4.0))) for k in range(3)]
    servers = servers[: random.randint(1, 3)]
    ids = [server.id for server in servers]
    members = [set(random.sample(ids, random.randint(1, len(ids)))) for _ in range(3)]
    members = members[: random.randint(1, 3)]
    for server in ids:
        if not any(server in some for some in members):
            random.choice(members).add(server)
    classes = tuple(
        ServerClass(id=f"c{k}", servers=tuple(sorted(some)), tokens=random.randint(1, 3))
        for k, some in enumerate(members)
    )
    names = [each.id for each in classes]
    types = tuple(
        JobType(id=kind, classes=tuple(random.sample(names, random.randint(1, len(names)))))
        for kind in random.sample(TYPES, random.randint(1, len(TYPES)))
    )
    return {"servers": tuple(servers), "classes": classes, "types": types}


def topology_of(random):
    """One cluster with a pool, or two, of which one may have servers that are alike."""
    clusters = []
    for cluster in "ab"[: random.choice((1, 1, 2))]:
        plain = cluster == "b" and random.random() < 0.25
        fields = {"servers": 2} if plain else pool_of(random)
        if not plain:
            fields["discipline"] = random.choice(DISCIPLINES)
            fields["on_block"] = random.choice(ON_BLOCK)
            fields["order"] = random.choice(ORDERS)
        clusters.append(Cluster(id=cluster, service_ms=WORK_S * 1e3, queue_limit=8, **fields))
    links = (Link(between=("a", "b"), delay_ms=random.choice((0.0, 10.0))),)
    return Topology(
        name="history",
        policy=random.choice(("isolated", "paper", "two-choice", "adaptive", "adaptive")),
        clusters=tuple(clusters),
        links=links[: len(clusters) - 1],
        gossip_period_ms=random.choice((200.0, 500.0)),
    )


class History:
    """One of them; `seen` counts what has happened in it."""

    def __init__(self, seed):
        random = self.random = stream(seed, "pool history")
        self.world, self.seen, self.told = World(), Counter(), []
        self.topology = topology_of(random)
        named = [kind for group in self.topology.type_groups.groups for kind in group.types]
        self.types = (*named, *named, *named, *TYPES)
        """Mostly such as are served; those that are not are refused."""
        self.checker = Checker(seed, self.topology.max_hops, every=CHECK_EVERY)
        self.clusters, channels = build_faulty_federation(
            self.topology, self.world, seed, self.checker
        )
        schedule = random_faults(self.topology, seed, LASTS_S)
        self.faults = Faults(self.with_more(schedule), self.world, self.clusters, channels)
        for cluster in self.clusters.values():
            self.make_unstoppable(cluster)
        for number in range(JOBS):
            self.world.at(random.random() * LASTS_S, self.come, number)
        if random.random() < 0.3:
            self.world.at(random.random() * LASTS_S, self.drain)

    def with_more(self, schedule):
        """Besides what random schedules do to them: limits and servers change, and back at the
        end."""
        more = []
        for cluster in self.topology.clusters:
            pool, random = cluster.pool, self.random
            if pool is None:
                continue
            at = {"action": "tokens", "cluster": cluster.id}
            for _ in range(random.randint(0, 4)):
                limits = ((random.choice(pool.classes).id, random.randint(1, 4)),)
                said = ((random.choice(pool.servers).id, random.choice((OUT, IN, IN))),)
                which = random.choice(({"classes": limits}, {"servers": said}))
                more.append(TokensFault(at_s=random.random() * LASTS_S, **at, **which))
            limits = tuple((each.id, each.tokens) for each in pool.classes)
            said = tuple((each.id, IN) for each in pool.servers)
            more.append(TokensFault(at_s=LASTS_S, **at, classes=limits, servers=said))
        faults = sorted((*schedule.faults, *more), key=lambda fault: fault.at_s)
        self.seen.update(fault.action for fault in faults)
        made = FaultSchedule(schedule.name, tuple(faults))
        made.check(self.topology)
        return made

    @staticmethod
    def make_unstoppable(cluster):
        """Every other handler cannot be stopped."""
        stop = cluster._interpreters[ev.Stop]
        cluster._interpreters[ev.Stop] = lambda c: stop(c) if c.ref % 2 else None

    def come(self, number):
        """A client comes, and may change its mind."""
        random, now_s = self.random, self.world.now_s
        home = self.clusters[random.choice(sorted(self.clusters))]
        deadline_s = now_s + random.choice((0.05, 0.3, 2.0, 9.0, math.inf))
        work_s, kind = random.expovariate(1 / WORK_S), random.choice(self.types)
        keyed, cancels = random.random() < 0.5, random.random() < 0.3
        if not home.alive or home.paused:
            return
        request = Request(f"r{number}", keyed, work_s, type=kind)
        client = self.checker.submitted(request, home)
        told = []

        def answered(answer):
            told.append(answer.outcome)
            self.checker.answered(client, answer, self.world.now_s)

        def refused(refusal):
            told.append(refusal.reason)
            self.checker.refused(client, self.world.now_s)

        def lost():
            told.append("lost")
            self.checker.lost(client, self.world.now_s)

        home.submit(request, deadline_s, answered, refused, lost)
        if cancels:
            event = random.choice((ev.CancelAsked, ev.Cancelled))(home._refs)
            life = home.life
            at_s = now_s + random.random() * 0.3
            self.world.at(at_s, lambda: told or home._in_life(life, home.feed, event))
        self.told.append(told)

    def drain(self):
        cluster = self.clusters[self.random.choice(sorted(self.clusters))]
        self.seen["drain"] += 1
        cluster.deliver(cluster.feed, ev.Drain())
        until_s = self.world.now_s + self.random.random() * 0.5
        self.world.at(until_s, cluster.deliver, cluster.feed, ev.Resume())

    def play(self):
        """Let it happen until nothing is left to be done. Raises Broken."""
        until_s = LASTS_S
        while until_s <= LIMIT_S and not (self.reach(until_s) and self.is_calm()):
            until_s += LOOK_S
        assert self.faults.healed
        self.checker.settled(self.clusters, self.world.now_s, healed=True)
        for cluster in self.clusters.values():
            assert not cluster.servers.running
            if cluster.pool is not None:
                self.nothing_is_held(cluster.machine.servers)
        self.seen.update(self.checker.seen)
        self.seen.update(outcome for told in self.told for outcome in told)

    def reach(self, until_s):
        reached = []
        self.world.at(until_s, reached.append, True)
        self.world.run(lambda: reached)
        return True

    def is_calm(self):
        clusters = self.clusters.values()
        busy = self.checker.waiting or self.checker.outstanding(clusters)
        return (
            self.faults.healed
            and not busy
            and all(
                all(is_used(cluster.machine)) and not cluster.servers.running
                for cluster in clusters
            )
        )

    @staticmethod
    def nothing_is_held(servers):
        """Every token is back, but for those of work that has failed and cools."""
        kinds = range(len(servers.class_ids))
        counts = [servers.bucket.counts(kind) for kind in kinds]
        assert sum(each["held"] for each in counts) == servers.cooling
        assert all(each["retiring"] <= each["held"] for each in counts)
