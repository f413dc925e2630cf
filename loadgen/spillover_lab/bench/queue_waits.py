"""How long consumers wait and how many probes that takes: 20 producers and 20 consumers at four
loads, alive, beside the same system in virtual time (`sim.queue.full`).

The closed system of Johnson's document, by its rule, with the clients that users have: as many that
make objects as there are producers, and consumers that take, use and acknowledge them. A client
makes an object and then waits at the door with it, as one more place in the buffer: where the
document has f places, a producer has f - 1. Those that make objects are a process of their own:
what they do must not delay the loop of those who wait for objects.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from random import Random
from statistics import fmean

from spillover.live.http1.client import HttpClient
from spillover.live.queue.consuming import Consumer, consume
from spillover.live.queue.producing import produce
from spillover.model.errors import RunError
from spillover.sim.queue import wires
from spillover.sim.queue.full import simulate
from spillover.sim.queue.measuring import ProbingRun
from spillover.sim.queue.system import ProbingSystem, alike
from spillover.testbed.producers import ProducerBed
from spillover_lab.bench.servers import READY_WITHIN_S
from spillover_lab.bench.session import Session, Stage, together
from spillover_lab.processes.child import Child

LOADS = (50, 100, 150, 200)
"""What consumers want, in percent of what can be made."""
HOPS = (1, 3, 5, 10)
CASES = {
    f"load {load} %, {f'at most {hops} probes' if hops > 1 else 'one probe'}": (load, hops)
    for load in LOADS
    for hops in HOPS
}
PRODUCERS = CONSUMERS = 20
PRODUCTION_PER_S = 5.0
"""The rate of each producer: so slow that no process waits for the processor."""
PLACES = 2
EXPIRY_S = 5.0
"""The time after which probes expire, as producers have it unless told otherwise."""
WARM_UP_S, MEASURED_S, OBJECTS = (3.0, 0.5), (12.0, 1.5), (30_000, 3_000)
"""In full and quick; the last one is what is simulated."""
GRACE_S = 0.1
SMALL_CALLS = 20
"""The number of small calls to each producer, one after the other, by which the length of one way
is known."""
SIMULATED = "itself, simulated"
MESSAGES = (*wires.IN_PAPER, wires.OFFER, wires.POINTER, wires.FETCH)
"""The document's, and those that our wire adds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoad:
    """Rates are those at which a client makes one object, and a consumer uses one."""

    consumers: int
    production_rate: float
    consumption_rate: float
    max_hops: int
    warm_up_s: float
    measured_s: float
    seed: int

    def simulated(self, producers: int, message_s: float, objects: int) -> ProbingRun:
        """Returns what the simulator sees where each message takes so long."""
        system = ProbingSystem(
            kinds=alike(producers, self.production_rate),
            consumers=self.consumers,
            consumption_rate=self.consumption_rate,
            message_time=message_s,
            buffers=PLACES,
            max_hops=self.max_hops,
        )
        legs = dict.fromkeys(MESSAGES, message_s)
        return simulate(system, objects, self.seed, probe_expiry_s=EXPIRY_S, legs=legs)


