"""What a lease member did in the simulator, handed to a fresh machine, alone and through the driver
that runs live: the same commands, one by one. So what is simulated is what runs, and its randomness
is its own.
"""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from dataclasses import dataclass, field

import pytest

from spillover.core.leases import events as ev
from spillover.core.leases.agenda import MemberSettings
from spillover.core.leases.blog import BlogMember
from spillover.core.leases.machine import LeaseMember
from spillover.live.engine.driver import Driver
from spillover.live.engine.timers import Timers
from spillover.sim.engine.world import stream
from spillover.sim.leases.run import LeaseScene, run_leases
from spillover.sim.leases.world import Troubles

SEED = 3
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
COMMANDS = (
    ev.AskJoin,
    ev.AskLeave,
    ev.AskSurvey,
    ev.AskGrab,
    ev.AskActivate,
    ev.AskWanted,
    ev.AskDrain,
    ev.AskRelease,
    ev.AskMarked,
    ev.AskMark,
    ev.AskOwner,
    ev.AskAllocate,
    ev.AskClear,
    ev.PublishChallenge,
    ev.PublishAllocated,
    ev.MeasureWork,
    ev.BeginRenewals,
    ev.EndRenewals,
    ev.StartRenewing,
    ev.StopRenewing,
    ev.RunHandler,
    ev.StopHandler,
    ev.FenceHandler,
    ev.LeasesExtended,
    ev.Tell,
    ev.Finished,
)


@dataclass
class Life:
    """What was handed to one life of a member, and what it commanded."""

    log: list = field(default_factory=list)
    commands: list = field(default_factory=list)


def simulate(rule, balance):
    lives = {}

    def journal(node, life, event, now_s, commands):
        one = lives.setdefault((node, life), Life())
        one.log.append((copy.deepcopy(event), now_s))
        one.commands.append(copy.deepcopy(commands))

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
        dict.fromkeys(COMMANDS, lambda command: given[-1].append(copy.deepcopy(command))),
        failures.append,
        lambda _, __: given.append([]),
    )
    try:
        for event, now_s in log:
            driver.feed(copy.deepcopy(event), now_s)
    finally:
        timers.close()
        loop.close()
    assert not failures
    machine.check()
    return given


@pytest.mark.parametrize(
    ("rule", "balance"), [("guarded", "count"), ("guarded", "load"), ("blog", "count")]
)
def test_simulated_lives_are_repeated_alone_and_through_the_live_driver(rule, balance):
    """Every event of every life: stalls, deaths, drains, sleep and an outage included."""
    scene, lives = simulate(rule, balance)
    seen = Counter()
    for (node, number), life in lives.items():
        machine = fresh(scene, node, number)
        log = copy.deepcopy(life.log)
        assert [machine.handle(event, now_s) for event, now_s in log] == life.commands
        assert drive(fresh(scene, node, number), life.log) == life.commands
        seen.update(type(event) for event, _ in life.log)
        seen.update(type(command) for commands in life.commands for command in commands)
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
