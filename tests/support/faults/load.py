"""Requests of some hundred clients, half of them with a key, until a fault is healed, and what each
client was told.

A client with a key does as a real one would: when its connection fails it sends the same request
again under the same key. Every fourth of all is asynchronous: it asks for the answer later, and
sends its request again where its name is unknown. Some of those are cancelled soon after. A client
without a key sends once. No fault and no verdict lives here.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from spillover.live.http1.client import HttpClient, Response
from spillover.model.errors import PeerError

PATIENCE_S = 105.0
"""Longer than a node may take to be back."""
PAUSE_FIRST_S, PAUSE_LONGEST_S = 0.1, 1.0
ASK_AGAIN_S = 0.1
CANCEL_AFTER_S = 0.05
OPEN_MAX = 200
"""Of one home: a machine that cannot keep up gets no more than it can answer in some seconds."""


@dataclass(slots=True)
class Told:
    """One request and its end as its client saw it. `outcome` is "done", the reason of a problem,
    "unreachable" if no connection brought an answer, or "wrong" for an answer to something else."""

    work: str
    home: str
    keyed: bool
    asynchronous: bool = False
    cancels: bool = False
    outcome: str = "unreachable"
    detail: str = ""
    attempts: int = 0
    path: tuple[str, ...] = ()
    replayed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """`per_s` of them evenly, at least `least`, each of which keeps a server busy for `hold_ms`.
    `homes` has a letter for each in turn: an odd number, so that each home gets all kinds."""

    per_s: float = 100.0
    least: int = 200
    homes: str = "aaaabaacaad"
    hold_ms: float = 60.0


async def send(
    name: str,
    urls: Mapping[str, str],
    load: Load,
    healed: asyncio.Event,
    times_longer: Callable[[], float] = lambda: 1.0,
) -> list[Told]:
    """Send them, each at its instant unless too many wait at its home, until `healed`; returns
    once all have ended. So a fault is in the middle of a load however slow the machine is. Each
    keeps a server busy so many `times_longer` than the load says."""
    clients = {home: HttpClient(urls[home]) for home in set(load.homes)}
    began_s = time.monotonic()
    all_told: list[Told] = []
    try:
        async with asyncio.TaskGroup() as group:
            waiting: Counter[str] = Counter()
            for index in itertools.count():
                if len(all_told) >= load.least and healed.is_set():
                    break
                at_s = began_s + index / load.per_s
                await asyncio.sleep(max(0.0, at_s - time.monotonic()))
                told = _kind(name, index, load.homes[index % len(load.homes)])
                if waiting[told.home] < OPEN_MAX:
                    all_told.append(told)
                    talk = _Talk(clients[told.home], told, load.hold_ms * times_longer())
                    group.create_task(talk.from_start_to_end(waiting))
    finally:
        for client in clients.values():
            await client.close()
    return all_told


def _kind(name: str, index: int, home: str) -> Told:
    return Told(
        f"{name}-{index}",
        home,
        keyed=index % 2 == 0,
        asynchronous=index % 4 == 0,
        cancels=index % 16 == 0,
    )


class _Talk:
    """One client. Its connection fails with PeerError wherever it waits for an answer."""

    def __init__(self, client: HttpClient, told: Told, hold_ms: float) -> None:
        self._client = client
        self._told = told
        self._limit_s = time.monotonic() + PATIENCE_S
        self._body = json.dumps({"payload": {"work": told.work, "hold_ms": hold_ms}}).encode()
        self._headers = [(b"Idempotency-Key", told.work.encode())] if told.keyed else []
        if told.asynchronous:
            self._headers.append((b"Prefer", b"respond-async"))

    async def from_start_to_end(self, waiting: Counter[str]) -> None:
        """It counts among those that wait at its home as long as it does."""
        waiting[self._told.home] += 1
        try:
            await self._until_told()
        finally:
            waiting[self._told.home] -= 1

    async def _until_told(self) -> None:
        pause_s = PAUSE_FIRST_S
        while True:
            try:
                response = await self._post()
                while response.status == 202:
                    response = await self._ask_later()
            except PeerError as error:
                self._told.detail = str(error)
                if not self._told.keyed or time.monotonic() + pause_s > self._limit_s:
                    return
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_LONGEST_S)
            else:
                self._read(response)
                return

    async def _post(self) -> Response:
        self._told.attempts += 1
        return await self._call("POST", "/requests", self._headers, self._body)

    async def _ask_later(self) -> Response:
        """What it has come to; 202 as long as that is nothing."""
        path = f"/requests/{self._told.work}"
        if self._told.cancels:
            await asyncio.sleep(CANCEL_AFTER_S)
            await self._call("DELETE", path)
        while True:
            await asyncio.sleep(ASK_AGAIN_S)
            response = await self._call("GET", path)
            if response.status == 404:
                return await self._post()  # another life of the home
            if json.loads(response.body)["state"] not in {"queued", "running", "forwarded"}:
                return response

    async def _call(
        self, method: str, path: str, headers: list[tuple[bytes, bytes]] | None = None,
        body: bytes = b"",
    ) -> Response:  # fmt: skip
        rest_s = max(0.1, self._limit_s - time.monotonic())
        return await self._client.request(
            method, path, headers=headers or (), body=body, timeout_s=rest_s
        )

    def _read(self, response: Response) -> None:
        told = self._told
        answer: dict[str, Any] = json.loads(response.body)
        problem = answer.get("problem") or answer
        if "reason" in problem:
            told.outcome, told.detail = problem["reason"], problem["detail"]
            return
        told.path = tuple(answer["path"])
        told.outcome = "done" if answer["result"] == {"work": told.work} else "wrong"
        told.replayed = response.headers.get(b"spillover-replayed") == b"true"
