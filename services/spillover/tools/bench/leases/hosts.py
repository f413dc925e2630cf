"""Processes in which members of a group run: several in each, since it is Redis's side that counts.

Each member is a whole one: its machine, its store, its subscription, and its renewing process. Or,
as the peer, what people write with a library: a lock of redis-py for each partition. Their handlers
only say when they begin and end.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from random import Random
from typing import Any, TypeAlias

import uvloop

from spillover.live.leases.group import LeaseGroup
from spillover.live.redis.connection import open_client
from spillover.model.errors import RunError, SpilloverError
from spillover.tools.bench.leases.ownership import Report
from spillover.tools.bench.leases.settings import TIMES

LOCKS = "locks"
"""Beside the rules: a lock of redis-py for each partition, shared out beforehand."""

REPORT_S = 0.02
SIGN_OF_LIFE_S = 1.0

Note: TypeAlias = Callable[[str, int, bool], None]
"""note(node, partition, whether it runs)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlan:
    """What one process hosts."""

    url: str
    group: str
    rule: str
    """`guarded`, `blog` or `locks`."""
    nodes: tuple[str, ...]
    partitions: tuple[int, ...]
    """How many there are; for locks those of each node, one after the other."""
    seed: int


def host(plan: HostPlan, connection: Connection) -> None:
    """Runs as the process, until the benchmark ends it: says that it is ready, begins when told to,
    and then says again and again what has begun and ended.
    """
    logging.disable(logging.CRITICAL)  # what goes wrong is counted, not told
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(_Host(plan, connection).run())
        except (SpilloverError, OSError) as error:
            with suppress(OSError):
                connection.send(RunError(str(error)))


class _Host:
    """The members, and what their handlers have said since the last report."""

    def __init__(self, plan: HostPlan, connection: Connection) -> None:
        self._plan = plan
        self._connection = connection
        self._said: list[Report] = []

    async def run(self) -> None:
        plan = self._plan
        begin: Sequence[Callable[[], Coroutine[Any, Any, object]]]
        if plan.rule == LOCKS:
            begin = [self._locker(node, index) for index, node in enumerate(plan.nodes)]
        else:
            begin = [self._member(node).__aenter__ for node in plan.nodes]
        self._connection.send(None)
        await asyncio.to_thread(self._connection.recv)
        beginning = asyncio.gather(*(call() for call in begin))
        reporting = asyncio.create_task(self._report())
        await beginning
        await reporting

    async def _report(self) -> None:
        told_s = time.monotonic()
        while True:
            await asyncio.sleep(REPORT_S)
            if self._said or time.monotonic() > told_s + SIGN_OF_LIFE_S:
                said, self._said = self._said, []
                self._connection.send(said)
                told_s = time.monotonic()

    def _note(self, node: str, partition: int, runs: bool) -> None:  # noqa: FBT001
        self._said.append(Report(time.monotonic(), node, partition, runs))

    def _member(self, node: str) -> LeaseGroup:
        async def handle(partition: int, epoch: int, stop_event: Any) -> None:
            del epoch
            self._note(node, partition, True)  # noqa: FBT003
            try:
                await stop_event.wait_async()
            finally:
                self._note(node, partition, False)  # noqa: FBT003

        plan = self._plan
        return LeaseGroup(
            plan.url,
            plan.group,
            node=node,
            partitions=plan.partitions[0],
            handler=handle,
            times=TIMES,
            seed=plan.seed,
            rule=plan.rule,
        )

    def _locker(self, node: str, index: int) -> Callable[[], Coroutine[Any, Any, object]]:
        plan = self._plan
        own = plan.partitions[index :: len(plan.nodes)]
        random = Random(f"{plan.seed}/locks/{node}")
        return lambda: hold_locks(plan.url, plan.group, node, own, random, self._note)


async def hold_locks(
    url: str, group: str, node: str, partitions: Sequence[int], random: Random, note: Note
) -> None:
    """Holds a lock for each partition, renewed once a period each, which is one call of a script.
    What cannot be had, or was lost, is tried for again a period later.
    """
    from redis.exceptions import LockError, RedisError  # noqa: PLC0415

    client = open_client(url, TIMES.renewal_period_ms / 2000.0)
    period_s = TIMES.renewal_period_ms / 1000.0

    async def hold(partition: int) -> None:
        name = f"{{{group}}}:lock:{partition}"
        lock = client.lock(name, timeout=TIMES.max_lease_ms / 1000.0, thread_local=False)
        await asyncio.sleep(random.random() * period_s)
        holds = False
        while True:
            try:
                asked = lock.reacquire() if holds else lock.acquire(blocking=False)
                now_holds = bool(await asked)
            except LockError:
                now_holds = False
            except RedisError:
                now_holds = holds
            if now_holds != holds:
                holds = now_holds
                note(node, partition, holds)
            await asyncio.sleep(period_s)

    try:
        await asyncio.gather(*(hold(partition) for partition in partitions))
    finally:
        await client.aclose()
        await client.connection_pool.disconnect()
