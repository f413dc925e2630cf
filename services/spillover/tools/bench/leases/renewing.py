"""A process whose handlers keep the interpreter busy, and the leases that it renews meanwhile.

Each member has a group of its own, whose partitions it holds all along: only renewal is looked at.
It renews from a process, from a thread (both `live.leases.renewal`), or, as the peer, from a task
of the event loop as most people write it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import uvloop

from spillover.core.leases import events as ev
from spillover.live.leases.renewal.clock import lease_now_s
from spillover.live.leases.renewal.lease import Lease
from spillover.live.leases.renewal.renewer import LeaseRenewer
from spillover.live.leases.renewal.settings import make_plan
from spillover.live.leases.store import RedisLeaseStore
from spillover.model.errors import PeerError, RunError, SpilloverError
from spillover.tools.bench.leases.server import new_group
from spillover.tools.bench.leases.settings import TIMES

PROCESS, THREAD, TASK = "process", "thread", "task"

PERIOD_S = TIMES.renewal_period_ms / 1000.0
HELD = 4
"""Partitions of each member."""
HANDLERS = 4
"""That are busy at a time, in each process."""
RECORDS = 20_000
"""Of the batch that a handler reads again and again."""
AFTER_S = 1.5 * PERIOD_S
"""How much longer than the load renewals are waited for: those that were due within it may be
late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPlan:
    """What one process does."""

    url: str
    mode: str
    members: int
    load_s: float


@dataclass(frozen=True, slots=True)
class Loaded:
    """What came of it: how late the renewals that were due under load were sent, in ms, how many
    leases were lost, and how long reading one batch took, in ms."""

    late_ms: list[float]
    lost: int
    batch_ms: float


def hold_under_load(plan: LoadedPlan, connection: Connection) -> None:
    """Runs as the process: says that it is ready, waits for a word, and tells of `Loaded`."""
    logging.disable(logging.CRITICAL)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            connection.send(None)
            runner.run(_run(plan, connection))
        except (SpilloverError, OSError) as error:
            with suppress(OSError):
                connection.send(RunError(str(error)))


def spin(connection: Connection) -> None:
    """Takes time of a core and does nothing else, until the benchmark ends it."""
    connection.send(None)
    while True:
        pass


async def _run(plan: LoadedPlan, connection: Connection) -> None:
    kind = _Task if plan.mode == TASK else _Renewer
    members: list[_Task | _Renewer] = [kind(plan) for _ in range(plan.members)]
    for member in members:
        await member.begin()
        await asyncio.sleep(PERIOD_S / plan.members)  # so that they do not all renew at once
    batch = json.dumps([{"id": number, "value": number % 7} for number in range(RECORDS)])
    connection.send(None)
    await asyncio.to_thread(connection.recv)
    from_s = lease_now_s()
    to_s = from_s + plan.load_s
    read: list[int] = []
    handlers = [
        threading.Thread(target=_handle, args=(batch, to_s, read), daemon=True)
        for _ in range(HANDLERS)
    ]
    for handler in handlers:
        handler.start()
    await asyncio.sleep(plan.load_s + AFTER_S)
    sent = [renewal for member in members for renewal in member.sent]
    lost = sum(len(member.lost()) for member in members)
    connection.send(loaded_of(sent, lost, (from_s, to_s), len(read)))
    for member in members:
        await member.close()


def loaded_of(
    sent: Sequence[tuple[float, float]], lost: int, load: tuple[float, float], batches: int
) -> Loaded:
    """Returns what came of renewals, each of them when it was due and how late it was sent; the
    load was from then to then, and so many batches were read."""
    from_s, to_s = load
    late_ms = [late_s * 1000.0 for due_s, late_s in sent if from_s <= due_s < to_s]
    return Loaded(late_ms, lost, (to_s - from_s) / max(1, batches) * 1000.0)


def _handle(batch: str, to_s: float, read: list[int]) -> None:
    """As handlers do: reading JSON, which keeps the interpreter, then a loop over it. Notes what
    came of each batch."""
    while lease_now_s() < to_s:
        read.append(sum(record["value"] for record in json.loads(batch)))


class _Member:
    """Its group, its store and what it holds there."""

    def __init__(self, plan: LoadedPlan) -> None:
        self._url = plan.url
        self._group = new_group()
        self._incarnation = uuid.uuid4().hex[:16]
        self._store = RedisLeaseStore(self._url, self._group, HELD, TIMES)
        self.held: list[tuple[int, int]] = []
        self.sent: list[tuple[float, float]] = []
        """When a renewal was due, and how late it was sent, in s."""
        self._lost: set[int] = set()

    async def take_all(self) -> None:
        await self._store.join("n", self._incarnation)
        for partition in range(HELD):
            await self._store.grab(partition, "n", 0.0)
            epoch = (await self._store.activate(partition, "n")).epoch
            if epoch is None:
                raise RunError("a partition that nobody else wants was not granted")
            self.held.append((partition, epoch))

    def lost(self) -> set[int]:
        return self._lost

    def _judge(self, answers: Sequence[tuple[int, bool, bool]]) -> None:
        self._lost.update(partition for partition, kept, _ in answers if not kept)


class _Renewer(_Member):
    """Renews as members do, in a process or a thread."""

    def __init__(self, plan: LoadedPlan) -> None:
        super().__init__(plan)
        self._mode = plan.mode
        self._late_s = 0.0
        self._leases: list[Lease] = []

    async def begin(self) -> None:
        await self.take_all()
        renewal = make_plan(
            self._url, self._group, HELD, TIMES, node="n", incarnation=self._incarnation
        )
        self._renewer = LeaseRenewer(renewal, self._on_event, on_lag=self._on_lag, mode=self._mode)
        to_s = lease_now_s() + (TIMES.max_lease_ms - TIMES.fence_margin_ms) / 1000.0
        self._leases = [self._renewer.grant(*pair, to_s) for pair in self.held]
        self._renewer.begin()

    def lost(self) -> set[int]:
        return self._lost | {lease.partition for lease in self._leases if lease.is_over}

    async def close(self) -> None:
        await asyncio.to_thread(self._renewer.close)
        await self._store.close()

    def _on_lag(self, late_s: float) -> None:
        self._late_s = late_s

    def _on_event(self, event: Any) -> None:
        """In the renewer's thread, after `_on_lag`."""
        if isinstance(event, ev.RenewalAnswered | ev.RenewalFailed):
            self.sent.append((event.sent_s - self._late_s, self._late_s))
        if isinstance(event, ev.RenewalAnswered):
            self._judge(event.answer.held)


class _Task(_Member):
    """Renews from the event loop, with the same script. What fails waits for the next period."""

    async def begin(self) -> None:
        await self.take_all()
        self._task = asyncio.create_task(self._renew())

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        await self._store.close()

    async def _renew(self) -> None:
        while True:
            due_s = lease_now_s() + PERIOD_S
            await asyncio.sleep(PERIOD_S)
            self.sent.append((due_s, lease_now_s() - due_s))
            try:
                answer = await self._store.renew("n", self._incarnation, self.held)
            except PeerError:
                continue
            self._judge(answer.held)
