"""The distributed queue alive (`spillover_lab.bench.queue_waits`) and in virtual time: producers as
processes, clients that make and use objects at given rates, and the same system in the full
simulator at the same instants.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack
from functools import partial

import pytest

from spillover.sim.queue.replay import replay
from spillover.sim.queue.system import ProbingSystem, alike
from spillover.sim.queue.wires import TAKE
from spillover_lab.bench.queue_waits import WAYS_MAX, ClosedLoad, Legs, Makers, estimate, play
from support.commands import READY_S, SPILLOVER
from support.waiting import until

PRODUCERS = 6
RATE_PER_S = 5.0
PLACES = 2
MAX_HOPS = 2
EXPIRY_S = 5.0
WARM_UP_S = 4.0
MEASURED_S = 30.0
WITHIN = 0.10


LOADS = (50, 150, 200)
"""Consumers for each hundred producers: each has producers of its own."""


@pytest.fixture(scope="module")
def played(module_start, free_ports):
    """What messages take, and what was seen at each load, all played at once: most of it is
    waiting."""
    started = {load: _producers(module_start, free_ports, PRODUCERS) for load in LOADS}
    watched = _producers(module_start, free_ports, 2 * WAYS_MAX)
    return asyncio.run(_play_all(started, watched))


def _producers(start, free_ports, count):
    """Their urls by id, and the commands."""
    ports = free_ports(count)
    urls = {f"p{k}": f"http://127.0.0.1:{port}" for k, port in enumerate(ports)}
    commands = []
    for name, port in zip(urls, ports, strict=True):
        peers = [word for p, u in urls.items() if p != name for word in ("--peer", f"{p}={u}")]
        options = ("--buffers", str(PLACES - 1), "--probe-expiry-ms", str(EXPIRY_S * 1e3))
        own = ("--id", name, "--bind", f"127.0.0.1:{port}")
        commands.append(start(*SPILLOVER, "queue", *own, *options, *peers))
    return urls, commands


async def _play_all(started, watched):
    for _, commands in (*started.values(), watched):
        for command in commands:
            until(lambda command=command: command.stdout.endswith("\n"), READY_S, command.stderr)
    legs = Legs()
    besides = [partial(legs.watch, watched[0], 1), *[None] * (len(started) - 1)]
    with ExitStack() as stack:
        plays = [
            play(urls, _closed(load), stack.enter_context(Makers()), beside)
            for (load, (urls, _)), beside in zip(started.items(), besides, strict=True)
        ]
        seen = dict(zip(started, await asyncio.gather(*plays), strict=True))
    return legs.means_s(), seen


def _closed(load):
    return ClosedLoad(
        consumers=PRODUCERS * load // 100,
        production_rate=RATE_PER_S,
        consumption_rate=RATE_PER_S,
        max_hops=MAX_HOPS,
        warm_up_s=WARM_UP_S,
        measured_s=MEASURED_S,
        seed=5,
    )


@pytest.mark.parametrize("load", LOADS)
def test_live_waits_and_probes_agree_with_virtual_time(load, played):
    """Within 10 %, with the interval of a run of half a minute on top."""
    legs, seen = played[0], played[1][load]
    system = ProbingSystem(
        kinds=alike(PRODUCERS, RATE_PER_S),
        consumers=PRODUCERS * load // 100,
        consumption_rate=RATE_PER_S,
        message_time=legs[TAKE],
        buffers=PLACES,
        max_hops=MAX_HOPS,
    )
    ends_s = WARM_UP_S + MEASURED_S
    simulated = replay(system, seen.instants, ends_s, 1, probe_expiry_s=EXPIRY_S, legs=legs)
    wait, wait_there = (
        estimate([came], WARM_UP_S, ends_s, lambda came: came.wait_s)
        for came in (seen.came, simulated)
    )
    probes, probes_there = (
        estimate([came], WARM_UP_S, ends_s, lambda came: came.probes)
        for came in (seen.came, simulated)
    )
    objects, objects_there = (
        sum(WARM_UP_S <= one.at_s < ends_s for one in came) for came in (seen.came, simulated)
    )
    told = {
        "legs_ms": {kind: took_s * 1e3 for kind, took_s in legs.items()},
        "objects": (objects, objects_there),
        "wait_ms": (wait.mean * 1e3, wait_there.mean * 1e3),
        "wait_half_ms": (wait.half_width * 1e3, wait.half_width_beside(wait_there) * 1e3),
        "probes": (probes.mean, probes_there.mean),
        "statuses": dict(seen.statuses),
    }
    sys.stdout.write(f"load {load} %, live beside simulated: {told}\n")
    assert set(seen.statuses) <= {200, 303}, told
    assert abs(wait.mean - wait_there.mean) < WITHIN * wait_there.mean + wait.half_width, told
    assert probes.mean == pytest.approx(probes_there.mean, rel=WITHIN), told
    assert objects == pytest.approx(objects_there, rel=WITHIN), told
