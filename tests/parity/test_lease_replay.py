"""One event log of a lease member in both shells: the same commands, one by one. What is simulated
is what runs, and its randomness is its own.

What a member did in the simulator is handed to a fresh machine, alone and by the driver on live
timers; what one did on a real Redis to a fresh machine, alone and in the simulator's shell. Both
shells are driven by `core.driver`.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from dataclasses import dataclass, field
from random import Random

import pytest

from spillover.core.driver import Driver
from spillover.core.leases import events as ev
from spillover.core.leases.blog import BlogMember
from spillover.core.leases.machine import LeaseMember
from spillover.core.leases.settings import MemberSettings
from spillover.live.engine.timers import Timers
from spillover.live.leases.blog import BlogMachine
from spillover.live.leases.group import LeaseGroup
from spillover.model.lease_times import LeaseTimes
from spillover.sim.engine.world import stream
from spillover.sim.leases.asks import BlogAsks, GuardedAsks
from spillover.sim.leases.blog import BlogStore
from spillover.sim.leases.member import SimMember
from spillover.sim.leases.run import LeaseScene, run_leases
from spillover.sim.leases.store_twin import LeaseTwin
from spillover.sim.leases.watch import TenureWatch
from spillover.sim.leases.world import Surroundings, Troubles
from support.copies import copy_of

SEED = 3
LIMIT_S = 60.0
PARTITIONS = 9
TROUBLES = Troubles(
    stall_ms={0: 500.0},
    crash_ms={1: 400_000.0},
    join_ms={2: 100_000.0},
    drain_ms={3: 700_000.0},
    rejoin_ms={1: 401_000.0, 3: 800_000.0},
    pause_ms={0: (1_000_000.0, 1_300_000.0)},
    outage_ms=[(1_500_000.0, 1_800_000.0)],
    handler_stop_ms=15_000.0,
    loss=0.2,
    repeats=0.2,
    answers_lost=0.05,
    answers_repeated=0.2,
)
COMMANDS = [
    one for one in vars(ev).values() if isinstance(one, type) and issubclass(one, ev.Command)
]


@dataclass
class Life:
    """What was handed to one life of a member, and what it commanded."""

    log: list = field(default_factory=list)
    commands: list = field(default_factory=list)

    def seen(self):
        """How often there was each kind of event and of command."""
        seen = Counter(type(event) for event, _ in self.log)
        seen.update(type(command) for commands in self.commands for command in commands)
        return seen


def simulate(rule, balance):
    lives = {}

    def journal(node, life, event, now_s, commands):
        one = lives.setdefault((node, life), Life())
        one.log.append((copy_of(event), now_s))
        one.commands.append(copy_of(commands))

    scene = LeaseScene(
        nodes=4,
        partitions=PARTITIONS,
        periods=40,
        start="empty",
        rule=rule,
        balance=balance,
        loads=[60.0, *[10.0] * (PARTITIONS - 1)],
        load_noise=0.3,
        troubles=TROUBLES if rule == "guarded" else Troubles(stall_ms={0: 500.0}),
    )
    run_leases(scene, SEED, journal=journal)
    return scene, lives


def fresh(scene, node, life):
    settings = MemberSettings(
        node=f"n{node}", partitions=PARTITIONS, times=scene.times, balance=scene.balance
    )
    random = stream(SEED, f"lease-member/{node}/{life}")
    return (LeaseMember if scene.rule == "guarded" else BlogMember)(settings, random)


def drive(machine, log):
    """Through the live driver, on timers of a loop that never runs."""
    failures, given = [], []
    loop = asyncio.new_event_loop()
    timers = Timers(loop)
    driver = Driver(
        machine,
        timers,
        dict.fromkeys(COMMANDS, lambda command: given[-1].append(copy_of(command))),
        failures.append,
        journal=lambda _, __: given.append([]),
    )
    try:
        for event, now_s in log:
            driver.feed(copy_of(event), now_s)
    finally:
        timers.close()
        loop.close()
    assert not failures
    machine.check()
    return given


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "balance"), [("guarded", "count"), ("guarded", "load"), ("blog", "count")]
)
def test_simulated_lives_are_repeated_alone_and_through_the_live_driver(rule, balance):
    """Every event of every life: stalls, deaths, drains, sleep and an outage included."""
    scene, lives = simulate(rule, balance)
    seen = Counter()
    for (node, number), life in lives.items():
        machine = fresh(scene, node, number)
        log = copy_of(life.log)
        assert [machine.handle(event, now_s) for event, now_s in log] == life.commands
        assert drive(fresh(scene, node, number), life.log) == life.commands
        seen.update(life.seen())
    often = [ev.Answered, ev.Challenged, ev.Allocated, ev.TimerFired, ev.RunHandler, ev.StopHandler]
    if rule == "guarded":
        assert len(lives) == 6
        often += [ev.RenewalAnswered, ev.RenewalFailed, ev.AskFailed, ev.FenceHandler]
        for kind in (ev.Drain, ev.RenewalsEnded, ev.Finished, ev.AskLeave):
            assert seen[kind], (kind, seen)
    if balance == "load":
        often += [ev.MeasureWork, ev.WorkMeasured]
    for kind in often:
        assert seen[kind] > 5, (kind, seen)


LIVE_TIMES = LeaseTimes(
    normal_lease_ms=300, max_lease_ms=900, max_shutdown_ms=300, min_grab_ms=100, held_delay_ms=5
)
LIVE_MACHINES = {"guarded": LeaseMember, "blog": BlogMachine}


async def works(partition, epoch, stop_event):
    """As if."""
    await stop_event.wait_async()


async def live_life(server, name, rule, until):
    """Of one that gets everything, gives some to another one and gets it back, loses everything
    while the server is dead, has it again, and leaves."""
    life = Life()

    def group(node):
        given = {"partitions": PARTITIONS, "times": LIVE_TIMES, "seed": SEED, "rule": rule}
        return LeaseGroup(server.url, name, node=node, handler=works, **given)

    member = group("a")
    handle = member.machine.handle

    def recorded(event, now_s):
        life.log.append((copy_of(event), now_s))
        commands = handle(event, now_s)
        life.commands.append(copy_of(commands))
        return commands

    member.machine.handle = recorded
    async with member:
        await until(lambda: len(member.held) == PARTITIONS)
        if rule == "guarded":  # on a slow machine, what comes next is sooner
            await until(lambda: life.seen()[ev.LeasesExtended])
        async with group("b") as other:
            await until(lambda: other.held and len(member.held) < PARTITIONS)
        await until(lambda: len(member.held) == PARTITIONS)
        if rule == "guarded":  # by the blog's rule, whoever has everything asks nobody
            server.stop(signal.SIGKILL)
            await until(lambda: member.machine.is_down and not member.held)
            await until(lambda: {ev.AskFailed, ev.RenewalFailed} <= life.seen().keys())
            server.restart()
            await until(lambda: len(member.held) == PARTITIONS)
    return member.settings, life


def simulated_commands(rule, settings, log):
    """The log through the simulator's shell, whose world stands still: the clock is put where each
    event was handed in, and what is planned for later never happens."""
    around = Surroundings(settings.times, Troubles(), TenureWatch(PARTITIONS), SEED)
    twin = LeaseTwin(PARTITIONS, settings.times)
    guarded = GuardedAsks(twin, around, settings.node, 1)
    store = guarded if rule == "guarded" else BlogAsks(BlogStore(), settings.node)
    given = []
    member = SimMember(
        0,
        LIVE_MACHINES[rule](settings, Random(f"{SEED}/lease/{settings.node}")),
        store,
        around,
        lambda _, __, commands: given.append(copy_of(commands)),
    )
    for event, now_s in log:
        around.world.now_s = now_s
        member.feed(copy_of(event))
    return given


@pytest.mark.parametrize("rule", LIVE_MACHINES)
def test_a_live_life_is_repeated_alone_and_in_the_simulators_shell(redis_servers, tmp_path, rule):
    """Every event of it, those included that tell it that it is late."""

    async def main():
        with redis_servers.running(tmp_path) as server:
            name = redis_servers.new_name()
            return await asyncio.wait_for(
                live_life(server, name, rule, redis_servers.until), LIMIT_S
            )

    settings, life = asyncio.run(main())
    machine = LIVE_MACHINES[rule](settings, Random(f"{SEED}/lease/{settings.node}"))
    assert [machine.handle(*given) for given in copy_of(life.log)] == life.commands
    assert simulated_commands(rule, settings, life.log) == life.commands
    seen = life.seen()
    kinds = [ev.Answered, ev.Allocated, ev.TimerFired, ev.LeasesSeen, ev.HandlerEnded]
    if rule == "guarded":
        kinds += [ev.AskFailed, ev.RenewalAnswered, ev.RenewalFailed, ev.RenewalsEnded]
        kinds += [ev.LeasesExtended]
    for kind in (*kinds, ev.Drain, ev.RunHandler, ev.StopHandler, ev.Finished):
        assert seen[kind], (kind, seen)
