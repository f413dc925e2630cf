"""`spillover bench client`: requests per CPU-second of whoever asks, through the client library,
beside the load generator's own client and httpx, at the same node.

Each library asks from a process of its own: `users` at a time, each its next request when it has
the answer to the last.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Literal, TypeAlias

import httpx
import msgspec

from spillover.client import AsyncSpillover, Spillover
from spillover.live.http1.client import HttpClient
from spillover.model.errors import RunError
from spillover_lab.bench.load_process import (
    ANSWER_WITHIN_S,
    JOB_EXTRA_S,
    JSON_HEADER,
    ask_in_turn,
)
from spillover_lab.bench.nodes import cluster, running_nodes, topology_of
from spillover_lab.bench.session import Figure, Session, Side, Stage
from spillover_lab.bench.usage import cpu_s
from spillover_lab.processes.child import Worker
from spillover_loadgen.record import Outcome, read_answer

Library: TypeAlias = Literal["AsyncSpillover", "Spillover", "load generator", "httpx"]
Ask: TypeAlias = Callable[[object], Awaitable[object]]

UNIT = "requests/CPU-s"
USERS = 12
FREE_SERVERS = 256
TURNS = 4
PEERS: tuple[Library, ...] = ("load generator", "httpx")
SIZES = {"1 KiB": 1024, "64 KiB": 64 * 1024}
CASES: dict[str, tuple[Library, int]] = {
    **{f"AsyncSpillover.run, {name}": ("AsyncSpillover", size) for name, size in SIZES.items()},
    "Spillover.run, threads, 1 KiB": ("Spillover", 1024),
}


async def measure(session: Session) -> None:
    """Measures each library at one node whose servers are always free."""
    plan = session.plan
    topology = topology_of([cluster("a", servers=FREE_SERVERS, queue_limit=10_000)])
    async with AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(running_nodes(topology, plan.seed))
        processes: dict[Library, Worker] = {}

        async def side(library: Library, size_bytes: int) -> Side:
            if library not in processes:
                make = partial(_of, library, nodes["a"].url)
                asking = Worker(f"the process of {library}", make)
                processes[library] = stack.enter_context(asking)
            process = processes[library]

            async def ask(duration_s: float) -> int:
                job = _Asked({"service_ms": 0, "pad": "x" * size_bytes}, duration_s)
                return int(await process.do(job, duration_s + JOB_EXTRA_S))

            async def turn() -> tuple[tuple[float, float]]:
                before_s = cpu_s(process.pid)
                done = await ask(plan.of(1.2, 0.6) / TURNS)
                return ((done, cpu_s(process.pid) - before_s),)

            await ask(plan.of(0.4, 0.2))
            return Side(library, turn)

        for case, (library, size_bytes) in CASES.items():
            if session.wants(case):
                peers = [await side(peer, size_bytes) for peer in PEERS]
                ours = await side(library, size_bytes)
                await session.compare([Figure(case, UNIT)], ours, *peers, turns=TURNS)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A payload that is asked for again and again. The job gives the number of answers."""

    payload: object
    duration_s: float

    async def run(self, library: Ask | Spillover) -> int:
        try:
            if isinstance(library, Spillover):
                return await asyncio.to_thread(self._from_threads, library)
            return await ask_in_turn(partial(library, self.payload), USERS, self.duration_s)
        except httpx.HTTPError as error:
            raise RunError(str(error)) from None

    def _from_threads(self, client: Spillover) -> int:
        end_s = time.monotonic() + self.duration_s

        def user(_: int) -> int:
            done = 0
            while time.monotonic() < end_s:
                client.run(self.payload)
                done += 1
            return done

        with ThreadPoolExecutor(USERS) as pool:
            return sum(pool.map(user, range(USERS)))


def _of(library: Library, url: str) -> Ask | Spillover:
    """Returns what runs a payload through a library. All of them write JSON, name the request, and
    read the answer."""
    match library:
        case "httpx":
            return partial(_by_httpx, httpx.AsyncClient(base_url=url), count())
        case "load generator":
            return partial(_by_load_generator, HttpClient(url), count())
        case "Spillover":
            return Spillover(url)
        case _:
            return AsyncSpillover(url).run


async def _by_load_generator(client: HttpClient, keys: count[int], payload: object) -> None:
    """Sends and reads as `spillover_loadgen.driver` does."""
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


STAGES = (Stage(tuple(CASES), measure),)
