"""One of 20 producers killed while all are in use: what the others give and how long consumers
wait, before and after, and whether anything is lost that a producer has accepted. Clients are those
that users have, objects are on disk.

What the dead one had accepted is in its store for its next life: it is looked up there.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median

from spillover.live.queue.consuming import Consumer, consume
from spillover.live.queue.producing import produce
from spillover.live.queue.store import ObjectStore
from spillover.model.errors import RunError, SpilloverError
from spillover.testbed.producers import ProducerBed
from spillover_lab.bench.session import Session, Stage

PRODUCERS = CONSUMERS = 20
DEAD = "p1"
PRODUCTION_PER_S = 5.0
"""The rate of each producer, if it never had to wait for a place."""
CONSUMPTION_PER_S = 2.0
"""The rate of each consumer, if it never had to wait for an object: buffers are full at most
times."""
PLACES = 2
WARM_UP_S, MEASURED_S = (3.0, 0.5), (15.0, 1.5)
"""In full and quick; as long before the end of the one as after it. What is warmed up has begun:
each consumer has got an object."""
BEGUN_WITHIN_S = 60.0
EMPTY_WITHIN_S = 30.0
GRACE_S = 0.1

GIVEN = "one of 20 producers killed: objects of the others"
WAITED = "one of 20 producers killed: wait for an object, median"
LONGEST = "one of 20 producers killed: longest wait"
CASES = {GIVEN: "per s", WAITED: "ms", LONGEST: "ms"}
BEFORE = "itself, before"


@dataclass
class _Seen:
    """What clients saw, from the beginning on. An object is its producer and its number there."""

    accepted: set[bytes] = field(default_factory=set)
    """What was told to be kept."""
    settled: set[bytes] = field(default_factory=set)
    """What came to a consumer and was acknowledged, or given to be."""
    given_s: list[float] = field(default_factory=list)
    """When objects of others than the one that dies came, by the monotonic clock."""
    waits: list[tuple[float, float]] = field(default_factory=list)
    """When any object came, and how long it was waited for."""
    waiting: dict[str, float] = field(default_factory=dict)
    """Since when those consumers wait that have none."""
    began: set[str] = field(default_factory=set)
    """Consumers that have had an object."""
    left_ms: list[float] = field(default_factory=list)
    """How long those wait that still did at the end of what is measured."""
    killed_s: float = 0.0
    is_ending: bool = False
    """Nothing is made any more, and consumers take what is left as fast as they can."""


async def _measure(session: Session) -> None:
    runs = []
    for seed in session.seeds(GIVEN):
        measured_s = session.plan.of(*MEASURED_S)
        with tempfile.TemporaryDirectory(prefix="spillover-bench-") as directory:
            stores = Path(directory)
            seen = await _kill_one(stores, session, seed)
            _check_store(stores / DEAD, seen)
        runs.append(_figures(seen, measured_s))
    for case, unit in CASES.items():
        before, after = zip(*(run[case] for run in runs), strict=True)
        session.add_beside(case, unit, {"": after, BEFORE: before})
    session.note(
        "one of 20 producers killed: nothing that was accepted is lost, neither of the others' "
        "objects nor of those in the store of the dead one, else the benchmark ends"
    )


async def _kill_one(stores: Path, session: Session, seed: int) -> _Seen:
    """One run. Raises RunError if an object of the living does not come."""
    warm_up_s, measured_s = session.plan.of(*WARM_UP_S), session.plan.of(*MEASURED_S)
    seen = _Seen()
    async with ProducerBed(
        PRODUCERS, buffers=PLACES - 1, stores=stores, drain_timeout_s=GRACE_S
    ) as bed:
        urls = list(bed.urls.values())
        consumers = [consume(urls, name=f"c{number}") for number in range(CONSUMERS)]
        making = [
            asyncio.create_task(_make(name, url, seen, Random(f"{seed}/{name}")))
            for name, url in bed.urls.items()
        ]
        using = [
            asyncio.create_task(_use(f"c{number}", one, seen, Random(f"{seed}/c{number}")))
            for number, one in enumerate(consumers)
        ]
        running = [*making, *using]
        try:
            what = "each consumer to get an object"
            await _until(lambda: len(seen.began) == CONSUMERS, running, BEGUN_WITHIN_S, what)
            await _go_on(warm_up_s + measured_s, running)
            os.kill(bed.pids[DEAD], signal.SIGKILL)
            seen.killed_s = time.monotonic()
            await _go_on(measured_s, running)
            _end(seen, time.monotonic())
            for one in making:
                one.cancel()
            await asyncio.wait(making)
            what = "all that the living have accepted to come"
            await _until(lambda: not _missing(seen), using, EMPTY_WITHIN_S, what)
            for consumer in consumers:
                consumer.stop()
            await asyncio.gather(*using)
        finally:
            for one in running:
                one.cancel()
            await asyncio.gather(*running, return_exceptions=True)
    return seen


async def _go_on(lasts_s: float, running: Sequence[asyncio.Task[None]]) -> None:
    """Let them work for so long. Raises what one of them has raised."""
    ended, _ = await asyncio.wait(running, timeout=lasts_s, return_when=asyncio.FIRST_EXCEPTION)
    for one in ended:
        one.result()


async def _until(
    is_so: Callable[[], bool], running: Sequence[asyncio.Task[None]], within_s: float, what: str
) -> None:
    limit_s = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > limit_s:
            raise RunError(f"killed: expected {what} within {within_s:.0f} s")
        await _go_on(0.05, running)


def _end(seen: _Seen, ended_s: float) -> None:
    """The measured time is over: those who still wait have waited until now."""
    seen.is_ending = True
    seen.left_ms += [(ended_s - since_s) * 1e3 for since_s in seen.waiting.values()]


def _missing(seen: _Seen) -> set[bytes]:
    """What the living have accepted and nobody has got."""
    return {one for one in seen.accepted - seen.settled if not _is_of_dead(one)}


def _is_of_dead(content: bytes) -> bool:
    return content.startswith(f"{DEAD} ".encode())


async def _make(name: str, url: str, seen: _Seen, random: Random) -> None:
    """A client of one producer. It ends with it."""
    async with produce(url) as queue:
        number = 0
        while True:
            await asyncio.sleep(random.expovariate(PRODUCTION_PER_S))
            number += 1
            content = b"%b %d" % (name.encode(), number)
            try:
                await queue.put(content)
            except SpilloverError:
                if name == DEAD and seen.killed_s:
                    return
                raise
            seen.accepted.add(content)


async def _use(name: str, consumer: Consumer, seen: _Seen, random: Random) -> None:
    """A consumer of all of them."""
    seen.waiting[name] = time.monotonic()
    async for one in consumer:
        now_s = time.monotonic()
        seen.waits.append((now_s, now_s - seen.waiting.pop(name)))
        seen.began.add(name)
        if one.producer != DEAD:
            seen.given_s.append(now_s)
        if not seen.is_ending:
            await asyncio.sleep(random.expovariate(CONSUMPTION_PER_S))
        try:
            await one.ack()
        except SpilloverError:
            if one.producer != DEAD:
                raise
        seen.settled.add(one.body)
        seen.waiting[name] = time.monotonic()


def _figures(seen: _Seen, measured_s: float) -> dict[str, tuple[float, float]]:
    """Returns the figures of a run, before and after. Raises RunError if nothing came."""
    since_s, until_s = seen.killed_s - measured_s, seen.killed_s + measured_s
    given = [seen.killed_s <= at_s for at_s in seen.given_s if since_s <= at_s < until_s]
    waits_ms = [
        (at_s >= seen.killed_s, wait_s * 1e3)
        for at_s, wait_s in seen.waits
        if since_s <= at_s < until_s
    ]
    before = [ms for is_after, ms in waits_ms if not is_after]
    after = [ms for is_after, ms in waits_ms if is_after]
    if not (before and after):
        raise RunError("expected objects before and after a producer is killed, got none")
    return {
        GIVEN: (given.count(False) / measured_s, given.count(True) / measured_s),
        WAITED: (median(before), median(after)),
        # Who waits still counts, too: who is stranded gets no object to be counted by.
        LONGEST: (max(before), max(*after, *seen.left_ms)),
    }


def _check_store(directory: Path, seen: _Seen) -> None:
    """Raise RunError unless what the dead one had accepted and nobody has got is still there."""
    store = ObjectStore(directory, DEAD, "bench")
    try:
        kept = {one.body for one in store.recover()[0]}
    finally:
        store.close()
    if lost := [one for one in seen.accepted - seen.settled - kept if _is_of_dead(one)]:
        raise RunError(f"{len(lost)} objects that the killed producer had accepted are lost")


STAGES = (Stage(tuple(CASES), _measure),)
