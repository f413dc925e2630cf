"""`spillover bench queue`: the distributed queue beside one central Redis (here), beside itself in
virtual time (`queue_waits`), and with one of twenty producers killed (`queue_killed`). The figures:
decision 0039.

Here is what an object costs at three sizes, and the memory taken while nobody consumes. A producer
of ours stands beside a Redis, used as a list or as a stream, each a process that is measured from
outside. Who produces and who consumes is a process each: so many objects, so many at a time, as
fast as it goes. Each answer is looked at: what is lost or wrong ends the benchmark.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from spillover.live.http1.client import HttpClient
from spillover.live.redis.connection import open_client
from spillover.model.errors import RunError, SpilloverError
from spillover.testbed.producers import ProducerBed
from spillover_lab.bench import queue_killed, queue_waits
from spillover_lab.bench.servers import own_redis
from spillover_lab.bench.session import Figure, Session, Side, Stage, Value, together
from spillover_lab.bench.usage import cpu_s, resident_bytes
from spillover_lab.processes.child import Child

TAKE_S = 60.0
SPARE_S = 5.0
"""Redis ends a blocking call itself, a little late."""
LIST, TAKEN = "bench-queue", "bench-queue-taken"
STREAM, GROUP, FIELD = "bench-stream", "bench-group", b"object"

PRODUCER, REDIS_LIST, REDIS_STREAM = "producer", "Redis list", "Redis stream"

SIZES = {"1 KiB": 1 << 10, "64 KiB": 1 << 16, "4 MiB": 1 << 22}
COUNTS = {"1 KiB": (30_000, 3_000), "64 KiB": (10_000, 1_000), "4 MiB": (400, 40)}
"""Objects of a turn, in full and quick."""
AT_ONCE = {"1 KiB": 32, "64 KiB": 16, "4 MiB": 4}
REDIS = (REDIS_LIST, REDIS_STREAM)

BUFFERS = 16
GRACE_S = 0.1
REDIS_TIMEOUT_S = 5.0
READY_WITHIN_S = 60.0
DONE_WITHIN_S = 300.0
STUCK_S = 3.0
"""A run is stuck when objects are brought and nobody takes any for this long."""
STUCK_COUNT = 64
STUCK = Figure("memory while nobody takes: objects of 4 MiB brought for 3 s", "MB more")

_SENT = re.compile(rb"^spillover_queue_sent_bytes_total\{[^}]*\} ([0-9.e+]+)$", re.MULTILINE)


def _figures(size: str) -> tuple[Figure, ...]:
    return (
        Figure(f"objects of {size}", "per s"),
        Figure(f"objects of {size}: bytes moved between machines", "KB each"),
        Figure(f"objects of {size}: CPU of the queue", "us each"),
        Figure(f"objects of {size}: CPU of producers and consumers", "us each"),
    )


@dataclass(frozen=True, slots=True)
class Store:
    """What holds the objects. `moved` tells bytes of objects between machines since its start."""

    name: str
    url: str
    pid: int
    moved: Callable[[], Awaitable[float]]


@asynccontextmanager
async def _our_producer() -> AsyncIterator[Store]:
    """Starts a producer with objects in memory. Whoever produces is on its machine: what moves is
    what it sends to consumers."""
    async with ProducerBed(1, buffers=BUFFERS, drain_timeout_s=GRACE_S) as bed:
        ((name, url),) = bed.urls.items()

        async def moved() -> float:
            client = HttpClient(url)
            try:
                body = (await client.request("GET", "/metrics", timeout_s=5.0)).body
            finally:
                await client.close()
            if (found := _SENT.search(body)) is None:
                raise RunError("expected the bytes that were sent in the metrics of the producer")
            return float(found[1])

        yield Store(PRODUCER, url, bed.pids[name], moved)


@asynccontextmanager
async def _central_redis(name: str, session: Session) -> AsyncIterator[Store]:
    """Starts a Redis as if on a machine of its own, used as the `name` says: what moves is what it
    is sent and what it sends."""
    with own_redis(session) as place:
        client = open_client(place.url, REDIS_TIMEOUT_S, connections=1)

        async def moved() -> float:
            stats = await client.info("stats")
            return float(stats["total_net_input_bytes"] + stats["total_net_output_bytes"])

        try:
            info = await client.info("server")
            yield Store(name, place.url, int(info["process_id"]), moved)
        finally:
            await client.aclose()
            await client.connection_pool.disconnect()


async def _measure_size(size: str, session: Session) -> None:
    async with AsyncExitStack() as stack:
        stores = [
            await stack.enter_async_context(_our_producer()),
            *[await stack.enter_async_context(_central_redis(name, session)) for name in REDIS],
        ]
        count = int(session.plan.of(*COUNTS[size]))
        sides = [Side(one.name, partial(_turn, one, size, count)) for one in stores]
        await session.compare(_figures(size), *sides)
    session.note("whoever produces is on its producer's machine, the others on one of their own")


async def _turn(store: Store, size: str, count: int) -> Sequence[Value]:
    """Has so many objects produced, taken and acknowledged."""
    with ExitStack() as stack:
        children = []
        for consumes in (False, True):
            plan = LoadPlan(
                by=store.name,
                url=store.url,
                consumes=consumes,
                size_bytes=SIZES[size],
                count=count,
                at_once=AT_ONCE[size],
            )
            children.append(stack.enter_context(Child("the load", work, plan)))
        for child in children:
            await child.receive(READY_WITHIN_S)
        pids = (store.pid, *(child.pid for child in children))
        moved, used_s = await store.moved(), [cpu_s(pid) for pid in pids]
        begun_s = time.monotonic()
        for child in children:
            child.send(None)
        async with asyncio.TaskGroup() as group:
            for child in children:
                group.create_task(child.receive(DONE_WITHIN_S))
        took_s = time.monotonic() - begun_s
        queue_s, *clients_s = (cpu_s(pid) - at for pid, at in zip(pids, used_s, strict=True))
        moved = await store.moved() - moved
    each = float(count)
    return count / took_s, moved / count / 1e3, (queue_s * 1e6, each), (sum(clients_s) * 1e6, each)


async def _measure_stuck(session: Session) -> None:
    """Measures each side anew on each turn: memory that was taken once is not given back."""

    def side(name: str) -> Side:
        async def measure() -> Sequence[Value]:
            running = _our_producer() if name == PRODUCER else _central_redis(name, session)
            async with running as store:
                return (await _grown_mb(store),)

        return Side(name, measure)

    await session.compare((STUCK,), side(PRODUCER), *map(side, REDIS))


async def _grown_mb(store: Store) -> float:
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
        return (resident_bytes(store.pid) - before) / 1e6


# --- who produces, and who consumes --------------------------------------------------------------


Once: TypeAlias = Callable[[int], Awaitable[None]]
"""Bring, or take and acknowledge, one object; the number of the worker."""

Opened: TypeAlias = tuple[Once, Callable[[], Awaitable[None]]]
"""That, and what lets go of the connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """What one process does, `by` PRODUCER, REDIS_LIST or REDIS_STREAM, at this `url`."""

    by: str
    url: str
    consumes: bool
    size_bytes: int
    count: int
    at_once: int


