"""The distributed queue alive and in virtual time: producers as processes, clients that make and
use objects at given rates, and the same system in the full simulator.

A client makes an object and then waits at the door with it, as one more place in the buffer: where
the simulator has f places, `--buffers` is f - 1. What one message takes is measured at the start.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from statistics import fmean, stdev

import pytest

from spillover.live.http.client import HttpClient
from spillover.model.errors import PeerError
from spillover.sim.queue.full import OF_WIRE, simulate
from spillover.sim.theory.queue.system import ProbingSystem, alike
from support.commands import READY_S
from support.waiting import until

pytestmark = [pytest.mark.threes, pytest.mark.timeout(240)]

PRODUCERS = 8
RATE_PER_S = 5.0
PLACES = 2
MAX_HOPS = 2
EXPIRY_S = 5.0
WARM_UP_S = 4.0
MEASURED_S = 30.0
SIMULATED_OBJECTS = 20_000
WITHIN = 0.10
BATCHES = 10
STUDENT_T = 2.262
"""The 97.5 % quantile of Student's law with BATCHES - 1 degrees of freedom."""

_TYPE = [(b"content-type", b"application/json")]
_DEADLINE = [(b"spillover-deadline-ms", b"60000")]


@dataclass
class Seen:
    """What clients saw of objects that came while it was measured."""

    waits_s: list[float] = field(default_factory=list)
    probes: Counter = field(default_factory=Counter)
    statuses: Counter = field(default_factory=Counter)


async def make_objects(client, random, message_s):
    """One producing client of one producer. What its call takes by itself, and the loop's being
    late, count as making the next object: a producer of the model has neither."""
    made_s = time.monotonic()
    while True:
        made_s += random.expovariate(RATE_PER_S)
        await asyncio.sleep(made_s - time.monotonic())
        answer = await client.request(
            "POST", "/objects", headers=_DEADLINE, body=b"x" * 1024, timeout_s=90.0
        )
        assert answer.status == 201, answer
        made_s = max(made_s, time.monotonic() - 2.0 * message_s)


async def use_objects(name, clients, random, since_s, seen):
    """One consumer: it asks, fetches, works, and acknowledges while it asks again."""
    number, acks = 0, set()
    while True:
        number += 1
        first = random.choice(list(clients))
        asked = b'{"consumer":"%s","probe_id":"%s-%d","max_hops":%d}' % (
            name.encode(), name.encode(), number, MAX_HOPS,
        )  # fmt: skip
        begun_s = time.monotonic()
        answer = await clients[first].request(
            "POST", "/take", headers=[*_TYPE, *_DEADLINE], body=asked, timeout_s=90.0
        )
        seen.statuses[answer.status] += 1
        probes = int(answer.headers.get(b"spillover-probes", b"0"))
        grant = answer.headers.get(b"spillover-grant", b"").decode()
        if answer.status == 303:
            first = answer.headers[b"spillover-producer"].decode()
            answer = await clients[first].request("GET", f"/objects/{grant}", timeout_s=30.0)
        if answer.status != 200:
            continue
        now_s = time.monotonic()
        if now_s >= since_s:
            seen.waits_s.append(now_s - begun_s)
            seen.probes[probes] += 1
        await asyncio.sleep(random.expovariate(RATE_PER_S))
        ack = clients[first].request("POST", f"/grants/{grant}/ack", timeout_s=30.0)
        acks.add(ack)
        ack.add_done_callback(acks.discard)


async def one_way_s(clients):
    """Half of what a small call takes, in the mean."""
    took_s = []
    for _ in range(20):
        for client in clients.values():
            begun_s = time.monotonic()
            await client.request("POST", "/grants/none/ack", timeout_s=10.0)
            took_s.append(time.monotonic() - begun_s)
    return fmean(took_s) / 2.0


async def live(urls, consumers):
    """So many consumers, as many producing clients as producers: what was seen, and one message."""
    clients = {name: HttpClient(url) for name, url in urls.items()}
    random = Random(5)
    seen = Seen()
    message_s = await one_way_s(clients)
    since_s = time.monotonic() + WARM_UP_S
    tasks = [
        *(make_objects(client, Random(random.random()), message_s) for client in clients.values()),
        *(
            use_objects(f"c{k}", clients, Random(random.random()), since_s, seen)
            for k in range(consumers)
        ),
    ]
    running = [asyncio.ensure_future(task) for task in tasks]
    ended, _ = await asyncio.wait(
        running, timeout=WARM_UP_S + MEASURED_S, return_when=asyncio.FIRST_EXCEPTION
    )
    for task in ended:
        task.result()
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    for client in clients.values():
        with suppress(PeerError):
            await client.close()
    return seen, message_s


@pytest.fixture
def producers(spillover, free_ports):
    """Their urls by id, once all are ready."""
    ports = free_ports(PRODUCERS)
    urls = {f"p{k}": f"http://127.0.0.1:{port}" for k, port in enumerate(ports)}
    commands = []
    for name, port in zip(urls, ports, strict=True):
        peers = [word for p, u in urls.items() if p != name for word in ("--peer", f"{p}={u}")]
        options = ("--buffers", str(PLACES - 1), "--probe-expiry-ms", str(EXPIRY_S * 1e3))
        commands.append(
            spillover("queue", "--id", name, "--bind", f"127.0.0.1:{port}", *options, *peers)
        )
    for command in commands:
        until(lambda command=command: command.stdout.endswith("\n"), READY_S, command.stderr)
    return urls


def half_width(values):
    """Of the 95 % interval of the mean, from batches in their order."""
    size = len(values) // BATCHES
    means = [fmean(values[k * size : (k + 1) * size]) for k in range(BATCHES)]
    return STUDENT_T * stdev(means) / BATCHES**0.5


@pytest.mark.parametrize("load", [50, 150, 200])
def test_live_waits_and_probes_agree_with_virtual_time(load, producers):
    """Within 10 %, with the interval of a run of half a minute on top."""
    consumers = PRODUCERS * load // 100
    seen, message_s = asyncio.run(live(producers, consumers))
    system = ProbingSystem(
        kinds=alike(PRODUCERS, RATE_PER_S),
        consumers=consumers,
        consumption_rate=RATE_PER_S,
        message_time=message_s,
        buffers=PLACES,
        max_hops=MAX_HOPS,
    )
    simulated = simulate(
        system, SIMULATED_OBJECTS, 1, probe_expiry_s=EXPIRY_S, wire=OF_WIRE
    ).figures
    probes = list(seen.probes.elements())
    told = {
        "message_ms": message_s * 1e3,
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
