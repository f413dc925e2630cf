"""The distributed queue alive (`spillover_lab.bench.queue_waits`) and in virtual time: producers as
processes, and clients that make and use objects at given rates.
"""

import asyncio
import sys
from statistics import fmean, stdev

import pytest

from spillover_lab.bench.queue_waits import EXPIRY_S, PLACES, ClosedLoad, message_s, play
from support.commands import READY_S, SPILLOVER
from support.waiting import until

PRODUCERS = 6
RATE_PER_S = 5.0
WITHIN = 0.10
OBJECTS = 10_000
STRETCHES = 10
STUDENT_T = 2.262
"""The 97.5 % quantile of Student's law with STRETCHES - 1 degrees of freedom."""
LOADS = (100, 200)
"""Consumers for each hundred producers: each has producers of its own."""


def load_of(percent):
    return ClosedLoad(
        consumers=PRODUCERS * percent // 100,
        production_rate=RATE_PER_S,
        consumption_rate=RATE_PER_S,
        max_hops=2,
        warm_up_s=4.0,
        measured_s=30.0,
        seed=5,
    )


@pytest.fixture(scope="module")
def played(module_start, free_ports):
    """What messages take, and what was seen at each load, all played at once: most of it is
    waiting."""
    started = {load: _producers(module_start, free_ports) for load in LOADS}
    return asyncio.run(_play_all(started))


def _producers(start, free_ports):
    """Their urls, and the commands."""
    ports = free_ports(PRODUCERS)
    urls = {f"p{k}": f"http://127.0.0.1:{port}" for k, port in enumerate(ports)}
    commands = []
    for name, port in zip(urls, ports, strict=True):
        peers = [word for p, u in urls.items() if p != name for word in ("--peer", f"{p}={u}")]
        options = ("--buffers", str(PLACES - 1), "--probe-expiry-ms", str(EXPIRY_S * 1e3))
        own = ("--id", name, "--bind", f"127.0.0.1:{port}")
        commands.append(start(*SPILLOVER, "queue", *own, *options, *peers))
    return list(urls.values()), commands


async def _play_all(started):
    for _, commands in started.values():
        for command in commands:
            until(lambda command=command: command.stdout.endswith("\n"), READY_S, command.stderr)
    took_s = await message_s(started[LOADS[0]][0])
    plays = [play(urls, load_of(load)) for load, (urls, _) in started.items()]
    return took_s, dict(zip(started, await asyncio.gather(*plays), strict=True))


def half_width(values):
    """Of the 95 % interval of the mean, by stretches, as waits that follow each other are alike."""
    size = len(values) // STRETCHES
    means = [fmean(values[at : at + size]) for at in range(0, size * STRETCHES, size)]
    return STUDENT_T * stdev(means) / STRETCHES**0.5


@pytest.mark.parametrize("load", LOADS)
def test_live_waits_and_probes_agree_with_virtual_time(load, played):
    """Within 10 %, with the interval of a run of half a minute on top."""
    took_s, seen = played[0], played[1][load]
    there = load_of(load).simulated(PRODUCERS, took_s, OBJECTS).figures
    for live, simulated in ((seen.waits_s, there.wait_mean), (seen.probes, there.probes_mean)):
        mean, half = fmean(live), half_width(live)
        sys.stdout.write(f"load {load} %: {mean:.4g} ± {half:.2g} live, {simulated:.4g}\n")
        assert abs(mean - simulated) < WITHIN * simulated + half
    objects = load_of(load).measured_s * there.throughput
    assert len(seen.waits_s) == pytest.approx(objects, rel=WITHIN)
