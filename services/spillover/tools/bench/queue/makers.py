"""The clients that make objects for `closed`, in a process of their own: what they do must not
delay the loop of those who wait for objects, whose lateness would count as waiting.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import uvloop

from spillover.live.http.client import HttpClient
from spillover.model.errors import PeerError, RunError, SpilloverError
from spillover.sim.queue.replay import next_of
from spillover.tools.processes.child import Child

OBJECT_BYTES = 1024
CALL_S = 90.0
"""Longer than a client waits at the door."""
DEADLINE = (b"spillover-deadline-ms", b"60000")
ENDS_WITHIN_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """What one run of theirs goes by."""

    urls: Mapping[str, str]
    """Of producers, each with one client, by id."""
    made_s: Sequence[Sequence[float]]
    """In the same order: when each client has made an object, if it is making one."""
    message_s: float
    """One way to a producer, of an object or of the news that it is taken."""
    begins_s: float
    """By the monotonic clock, which all processes share. All else counts from then."""


class Makers(Child):
    """There on entry, ended on exit; one run after the other."""

    def __init__(self) -> None:
        super().__init__("the process that makes objects", _work)

    def begin(self, making: Making) -> None:
        """Raises RunError."""
        self.send(making)

    async def made(self, within_s: float) -> list[list[float]]:
        """Returns what it went by, with when objects were made written over what was drawn, once
        `stop` was called. Raises RunError: at once if one of its calls goes wrong."""
        made_s: list[list[float]] = await self.receive(within_s)
        return made_s

    def stop(self) -> None:
        """End the run. Raises RunError."""
        self.send(None)


def _work(connection: Connection) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_runs(connection))


async def _runs(connection: Connection) -> None:
    while True:
        making: Making = await _heard(connection)
        clients = [HttpClient(url) for url in making.urls.values()]
        try:
            connection.send(await _run(making, clients, connection))
        except SpilloverError as error:
            connection.send(RunError(f"a producer: {error}"))
        finally:
            for client in clients:
                with suppress(PeerError):
                    await client.close()


async def _run(
    making: Making, clients: Sequence[HttpClient], connection: Connection
) -> list[list[float]]:
    """Returns when objects were made, when it is told to stop. Raises SpilloverError."""
    made_s = [list(times) for times in making.made_s]
    told = asyncio.ensure_future(_heard(connection))
    running = [
        asyncio.ensure_future(_make(client, times, making))
        for client, times in zip(clients, made_s, strict=True)
    ]
    failing = asyncio.gather(*running)
    try:
        await asyncio.wait([told, failing], return_when=asyncio.FIRST_COMPLETED)
        if failing.done():
            failing.result()
        await told
    finally:
        for task in (told, *running):
            task.cancel()
        await asyncio.gather(told, *running, failing, return_exceptions=True)
    return made_s


async def _make(client: HttpClient, made_s: list[float], making: Making) -> None:
    """One client. What its call takes by itself counts as making the next object: a producer of the
    document has no such call."""
    body = bytes(OBJECT_BYTES)
    k = next_of(made_s, 0.0, -1)
    while k < len(made_s):
        await asyncio.sleep(made_s[k] - _since_s(making))
        made_s[k] = _since_s(making)
        answer = await client.request(
            "POST", "/objects", headers=[DEADLINE], body=body, timeout_s=CALL_S
        )
        if answer.status != 201:
            raise RunError(f"expected 201 for an object, got {answer.status}")
        k = next_of(made_s, _since_s(making) - 2.0 * making.message_s, k)


def _since_s(making: Making) -> float:
    return time.monotonic() - making.begins_s


async def _heard(connection: Connection) -> Any:
    """Returns the next word of the parent's."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(connection.fileno(), readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(connection.fileno())
    return connection.recv()
