"""The journal of a live node, replayed into a fresh machine, gives the same commands: what runs
in real time and what the simulator runs is one machine, and its randomness is its own.

And one event log through both shells: a simulated life through the live driver, a live one through
the simulator's cluster. Neither adds a rule, leaves an event out, or changes their order.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from spillover.core.driver import Driver
from spillover.core.overflow import events as ev
from spillover.core.overflow.machine import NodeMachine
from spillover.inputs.random_faults import random_faults
from spillover.inputs.topology_file import load_topology
from spillover.live.engine.timers import Timers
from spillover.model.unlike_servers import Server, ServerClass
from spillover.sim.engine.world import World, stream
from spillover.sim.overflow.faults import Faults, build_faulty_federation
from spillover.sim.overflow.federation import build_federation, request_of
from spillover.workloads.generated import poisson
from support import unlike_sites
from support.copies import copy_of

SEED = 5
SEEDS = (6,)
"""Of simulated histories in which there are crashes, pauses, cuts and wrong clocks."""
UNLIKE_SEEDS = (16, 17, 20)
"""Of those in which servers go down and up, tokens change, and jobs are not started."""

DURATION_S = 4.0
COMMANDS = [
    one for one in vars(ev).values() if isinstance(one, type) and issubclass(one, ev.Command)
]


def replay(log, settings, neighbors, seed, started_s):
    """The commands that a new machine gives for a log of (event, instant)."""
    random = Random(f"{seed}/node/{settings.cluster}")
    machine = NodeMachine(settings, neighbors, random, started_s)
    return [machine.handle(copy_of(event), now_s) for event, now_s in log]


@dataclass
class Life:
    """What was handed to one life of a simulated cluster, and what it commanded."""

    number: int
    settings: object
    started_s: float
    log: list = field(default_factory=list)
    commands: list = field(default_factory=list)


class Journal:
    """Looks on at simulated clusters."""

    def __init__(self):
        self.lives = {}

    def before(self, cluster, event, now_s):
        life = self.lives.setdefault(
            (cluster.id, cluster.life),
            Life(cluster.life, cluster.machine.settings, cluster.started_s),
        )
        life.log.append((copy_of(event), now_s))

    def after(self, cluster, _event, _now_s, commands):
        self.lives[cluster.id, cluster.life].commands.append(copy_of(commands))


def ring5(seed):
    """Two servers alike at each cluster, overloaded."""
    ring = load_topology("ring5")
    topology = replace(ring, clusters=tuple(replace(one, servers=2) for one in ring.clusters))
    return topology, poisson(topology.cluster_ids, rate_per_s=48, duration_s=DURATION_S, seed=seed)


def unlike(seed):
    """Unlike servers, at one site overloaded by requests of one type."""
    return unlike_sites.two_sites(), unlike_sites.schedule(seed, DURATION_S)


def simulate(seed, topology, arrivals):
    """A federation under random faults; its journal."""
    world, journal = World(), Journal()
    clusters, channels = build_faulty_federation(topology, world, seed, journal)
    Faults(random_faults(topology, seed, DURATION_S), world, clusters, channels)

    def submit(number, arrival):
        home = clusters[arrival.cluster]
        if home.alive:
            work_s = None if arrival.service_ms is None else arrival.service_ms / 1e3
            request = request_of(number, None, work_s, arrival.type, keyed=number % 2 == 0)
            deadline_s = world.now_s + (0.2 if number % 7 == 0 else 60.0)
            home.submit(request, deadline_s, lambda _: None, lambda _: None)

    for number, arrival in enumerate(arrivals):
        world.at(arrival.time_s, submit, number, arrival)
    reached = []
    world.at(DURATION_S + 4.0, reached.append, True)
    world.run(lambda: reached)
    return journal.lives


def drive(life, neighbors, seed):
    """The log through the live driver, on timers of a loop that never runs: the commands that its
    interpreters get for each event."""
    cluster = life.settings.cluster
    name = f"node/{cluster}" if life.number == 1 else f"node/{cluster}/{life.number}"
    machine = NodeMachine(life.settings, neighbors, stream(seed, name), life.started_s)
    failures, given, journaled = [], [], []
    loop = asyncio.new_event_loop()
    timers = Timers(loop)
    driver = Driver(
        machine,
        timers,
        dict.fromkeys(COMMANDS, lambda command: given[-1].append(copy_of(command))),
        failures.append,
        journal=lambda _, now_s: (given.append([]), journaled.append(now_s)),
    )
    try:
        for event, now_s in life.log:
            driver.feed(copy_of(event), now_s)
    finally:
        timers.close()
        loop.close()
    assert not failures
    assert journaled == [now_s for _, now_s in life.log]
    machine.check()
    return given


ASKING = (ev.WorkAsked, ev.NoWorkThere, ev.AskForWork, ev.NoWork)


def driven(seeds, made, policy):
    """What was seen of all lives, after the live driver gave the same commands for each event."""
    seen = Counter()
    for seed in seeds:
        topology, arrivals = made(seed)
        topology = topology.with_policy(policy)
        for (cluster, number), life in simulate(seed, topology, arrivals).items():
            neighbors = [(n.id, n.delay_ms / 1e3) for n in topology.neighbors(cluster)]
            assert drive(life, neighbors, seed) == life.commands
            seen.update(type(event) for event, _ in life.log)
            seen.update(type(command) for commands in life.commands for command in commands)
            seen["restarts"] += number > 1
    return seen


@pytest.mark.slow
def test_simulated_lives_with_unlike_servers_through_the_live_driver():
    """Tokens that change, servers that go down and jobs of types, command by command."""
    seen = driven(UNLIKE_SEEDS, unlike, "adaptive")
    for kind in (ev.TokensSet, ev.ServersDown, ev.ServersUp, ev.NotStarted, "restarts", *ASKING):
        assert seen[kind], (kind, seen)
    assert seen[ev.Start] > 150


@pytest.mark.slow
def test_simulated_lives_through_the_live_driver():
    """Every event of every life, restarts, pauses and wrong clocks included, command by command."""
    seen = driven(SEEDS, ring5, "adaptive")
    often = (
        ev.Arrived,
        ev.ForwardAnswered,
        ev.ReportReceived,
        ev.TimerFired,
        ev.Forward,
        ev.Start,
        ev.Reply,
    )
    for kind in (*often, ev.Publish):
        assert seen[kind] > 100, (kind, seen)
    rare = (ev.LinkDown, ev.ForwardLost, ev.ForwardRefused, ev.Cancelled, ev.ReportAsked)
    for kind in (*rare, *ASKING, ev.Recall, ev.Stop, "restarts"):
        assert seen[kind], (kind, seen)


def simulated_commands(topology, settings, log, seed, started_s):
    """A live log through the simulator's cluster, whose world stands still: the clock is put where
    each event was handed in, and what it plans for later never happens."""
    world = World()
    cluster = build_federation(topology, world, seed)[settings.cluster]
    neighbors = [(n.id, n.delay_ms / 1e3) for n in topology.neighbors(settings.cluster)]
    random = stream(seed, f"node/{settings.cluster}")
    machine = NodeMachine(settings, neighbors, random, started_s)
    cluster.drive(machine)
    handle, given = machine.handle, []

    def recorded(event, now_s):
        commands = handle(event, now_s)
        given.append(copy_of(commands))
        return commands

    machine.handle = recorded
    # A live payload is text, where the simulator expects a service time.
    cluster._interpreters[ev.Start] = lambda _: None
    for event, now_s in log:
        world.now_s = now_s
        if isinstance(event, ev.Arrived):
            cluster._waiting[event.ref] = (lambda _: None, lambda _: None)
        cluster.feed(copy_of(event))
    return given


POOL = {
    "servers": (Server(id="s1"), Server(id="s2", rate=2.0)),
    "classes": (
        ServerClass(id="c1", servers=("s1",), tokens=2),
        ServerClass(id="c2", servers=("s2",), tokens=2),
    ),
}


@pytest.mark.parametrize("servers", [{"servers": 1}, POOL], ids=["alike", "unlike"])
async def test_a_live_run_is_repeated_by_its_journal(nodes, servers):
    """Arrivals, forwards, refusals, losses, reports and deadlines of a short burst, command by
    command: through a fresh machine alone, and through the simulator's cluster."""
    log, commands = [], []
    topology = nodes.topology_of(
        "a", "b", delay_ms=2.0, policy="paper", clusters={"a": {"queue_limit": 6, **servers}}
    )
    journals = {"a": lambda event, now_s: log.append((copy_of(event), now_s))}
    async with nodes.Federation(topology, journals=journals, seed=SEED) as federation:
        a = federation["a"]
        handle = a.machine.handle

        def recorded(event, now_s):
            given = handle(event, now_s)
            commands.append((len(log) - 1, copy_of(given)))
            return given

        a.machine.handle = recorded
        late = [(b"Spillover-Deadline-Ms", b"15")]
        ends = []
        # A neighbor that loses work gets little from then on, and one that a busy machine lets
        # come too late nothing for a while.
        for loss, wanted in ((0.0, ev.ForwardAnswered), (1.0, ev.ForwardLost)):
            a.shell.neighborhood.emulated[0].set_faults(loss=loss)
            while not any(isinstance(event, wanted) for event, _ in log):
                ends += await asyncio.gather(
                    *(a.post({"service_ms": 5 + n % 3}, headers=late * (n % 2)) for n in range(40))
                )
        assert len({end.status for end in ends}) > 1
    shell = a.shell
    neighbors = list(zip(("b",), (0.002,), strict=True))
    again = replay(log, shell.machine.settings, neighbors, SEED, shell.started_s)
    simulated = simulated_commands(
        federation.topology, shell.machine.settings, log, SEED, shell.started_s
    )
    assert len(commands) > 40
    for index, given in commands:
        assert again[index] == given
        assert simulated[index] == given
