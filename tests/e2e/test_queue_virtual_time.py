"""The distributed queue alive (`tools.bench.queue.closed`) and in virtual time: producers as
processes, clients that make and use objects at given rates, and the same system in the full
simulator.
"""

from __future__ import annotations

import asyncio
import sys
from statistics import fmean

import pytest

from spillover.sim.queue.full import OF_WIRE, simulate
from spillover.sim.theory.queue.system import ProbingSystem, alike
from spillover.tools.bench.queue.closed import ClosedLoad, half_width, play
from support.commands import READY_S, SPILLOVER
from support.waiting import until

pytestmark = [pytest.mark.threes, pytest.mark.timeout(240)]

PRODUCERS = 8
RATE_PER_S = 5.0
PLACES = 2
MAX_HOPS = 2
EXPIRY_S = 5.0
WARM_UP_S = 4.0
MEASURED_S = 30.0
SIMULATED_OBJECTS = 10_000
WITHIN = 0.10


LOADS = (50, 150, 200)
"""Consumers for each hundred producers: each has producers of its own."""


@pytest.fixture(scope="module")
def seen(module_start, free_ports):
    """What was seen at each load, all played at once: most of it is waiting."""
    return asyncio.run(_play_all({load: _producers(module_start, free_ports) for load in LOADS}))


def _producers(start, free_ports):
    """Their urls by id, and the commands."""
    ports = free_ports(PRODUCERS)
    urls = {f"p{k}": f"http://127.0.0.1:{port}" for k, port in enumerate(ports)}
    commands = []
    for name, port in zip(urls, ports, strict=True):
        peers = [word for p, u in urls.items() if p != name for word in ("--peer", f"{p}={u}")]
        options = ("--buffers", str(PLACES - 1), "--probe-expiry-ms", str(EXPIRY_S * 1e3))
        own = ("--id", name, "--bind", f"127.0.0.1:{port}")
        commands.append(start(*SPILLOVER, "queue", *own, *options, *peers))
    return urls, commands


async def _play_all(started):
    for _, commands in started.values():
        for command in commands:
            until(lambda command=command: command.stdout.endswith("\n"), READY_S, command.stderr)
    plays = [play(urls, _closed(load)) for load, (urls, _) in started.items()]
    return dict(zip(started, await asyncio.gather(*plays), strict=True))


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
def test_live_waits_and_probes_agree_with_virtual_time(load, seen):
    """Within 10 %, with the interval of a run of half a minute on top."""
    seen = seen[load]
    system = ProbingSystem(
        kinds=alike(PRODUCERS, RATE_PER_S),
        consumers=PRODUCERS * load // 100,
        consumption_rate=RATE_PER_S,
        message_time=seen.message_s,
        buffers=PLACES,
        max_hops=MAX_HOPS,
    )
    simulated = simulate(
        system, SIMULATED_OBJECTS, 1, probe_expiry_s=EXPIRY_S, wire=OF_WIRE
    ).figures
    probes = seen.probes
    told = {
        "message_ms": seen.message_s * 1e3,
        "objects": len(probes),
        "wait_ms": (fmean(seen.waits_s) * 1e3, simulated.wait_mean * 1e3),
        "wait_half_ms": half_width(seen.waits_s) * 1e3,
        "probes": (fmean(probes), simulated.probes_mean),
        "per_s": (len(probes) / MEASURED_S, simulated.throughput),
        "statuses": dict(seen.statuses),
    }
    sys.stdout.write(f"load {load} %, live beside simulated: {told}\n")
    assert set(seen.statuses) <= {200, 303}, told
    wait_s = fmean(seen.waits_s)
    assert abs(wait_s - simulated.wait_mean) < (
        WITHIN * simulated.wait_mean + half_width(seen.waits_s)
    ), told
    assert fmean(probes) == pytest.approx(simulated.probes_mean, rel=WITHIN), told
    assert told["per_s"][0] == pytest.approx(simulated.throughput, rel=WITHIN), told
