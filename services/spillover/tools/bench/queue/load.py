"""Who produces and who consumes, in a process each: so many objects, so many at a time, as fast as
it goes. Each answer is looked at: what is lost or wrong ends the benchmark.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

import uvloop
from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from spillover.live.http.client import HttpClient
from spillover.model.errors import RunError, SpilloverError
from spillover.tools.bench.queue.rabbitmq import open_rabbitmq

TAKE_S = 60.0
SPARE_S = 5.0
"""Redis ends a blocking call itself, a little late."""
LIST, TAKEN = "bench-queue", "bench-queue-taken"
STREAM, GROUP, FIELD = "bench-stream", "bench-group", b"object"

PRODUCER, REDIS_LIST, REDIS_STREAM = "producer", "Redis list", "Redis stream"
RABBITMQ = "RabbitMQ"

Once: TypeAlias = Callable[[int], Awaitable[None]]
"""Bring, or take and acknowledge, one object; the number of the worker."""

Opened: TypeAlias = tuple[Once, Callable[[], Awaitable[None]]]
"""That, and what lets go of the connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """What one process does, `by` PRODUCER, REDIS_LIST, REDIS_STREAM or RABBITMQ, at this
    `url`."""

    by: str
    url: str
    consumes: bool
    size_bytes: int
    count: int
    at_once: int


def work(plan: LoadPlan, connection: Connection) -> None:
    """Of a process: say that it is ready, wait for the word, do it, and say that it is done."""
    try:
        uvloop.run(_work(plan, connection))
    except* (SpilloverError, RedisError) as errors:
        first: BaseException = errors
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        connection.send(RunError(f"{plan.by}: {first}"))


async def _work(plan: LoadPlan, connection: Connection) -> None:
    once, close = await _MAKERS[plan.by](plan)
    left = itertools.count(1)

    async def worker(number: int) -> None:
        while next(left) <= plan.count:
            await once(number)

    try:
        connection.send(None)
        await asyncio.to_thread(connection.recv)
        async with asyncio.TaskGroup() as group:
            for number in range(plan.at_once):
                group.create_task(worker(number))
        connection.send(None)
    finally:
        await close()


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


async def _on_rabbitmq(plan: LoadPlan) -> Opened:
    return await open_rabbitmq(plan.url, plan.size_bytes, plan.at_once, consumes=plan.consumes)


def _redis(plan: LoadPlan) -> tuple[Any, Callable[[], Awaitable[None]]]:
    # Not `live.redis`, which reads text: what is never read as text need not be made text.
    client = Redis.from_url(plan.url, max_connections=plan.at_once, socket_timeout=TAKE_S + SPARE_S)
    return client, client.aclose


_MAKERS: Mapping[str, Callable[[LoadPlan], Awaitable[Opened]]] = {
    PRODUCER: _on_producer,
    REDIS_LIST: _on_list,
    REDIS_STREAM: _on_stream,
    RABBITMQ: _on_rabbitmq,
}
