"""The process that asks through a client library: `users` at a time, each its next request when it
has the answer to the last. What the figures mean is not known here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count
from multiprocessing.connection import Connection
from typing import Literal, TypeAlias

import httpx
import msgspec
import uvloop

from spillover.client import AsyncSpillover, Spillover
from spillover.live.http.client import HttpClient
from spillover.model.errors import RunError, SpilloverError
from spillover.tools.processes.child import Child
from spillover_loadgen.record import Outcome, read_answer

ANSWER_WITHIN_S = 30.0
JOB_EXTRA_S = 60.0
JSON_HEADER = (b"content-type", b"application/json")

Library: TypeAlias = Literal["AsyncSpillover", "Spillover", "load generator", "httpx"]
Ask: TypeAlias = Callable[[object], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is asked of the node at `url`, through which library, for `duration_s`. Gives the number
    of answers. Connections stay open for the next such job."""

    url: str
    library: Library
    payload: object
    users: int
    duration_s: float


class AskingProcess(Child):
    """There on entry, ended on exit."""

    def __init__(self) -> None:
        super().__init__("the asking process", _work)

    async def count(self, job: Asked) -> int:
        """Does the job; returns how many answers there were. Raises RunError if one is none."""
        self.send(job)
        return int(await self.receive(job.duration_s + JOB_EXTRA_S))


def _work(connection: Connection) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_do_jobs(connection))


async def _do_jobs(connection: Connection) -> None:
    made: dict[tuple[str, Library], Ask] = {}
    threads: dict[str, Spillover] = {}
    try:
        while True:
            job: Asked = await asyncio.to_thread(connection.recv)
            try:
                connection.send(await _answers(job, made, threads))
            except (SpilloverError, httpx.HTTPError) as error:
                connection.send(RunError(str(error)))
    finally:
        for client in threads.values():
            client.close()


async def _answers(
    job: Asked, made: dict[tuple[str, Library], Ask], threads: dict[str, Spillover]
) -> int:
    """How many came, through what is made for the first such job."""
    if job.library == "Spillover":
        if job.url not in threads:
            threads[job.url] = Spillover(job.url)
        return await asyncio.to_thread(_ask_from_threads, threads[job.url], job)
    if (job.url, job.library) not in made:
        made[job.url, job.library] = _asker(job)
    return await _ask_in_turn(made[job.url, job.library], job)


async def _ask_in_turn(ask: Ask, job: Asked) -> int:
    done = 0

    async def user(end_s: float) -> None:
        nonlocal done
        while time.monotonic() < end_s:
            await ask(job.payload)
            done += 1

    end_s = time.monotonic() + job.duration_s
    await asyncio.gather(*(user(end_s) for _ in range(job.users)))
    return done


def _ask_from_threads(client: Spillover, job: Asked) -> int:
    """Waits for all of them, also where one fails."""
    end_s = time.monotonic() + job.duration_s

    def user(_: int) -> int:
        done = 0
        while time.monotonic() < end_s:
            client.run(job.payload)
            done += 1
        return done

    with ThreadPoolExecutor(job.users) as pool:
        return sum(pool.map(user, range(job.users)))


def _asker(job: Asked) -> Ask:
    """Returns what runs a payload through a library. All of them write JSON, name the request, and
    read the answer."""
    match job.library:
        case "httpx":
            return partial(_by_httpx, httpx.AsyncClient(base_url=job.url), count())
        case "load generator":
            return partial(_by_load_generator, HttpClient(job.url), count())
        case _:
            return AsyncSpillover(job.url).run


async def _by_load_generator(client: HttpClient, keys: count[int], payload: object) -> None:
    """As `spillover_loadgen.driver` sends, and reads what comes."""
    response = await client.request(
        "POST",
        "/requests",
        headers=[JSON_HEADER, (b"idempotency-key", b"lean-%d" % next(keys))],
        body=msgspec.json.encode({"payload": payload}),
        timeout_s=ANSWER_WITHIN_S,
    )
    outcome, answer, reason = read_answer(response.status, response.body)
    if outcome is not Outcome.OK or answer is None:
        raise RunError(f"expected a result, got {response.status} {reason}")


async def _by_httpx(client: httpx.AsyncClient, keys: count[int], payload: object) -> None:
    headers = {"Idempotency-Key": f"httpx-{next(keys)}"}
    response = await client.post("/requests", json={"payload": payload}, headers=headers)
    response.raise_for_status()
    response.json()
