"""A member of a lease group as a running thing: the machine, its store, renewals, hints and
handlers, joined. No rule is made here: what the machine says is done.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from types import TracebackType
from typing import Any, Self, TypeAlias

from spillover.core import lease_events as ev
from spillover.core.lease_desk import MemberSettings
from spillover.core.lease_member import LeaseMember, State
from spillover.live.lease_handlers import Handler, HandlerRunner, check_handler
from spillover.live.lease_renewal.clock import lease_now_s
from spillover.live.lease_renewal.memory import LOOP, THREAD
from spillover.live.lease_renewal.renewer import LeaseRenewer, RenewerEnded, RenewerStarted
from spillover.live.lease_renewal.settings import make_plan
from spillover.live.redis_hints import Hints
from spillover.live.redis_store import RedisLeaseStore
from spillover.model.errors import InputError, PeerError, RunError, StoreRefused
from spillover.model.lease_times import LeaseTimes

OnEvent: TypeAlias = Callable[[dict[str, Any]], None]
"""Takes one line of the event log (contract section 6)."""

CLOSE_S = 2.0
"""For what is under way with the store at the very end."""

_log = logging.getLogger(__name__)


class LeaseGroup:
    """One member, from `async with` until that ends: it then hands everything over and leaves.

    `handler(partition, epoch, stop_event)` runs for each partition that is held, on a thread, or on
    the loop if it is async. `on_event` gets what happens as dicts. Raises InputError for unusable
    settings, at entry also for a group of other settings and a Redis that refuses.
    """

    def __init__(
        self,
        url: str,
        group: str,
        *,
        node: str,
        partitions: int,
        handler: Handler,
        times: LeaseTimes | None = None,
        max_progress_ms: float | None = None,
        on_event: OnEvent | None = None,
        seed: int | None = None,
        renewer: str = "auto",
    ) -> None:
        check_handler(handler, "handler")
        self.node = node
        self.times = times or LeaseTimes()
        settings = MemberSettings(node=node, partitions=partitions, times=self.times)
        random = Random() if seed is None else Random(f"{seed}/lease/{node}")
        self.machine = LeaseMember(settings, random)
        self._incarnation = uuid.uuid4().hex[:16]
        self._store = RedisLeaseStore(url, group, partitions, self.times)
        self._plan = make_plan(
            url,
            group,
            partitions,
            self.times,
            node=node,
            incarnation=self._incarnation,
            max_progress_ms=max_progress_ms,
        )
        self._hints = Hints(
            url,
            group,
            on_challenge=lambda p: self._feed(ev.Challenged(p)),
            on_allocated=lambda p: self._feed(ev.Allocated(p)),
            on_resync=lambda: self._feed(ev.Resubscribed()),
            random=Random(f"{self._incarnation}/hints"),
        )
        self._handler = handler
        self._renewer_mode = renewer
        self._on_event = on_event
        self._calls: set[asyncio.Task[None]] = set()
        self._wake: asyncio.TimerHandle | None = None
        self._wake_s = math.inf
        self._asks = self._asks_of_store()
        self._interpreters = self._interpreters_of()

    # --- life ---------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._finished: asyncio.Future[str | None] = self._loop.create_future()
        self._joined: asyncio.Future[None] = self._loop.create_future()
        self._runner = HandlerRunner(self._handler, self._handler_ended)
        self._renewer = LeaseRenewer(self._plan, self._renewer_says, mode=self._renewer_mode)
        self._renewer.beat_on(self._loop)
        self._listening = self._loop.create_task(self._hints.run())
        self._feed(ev.Started())
        try:
            await self._until_decided()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.drain()
        finally:
            await self._close()

    async def wait(self) -> None:
        """Until the member has left by itself. Raises RunError, which says why it gave up."""
        problem = await asyncio.shield(self._finished)
        if problem is not None:
            raise RunError(f"{self.node}: {problem}")

    async def drain(self) -> None:
        """Hand everything over, and leave."""
        self._feed(ev.Drain())
        await asyncio.wait([self._finished])

    @property
    def state(self) -> str:
        """What the member is doing, in words."""
        return self.machine.state.value

    @property
    def held(self) -> dict[int, int]:
        """The partitions that are held, and their epochs."""
        return {partition: one.epoch for partition, one in self.machine.holdings.held.items()}

    async def _until_decided(self) -> None:
        """Until it is a member or has to wait for another one of its id; a store that is away is
        waited for, one that refuses is not."""
        decided: list[asyncio.Future[Any]] = [self._joined, self._finished]
        await asyncio.wait(decided, return_when=asyncio.FIRST_COMPLETED)
        if self._joined.done():
            self._joined.result()

    async def _close(self) -> None:
        if not self._finished.done():
            self._finished.set_result(None)
        self._listening.cancel()
        if self._wake is not None:
            self._wake.cancel()
        await asyncio.wait([self._listening])
        await self._loop.run_in_executor(None, self._renewer.close)
        if self._calls:
            _, late = await asyncio.wait(self._calls, timeout=CLOSE_S)
            for call in late:
                call.cancel()
        await self._store.close()

    # --- events in ----------------------------------------------------------------------------

    def _feed(self, event: Any) -> None:
        if self._finished.done():
            return
        now_s = lease_now_s()
        commands = []
        if self.machine.next_deadline() <= now_s:
            # Late: what was renewed meanwhile may not have been read yet, and must not be fenced.
            seen = [(p, e, self._renewer.deadline_s(p, e)) for p, e in self.held.items()]
            commands += self.machine.handle(ev.LeasesSeen(seen), now_s)
        for command in [*commands, *self.machine.handle(event, now_s)]:
            if isinstance(command, ev.Ask):
                self._begin(self._ask(command))
            else:
                self._interpreters[type(command)](command)
        if self.machine.state in {State.MEMBER, State.WAITING} and not self._joined.done():
            self._joined.set_result(None)
        self._arm()

    def _arm(self) -> None:
        due_s = self.machine.next_deadline()
        if due_s >= self._wake_s or self._finished.done():
            return
        if self._wake is not None:
            self._wake.cancel()
        self._wake_s = due_s
        self._wake = self._loop.call_later(max(0.0, due_s - lease_now_s()), self._woke)

    def _woke(self) -> None:
        self._wake, self._wake_s = None, math.inf
        self._feed(ev.Woke())

    def _handler_ended(self, partition: int, epoch: int, problem: str | None) -> None:
        if problem is not None:
            _log.error("the handler of partition %d, epoch %d: %s", partition, epoch, problem)
        self._feed(ev.HandlerEnded(partition, epoch, problem))

    def _renewer_says(self, event: Any) -> None:
        """In the thread that watches over renewal."""
        try:
            self._loop.call_soon_threadsafe(self._renewal_event, event)
        except RuntimeError:
            return  # the loop has ended

    def _renewal_event(self, event: Any) -> None:
        if isinstance(event, RenewerStarted):
            why = f" ({event.why})" if event.why else ""
            _log.info("leases are renewed by a %s%s", event.kind, why)
        elif isinstance(event, RenewerEnded):
            _log.warning("what renews the leases has ended: %s; another is started", event.how)
        else:
            self._feed(event)

    # --- commands -----------------------------------------------------------------------------

    def _interpreters_of(self) -> dict[type, Callable[[Any], None]]:
        store = self._store
        return {
            ev.PublishChallenge: lambda c: self._hint(store.publish_challenge(c.partition)),
            ev.PublishAllocated: lambda c: self._hint(store.publish_allocated(c.partition)),
            ev.BeginRenewals: lambda _: self._renewer.begin(),
            ev.EndRenewals: lambda _: self._renewer.end(),
            ev.StartRenewing: lambda _: None,  # with the grant that follows, in `_run`
            ev.StopRenewing: lambda c: self._renewer.drop(c.partition, c.epoch),
            ev.RunHandler: self._run,
            ev.StopHandler: lambda c: self._renewer.stop(c.partition, c.epoch, c.by_s),
            ev.FenceHandler: self._fence,
            ev.LeasesExtended: lambda _: None,  # handlers read it where the renewer has written it
            ev.Tell: self._tell,
            ev.Finished: lambda c: self._finished.set_result(c.problem),
        }

    def _asks_of_store(self) -> dict[type, Callable[[Any], Awaitable[Any]]]:
        store, node = self._store, self.node
        return {
            ev.AskJoin: lambda _: store.join(node, self._incarnation),
            ev.AskLeave: lambda _: store.leave(node, self._incarnation),
            ev.AskSurvey: lambda _: store.survey(node),
            ev.AskGrab: lambda a: store.grab(a.partition, node, a.free_for_ms),
            ev.AskActivate: lambda a: store.activate(a.partition, node),
            ev.AskWanted: lambda a: store.is_wanted(a.partition, node, a.epoch),
            ev.AskDrain: lambda a: store.drain(a.partition, node, a.epoch),
            ev.AskRelease: lambda a: store.release(a.partition, node, a.epoch),
        }

    def _begin(self, call: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(call)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _ask(self, ask: ev.Ask) -> None:
        try:
            answer = await self._asks[type(ask)](ask)
        except PeerError as error:
            if isinstance(error, StoreRefused) and not self._joined.done():
                self._joined.set_exception(InputError("--redis", "", str(error)))
                return
            self._feed(ev.AskFailed(ask, str(error)))
        except InputError as error:
            if self._joined.done():
                self._feed(ev.AskFailed(ask, str(error)))
            else:
                self._joined.set_exception(error)
        else:
            self._feed(ev.Answered(ask, answer))

    def _hint(self, publishing: Coroutine[Any, Any, None]) -> None:
        async def publish() -> None:
            try:
                await publishing
            except PeerError as error:
                _log.debug("a hint was not sent: %s", error)

        self._begin(publish())

    def _run(self, command: ev.RunHandler) -> None:
        runtime = LOOP if self._runner.is_async else THREAD
        lease = self._renewer.grant(command.partition, command.epoch, command.fence_s, runtime)
        self._runner.start(lease)

    def _fence(self, command: ev.FenceHandler) -> None:
        self._renewer.fence(command.partition, command.epoch)
        self._runner.cancel(command.partition, command.epoch)

    def _tell(self, command: ev.Tell) -> None:
        if self._on_event is None:
            return
        line: dict[str, Any] = {"at_s": round(time.time(), 3), "node": self.node}
        line["event"] = command.event
        if command.partition is not None:
            line["partition"] = command.partition
        if command.epoch is not None:
            line["epoch"] = command.epoch
        if command.event == ev.REDIS_DOWN:
            line["problem"] = self.machine.problem
        self._on_event(line)