@dataclass
class Seen:
    """The objects that came while they counted."""

    counts: bool = False
    waits_s: list[float] = field(default_factory=list)
    probes: list[int] = field(default_factory=list)
    came: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once an object has come."""


async def play(urls: Sequence[str], load: ClosedLoad) -> Seen:
    """Returns what consumers saw at these producers. Raises SpilloverError."""
    seen = Seen()
    consumers = [
        consume(urls, name=f"c{i}", max_hops=load.max_hops, access="uniform", avoid_visited=False)
        for i in range(load.consumers)
    ]
    with Child("the process that makes objects", make_objects, urls, load) as makers:
        await makers.receive(READY_WITHIN_S)
        using = [
            asyncio.ensure_future(_use(one, seen, load, Random(f"{load.seed}/c{number}")))
            for number, one in enumerate(consumers)
        ]
        running = [asyncio.ensure_future(makers.receive()), *using]
        first = asyncio.ensure_future(seen.came.wait())
        try:
            # A busy machine starts clients for longer than a quick run lasts.
            ended, _ = await asyncio.wait(
                [*running, first], timeout=READY_WITHIN_S, return_when=asyncio.FIRST_COMPLETED
            )
            for task in ended:
                task.result()
            if not ended:
                raise RunError(f"expected an object within {READY_WITHIN_S:g} s, got none")
            for seen.counts, lasts_s in ((False, load.warm_up_s), (True, load.measured_s)):
                ended, _ = await asyncio.wait(
                    running, timeout=lasts_s, return_when=asyncio.FIRST_EXCEPTION
                )
                for task in ended:
                    task.result()
            seen.counts = False
            for consumer in consumers:
                consumer.stop()
            await asyncio.gather(*using)
        finally:
            for task in (*running, first):
                task.cancel()
            await asyncio.gather(*running, first, return_exceptions=True)
    if not seen.waits_s:
        expected = f"expected objects in the {load.measured_s:g} s that count, got none"
        raise RunError(f"{expected}: the machine is too busy for a run so short")
    return seen


async def _use(consumer: Consumer, seen: Seen, load: ClosedLoad, random: Random) -> None:
    asked_s = time.monotonic()
    async for one in consumer:
        seen.came.set()
        if seen.counts:
            seen.waits_s.append(time.monotonic() - asked_s)
            seen.probes.append(one.probes)
        await asyncio.sleep(random.expovariate(load.consumption_rate))
        await one.ack()
        asked_s = time.monotonic()


async def make_objects(urls: Sequence[str], load: ClosedLoad, connection: Connection) -> None:
    """Runs as a process, one client for each producer, until it is ended: says that it is there."""
    connection.send(None)

    async def make(url: str, random: Random) -> None:
        async with produce(url) as queue:
            while True:
                await asyncio.sleep(random.expovariate(load.production_rate))
                await queue.put(bytes(1024))

    await together(make(url, Random(f"{load.seed}/p{number}")) for number, url in enumerate(urls))


async def message_s(urls: Sequence[str]) -> float:
    """Returns half of what a small call takes, in the mean, where one follows the other."""
    clients = [HttpClient(url) for url in urls]
    try:
        begun_s = time.monotonic()
        for client in clients * SMALL_CALLS:
            await client.request("POST", "/grants/none/ack", timeout_s=10.0)
        return (time.monotonic() - begun_s) / (SMALL_CALLS * len(clients)) / 2.0
    finally:
        await asyncio.gather(*(client.close() for client in clients))


async def _measure(session: Session) -> None:
    plan = session.plan
    async with ProducerBed(PRODUCERS, buffers=PLACES - 1, drain_timeout_s=GRACE_S) as bed:
        urls = list(bed.urls.values())
        took_s = await message_s(urls)
        for case, (share, hops) in CASES.items():
            if not session.wants(case):
                continue
            load = ClosedLoad(
                consumers=CONSUMERS,
                production_rate=PRODUCTION_PER_S,
                consumption_rate=PRODUCTION_PER_S * share / 100 * PRODUCERS / CONSUMERS,
                max_hops=hops,
                warm_up_s=plan.of(*WARM_UP_S),
                measured_s=plan.of(*MEASURED_S),
                seed=plan.seed,
            )
            runs = [await play(urls, replace(load, seed=seed)) for seed in session.seeds(case)]
            objects = int(plan.of(*OBJECTS))
            twin = await asyncio.to_thread(load.simulated, PRODUCERS, took_s, objects)
            waits_ms = [fmean(one.waits_s) * 1e3 for one in runs]
            there_ms = [twin.figures.wait_mean * 1e3]
            session.add_beside(f"{case}: wait", "ms", {"": waits_ms, SIMULATED: there_ms})
            probes = [fmean(one.probes) for one in runs]
            there = [twin.figures.probes_mean]
            session.add_beside(f"{case}: probes", "each", {"": probes, SIMULATED: there})
    session.note(f"waits: simulated, each message takes {took_s * 1e3:.2f} ms, half a small call")


STAGES = (Stage(tuple(CASES), _measure),)
