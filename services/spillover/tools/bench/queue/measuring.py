"""The cases: what an object costs at three sizes, and the memory taken while nobody consumes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from functools import partial

from spillover.model.errors import RunError
from spillover.tools.bench.model import Figure, Side, Stage, Value
from spillover.tools.bench.queue.load import PRODUCER, REDIS_LIST, REDIS_STREAM, LoadPlan, work
from spillover.tools.bench.queue.rabbitmq import why_not
from spillover.tools.bench.queue.sides import (
    Store,
    central_rabbitmq,
    central_redis,
    our_producer,
)
from spillover.tools.bench.session import Session
from spillover.tools.bench.usage import cpu_s, resident_bytes
from spillover.tools.processes.child import Child

SIZES = {"1 KiB": 1 << 10, "64 KiB": 1 << 16, "4 MiB": 1 << 22}
COUNTS = {"1 KiB": (30_000, 3_000), "64 KiB": (10_000, 1_000), "4 MiB": (400, 40)}
"""Objects of a turn, in full and quick."""

AT_ONCE = {"1 KiB": 32, "64 KiB": 16, "4 MiB": 4}

REDIS = (REDIS_LIST, REDIS_STREAM)

READY_WITHIN_S = 60.0
DONE_WITHIN_S = 300.0
STUCK_S = 3.0
"""For which objects are brought and nobody takes any."""
STUCK_COUNT = 64

MB = 1e6


def _figures(size: str) -> tuple[Figure, ...]:
    return (
        Figure(f"objects of {size}", "per s"),
        Figure(f"objects of {size}: bytes moved between machines", "KB each"),
        Figure(f"objects of {size}: CPU of the queue", "us each"),
        Figure(f"objects of {size}: CPU of producers and consumers", "us each"),
    )


_STUCK = Figure("memory while nobody takes: objects of 4 MiB brought for 3 s", "MB more")


async def _sizes(size: str, session: Session) -> None:
    count = int(session.plan.of(*COUNTS[size]))
    missing = why_not()
    async with AsyncExitStack() as stack:
        stores = [
            await stack.enter_async_context(our_producer()),
            *[await stack.enter_async_context(central_redis(name, session)) for name in REDIS],
        ]
        if missing is None:
            try:
                stores.append(stack.enter_context(central_rabbitmq()))
            except RunError as error:  # what the others show is not lost with it
                missing = str(error)
        sides = [Side(one.name, partial(_turn, one, size, count)) for one in stores]
        await session.compare(_figures(size), *sides)
    session.note("whoever produces is on its producer's machine, the others on one of their own")
    session.note(
        "RabbitMQ: transient objects, confirmed; its bytes are all that went over loopback"
        if missing is None
        else f"RabbitMQ is not compared: {missing}"
    )


async def _turn(store: Store, size: str, count: int) -> Sequence[Value]:
    """So many objects through it: produced, taken and acknowledged."""
    plans = [
        LoadPlan(
            by=store.name,
            url=store.url,
            consumes=consumes,
            size_bytes=SIZES[size],
            count=count,
            at_once=AT_ONCE[size],
        )
        for consumes in (False, True)
    ]
    with ExitStack() as stack:
        children = [stack.enter_context(Child("the load", work, plan)) for plan in plans]
        for child in children:
            await child.receive(READY_WITHIN_S)
        pids = [child.pid for child in children]
        moved, used = await store.moved(), [cpu_s(pid) for pid in (store.pid, *pids)]
        begun_s = time.monotonic()
        for child in children:
            child.send(None)
        await _all_done(children)
        took_s = time.monotonic() - begun_s
        used = [cpu_s(pid) - at for pid, at in zip((store.pid, *pids), used, strict=True)]
        moved = await store.moved() - moved
    return values_of(count, took_s, moved, used)


def values_of(count: int, took_s: float, moved: float, used_s: Sequence[float]) -> Sequence[Value]:
    """Returns the values of `_figures`, of so many objects: for which so many bytes went between
    machines, and so much CPU time of the queue and then of each of its clients."""
    queue_s, clients_s = used_s[0], sum(used_s[1:])
    return (
        count / took_s,
        moved / count / 1e3,
        (queue_s * 1e6, float(count)),
        (clients_s * 1e6, float(count)),
    )


async def _all_done(children: Sequence[Child]) -> None:
    tasks = [asyncio.create_task(child.receive(DONE_WITHIN_S)) for child in children]
    try:
        await asyncio.gather(*tasks)
    finally:  # nobody waits for one whose other has failed
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _stuck(session: Session) -> None:
    """Each side anew on each turn: memory that was taken once is not given back."""
    ours = Side(PRODUCER, _grown_ours)
    theirs = [Side(name, partial(_grown_redis, name, session)) for name in REDIS]
    await session.compare((_STUCK,), ours, *theirs)


async def _grown_ours() -> Sequence[Value]:
    async with our_producer() as store:
        return (await _grown(store),)


async def _grown_redis(name: str, session: Session) -> Sequence[Value]:
    async with central_redis(name, session) as store:
        return (await _grown(store),)


async def _grown(store: Store) -> float:
    plan = LoadPlan(
        by=store.name,
        url=store.url,
        consumes=False,
        size_bytes=SIZES["4 MiB"],
        count=STUCK_COUNT,
        at_once=8,
    )
    before = resident_bytes(store.pid)
    with Child("the load", work, plan) as child:
        await child.receive(READY_WITHIN_S)
        child.send(None)
        await asyncio.sleep(STUCK_S)
        return more_mb(before, resident_bytes(store.pid))


def more_mb(before_bytes: int, after_bytes: int) -> float:
    """Returns by how much memory has grown."""
    return (after_bytes - before_bytes) / MB


STAGES = (
    *(
        Stage(tuple(figure.case for figure in _figures(size)), partial(_sizes, size))
        for size in SIZES
    ),
    Stage((_STUCK.case,), _stuck),
)
