"""Who produces and who consumes, in a process each: so many objects, so many at a time, as fast as
it goes. Each answer is looked at: what is lost or wrong ends the benchmark.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TypeAlias

import uvloop

from spillover.live.http.client import HttpClient
from spillover.live.redis.connection import open_client
from spillover.model.errors import RunError, SpilloverError

TAKE_S = 60.0
LIST, TAKEN = "bench-queue", "bench-queue-taken"

Once: TypeAlias = Callable[[int], Awaitable[None]]
"""Bring, or take and acknowledge, one object; the number of the worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """What one process does. `url` is a producer's, or Redis's."""

    url: str
    consumes: bool
    size_bytes: int
    count: int
    at_once: int


def work(plan: LoadPlan, connection: Connection) -> None:
    """Of a process: say that it is ready, wait for the word, do it, and say that it is done."""
    try:
        uvloop.run(_work(plan, connection))
    except SpilloverError as error:
        connection.send(RunError(str(error)))


async def _work(plan: LoadPlan, connection: Connection) -> None:
    make = _on_redis if plan.url.startswith("redis") else _on_producer
    once, close = await make(plan)
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


async def _on_producer(plan: LoadPlan) -> tuple[Once, Callable[[], Awaitable[None]]]:
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


async def _on_redis(plan: LoadPlan) -> tuple[Once, Callable[[], Awaitable[None]]]:
    client = open_client(plan.url, TAKE_S, connections=plan.at_once)
    body = bytes(plan.size_bytes)

    async def put(_: int) -> None:
        await client.rpush(LIST, body)

    async def take(number: int) -> None:
        taken = f"{TAKEN}-{number}"
        found = await client.blmove(LIST, taken, int(TAKE_S), "LEFT", "RIGHT")
        if found is None or len(found) != plan.size_bytes:
            raise RunError("expected an object of Redis, got none")
        await client.ltrim(taken, 1, 0)  # the only one there: LREM would send it once more

    async def close() -> None:
        await client.aclose()
        await client.connection_pool.disconnect()

    return (take if plan.consumes else put), close