async def work(plan: LoadPlan, connection: Connection) -> None:
    """Runs as a process: says that it is ready, waits for the word, does it, and says that it is
    done."""
    left = itertools.count(1)
    try:
        once, close = await _MAKERS[plan.by](plan)

        async def worker(number: int) -> None:
            while next(left) <= plan.count:
                await once(number)

        try:
            connection.send(None)
            await asyncio.to_thread(connection.recv)
            await together([worker(number) for number in range(plan.at_once)])
            connection.send(None)
        finally:
            await close()
    except (SpilloverError, RedisError) as error:
        raise RunError(f"{plan.by}: {error}") from None


async def _on_producer(plan: LoadPlan) -> Opened:
    client = HttpClient(plan.url)
    body = bytes(plan.size_bytes)
    names = itertools.count()

    async def put(_: int) -> None:
        answer = await client.request("POST", "/objects", body=body, timeout_s=TAKE_S)
        if answer.status != 201:
            raise RunError(f"expected 201 for an object, got {answer.status}")

    async def take(number: int) -> None:
        asked = {"consumer": f"c{number}", "probe_id": f"{number}-{next(names)}"}
        answer = await client.request(
            "POST", "/take", body=json.dumps(asked).encode(), timeout_s=TAKE_S
        )
        if answer.status != 200 or len(answer.body) != plan.size_bytes:
            raise RunError(f"expected an object, got {answer.status}, {len(answer.body)} bytes")
        path = f"/grants/{answer.headers[b'spillover-grant'].decode()}/ack"
        told = await client.request("POST", path, timeout_s=TAKE_S)
        if told.status != 204:
            raise RunError(f"expected 204 for an acknowledgement, got {told.status}")

    return (take if plan.consumes else put), client.close


async def _on_list(plan: LoadPlan) -> Opened:
    client, close = _redis(plan)
    body = bytes(plan.size_bytes)

    async def put(_: int) -> None:
        await client.rpush(LIST, body)

    async def take(number: int) -> None:
        taken = f"{TAKEN}-{number}"
        found = await client.blmove(LIST, taken, int(TAKE_S), "LEFT", "RIGHT")
        if found is None or len(found) != plan.size_bytes:
            raise RunError("expected an object of Redis, got none")
        await client.ltrim(taken, 1, 0)  # the only one there: LREM would send it once more

    return (take if plan.consumes else put), close


async def _on_stream(plan: LoadPlan) -> Opened:
    client, close = _redis(plan)
    body = bytes(plan.size_bytes)
    with suppress(ResponseError):  # the other process has made it
        await client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)

    async def put(_: int) -> None:
        await client.xadd(STREAM, {FIELD: body})

    async def take(number: int) -> None:
        who = ("GROUP", GROUP, f"c{number}", "COUNT", 1, "BLOCK", int(TAKE_S * 1e3))
        found = await client.execute_command("XREADGROUP", *who, "STREAMS", STREAM, ">")
        ((id_, fields),) = found[0][1] if found else [(b"", {})]
        if len(fields.get(FIELD, b"")) != plan.size_bytes:
            raise RunError("expected an object of Redis, got none")
        # Acknowledged entries stay in a stream until they are deleted; both in one round trip.
        both = client.pipeline(transaction=False)
        both.execute_command("XACK", STREAM, GROUP, id_)
        both.execute_command("XDEL", STREAM, id_)
        await both.execute()

    return (take if plan.consumes else put), close


def _redis(plan: LoadPlan) -> tuple[Any, Callable[[], Awaitable[None]]]:
    # Not `live.redis`, which reads text: what is never read as text need not be made text.
    client = Redis.from_url(plan.url, max_connections=plan.at_once, socket_timeout=TAKE_S + SPARE_S)
    return client, client.aclose


_MAKERS: Mapping[str, Callable[[LoadPlan], Awaitable[Opened]]] = {
    PRODUCER: _on_producer,
    REDIS_LIST: _on_list,
    REDIS_STREAM: _on_stream,
}


STAGES = (
    *(
        Stage(tuple(figure.case for figure in _figures(size)), partial(_measure_size, size))
        for size in SIZES
    ),
    Stage((STUCK.case,), _measure_stuck),
    *queue_waits.STAGES,
    *queue_killed.STAGES,
)
