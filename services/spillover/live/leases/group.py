"""A member of a lease group as its users hold it: its settings, `async with`, and its state.
`shell` does the rest."""

from __future__ import annotations

import asyncio
import os
import uuid
from random import Random
from typing import Self

from spillover.core.leases import events as ev
from spillover.core.leases.machine import Phase
from spillover.core.leases.settings import MemberSettings
from spillover.live.engine.loop_lag import LoopLag
from spillover.live.leases.completion import Completion, FailedMachine
from spillover.live.leases.event_log import EventLog, OnEvent
from spillover.live.leases.handlers import Handler, check_handler
from spillover.live.leases.parts import MachineState, make_parts
from spillover.live.leases.renewal.supervisor import MODES
from spillover.live.leases.shell import MemberShell
from spillover.live.redis.rotation import RedisAddress, RedisUrl
from spillover.model.arguments import checked_function, wrong
from spillover.model.lease_times import LeaseTimes


class LeaseGroup:
    """One member, from `async with` until that ends: it then hands everything over and leaves.

    `handler(partition, epoch, stop_event)` runs for each partition that is held, on a thread, or on
    the loop if it is async. `url` is the address of Redis, or the path of a file that has it, whose
    password may change meanwhile. `on_event` gets what happens as dicts. Members are evened out by
    the `balance` of "count" or "load". `rule="blog"` is for comparison: no renewals, nobody is
    fenced, and all epochs are 0. Raises InputError for unusable settings, at entry also for a group
    of other settings and a Redis that refuses; RunError at the end if it gave up, unless told
    before.
    """

    def __init__(
        self,
        url: RedisUrl,
        group: str,
        *,
        node: str,
        partitions: int,
        handler: Handler,
        times: LeaseTimes | None = None,
        rule: str = "guarded",
        balance: str = "count",
        max_progress_ms: float | None = None,
        on_event: OnEvent | None = None,
        seed: int | None = None,
        renewer: str = "auto",
    ) -> None:
        check_handler(handler, "handler")
        if not isinstance(url, str | os.PathLike):
            raise wrong("url", "redis://HOST:PORT/NUMBER, or the path of a file that says it", url)
        if not isinstance(times, LeaseTimes | None):
            raise wrong("times", "LeaseTimes", times)
        if renewer not in MODES:
            raise wrong("renewer", f"one of {', '.join(MODES)}", renewer)
        checked_function("on_event", on_event)
        self.redis, self.group, self.node = RedisAddress.of(url), group, node
        self.rule = rule
        self.times = times or LeaseTimes()
        self.settings = MemberSettings(
            node=node, partitions=partitions, times=self.times, balance=balance
        )
        self._parts = make_parts(
            self.redis,
            group,
            self.settings,
            rule=rule,
            incarnation=uuid.uuid4().hex[:16],
            random=Random() if seed is None else Random(f"{seed}/lease/{node}"),
            max_progress_ms=max_progress_ms,
            renewer=renewer,
        )
        self._handler = handler
        self.events = EventLog(node, on_event)
        self.loop_lag = LoopLag()
        self.drain_wanted = False
        self._shell: MemberShell | None = None

    async def __aenter__(self) -> Self:
        self._completion = Completion(self.node)
        shell = MemberShell(self._parts, self._handler, self.events, self._completion)
        self._shell = shell
        self.loop_lag.watch(asyncio.get_running_loop())
        shell.start()
        if self.drain_wanted:
            shell.feed(ev.Drain())
        try:
            await self._completion.entered()
        except BaseException:
            await self._close(shell)
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            await self.drain()
        finally:
            if self._shell is not None:
                await self._close(self._shell)
        if kind is None:
            self._completion.raise_unless_told()

    async def wait(self) -> None:
        """Wait until the member has left by itself. Raises RunError, which says why it gave up."""
        await self._completion.wait()

    async def drain(self) -> None:
        """Hand everything over, and leave."""
        if self._shell is not None:
            self._shell.feed(ev.Drain())
            await asyncio.wait([self._completion.future])

    def drain_soon(self) -> None:
        """Begin to drain; from any thread, before entry too. `wait` returns when it is done."""
        self.drain_wanted = True
        if self._shell is not None:
            self._shell.feed_soon(ev.Drain())

    @property
    def machine(self) -> MachineState:
        """Returns what the member's machine says of itself; from any thread, as all that follows
        here."""
        return self._parts.machine if self._shell is None else self._shell.machine

    @property
    def state(self) -> str:
        """Returns what the member is doing, in words."""
        return self.machine.state.value

    @property
    def draining(self) -> bool:
        return self.drain_wanted or self.machine.state in {Phase.LEAVING, Phase.FINISHED}

    @property
    def held(self) -> dict[int, int]:
        """Returns the partitions that are held, and their epochs."""
        return {} if isinstance(self.machine, FailedMachine) else self._parts.held()

    @property
    def renewal(self) -> str:
        """Returns what renews the leases: process, thread, or none."""
        return "" if self._shell is None else self._shell.leases.kind

    async def _close(self, shell: MemberShell) -> None:
        self._completion.left()
        self.loop_lag.close()
        await shell.close()
