"""A group under way: its hosts are started, told to begin, listened to, and ended."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Self

import psutil

from spillover.model.errors import RunError
from spillover.tools.bench.leases.hosts import LOCKS, HostPlan, host
from spillover.tools.bench.leases.ownership import Ownership, Report, replayed
from spillover.tools.bench.leases.readings import descendants, see_off
from spillover.tools.processes.child import Child

READY_WITHIN_S = 60.0
SILENT_WITHIN_S = 60.0
"""A host in which a thousand things go wrong at once may be silent for long."""


class Cluster:
    """As a context manager: its hosts are ready on entry, and begin with `begin`."""

    def __init__(
        self,
        url: str,
        group: str,
        rule: str,
        *,
        hosts: int,
        members: int,
        partitions: int,
        seed: int,
    ) -> None:
        self.partitions = partitions
        self.nodes = tuple(f"n{number}" for number in range(members))
        self._reports: list[Report] = []
        self._ownership = Ownership(partitions, self.nodes)
        self._changed = asyncio.Event()
        self._failure: RunError | None = None
        self._killed: set[int] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._stack = AsyncExitStack()
        self._plans = [
            HostPlan(
                url=url,
                group=group,
                rule=rule,
                nodes=self.nodes[index::hosts],
                partitions=_partitions_of(rule, index, hosts, partitions),
                seed=seed,
            )
            for index in range(hosts)
        ]
        self._children: list[Child] = []

    async def __aenter__(self) -> Self:
        try:
            for number, plan in enumerate(self._plans):
                child = Child(f"host {number} of the members", host, plan)
                self._children.append(self._stack.enter_context(child))
            for child in self._children:
                await child.receive(READY_WITHIN_S)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        begun: list[psutil.Process] = []
        for pid in self.pids:
            begun += descendants(pid)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()
        await asyncio.to_thread(see_off, begun)

    @property
    def pids(self) -> list[int]:
        """Returns the ids of the hosts' processes; members in a process of their own have the same
        order."""
        return [child.pid for child in self._children]

    @property
    def is_even(self) -> bool:
        return self._ownership.even_since_s is not None

    @property
    def served_once(self) -> int:
        """Returns how many partitions run at one node and at no other."""
        return self._ownership.served_once

    def held_by(self, node: str) -> list[int]:
        return self._ownership.held_by(node)

    def runs_elsewhere(self, partition: int, node: str) -> bool:
        return bool(self._ownership.owners[partition] - {node})

    def begin(self) -> float:
        """Has all members begin at once; returns when that was."""
        began_s = time.monotonic()
        for number, child in enumerate(self._children):
            child.send(None)
            self._tasks.append(asyncio.create_task(self._listen(number, child)))
        return began_s

    def kill(self, number: int) -> float:
        """Kills a host, as a crash would; returns when that was."""
        self._killed.add(number)
        os.kill(self._children[number].pid, signal.SIGKILL)
        return time.monotonic()

    async def until(self, condition: Callable[[], bool], within_s: float) -> bool:
        """Waits until it comes to that, and returns whether it did in time. Raises RunError if a
        host dies or fails."""
        try:
            async with asyncio.timeout(within_s):
                while not condition():
                    self.check()
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def check(self) -> None:
        """Raises RunError if a host has died or failed."""
        if self._failure is not None:
            raise self._failure

    def reports(self) -> Sequence[Report]:
        return self._reports

    def replay(self) -> Ownership:
        """Returns all that was said so far, in the order in which it happened."""
        return replayed(self._reports, self.partitions, self.nodes)

    async def _listen(self, number: int, child: Child) -> None:
        try:
            while True:
                for report in await child.receive(SILENT_WITHIN_S):
                    self._reports.append(report)
                    self._ownership.note(report)
                self._changed.set()
        except RunError as failure:
            if number not in self._killed:
                self._failure = failure
                self._changed.set()


def _partitions_of(rule: str, index: int, hosts: int, partitions: int) -> tuple[int, ...]:
    return tuple(range(partitions))[index::hosts] if rule == LOCKS else (partitions,)
