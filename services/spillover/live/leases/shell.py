"""A member of a lease group as a running thing: the machine, its store, renewals, hints and
handlers, joined. No rule is made here: what the machine says is done.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import uuid
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from random import Random
from types import TracebackType
from typing import Any, Self

from spillover.core.leases import events as ev
from spillover.core.leases.agenda import MemberSettings
from spillover.core.leases.machine import Phase
from spillover.live.engine.loop_lag import LoopLag
from spillover.live.handlers.calls import one_line
from spillover.live.leases.completion import Completion, FailedMachine
from spillover.live.leases.event_log import EventLog, Observer, OnEvent
from spillover.live.leases.handlers import Handler, HandlerRunner, check_handler
from spillover.live.leases.hints import Hints
from spillover.live.leases.parts import Machine, make_parts
from spillover.live.leases.renewal.clock import lease_now_s
from spillover.live.leases.renewal.lease import Lease
from spillover.live.leases.renewal.memory import LOOP, THREAD
from spillover.live.leases.renewal.renewer import RenewerEnded, RenewerStarted
from spillover.live.process.logs import Message
from spillover.model.errors import InputError, PeerError, StoreRefused
from spillover.model.lease_times import LeaseTimes

CLOSE_S = 2.0
"""For what is under way with the store at the very end."""
LAGS_KEPT = 100

_log = logging.getLogger(__name__)


class LeaseGroup:
    """One member, from `async with` until that ends: it then hands everything over and leaves.

    `handler(partition, epoch, stop_event)` runs for each partition that is held, on a thread, or on
    the loop if it is async. `on_event` gets what happens as dicts. Members are evened out by the
    `balance` of "count" or "load". `rule="blog"` is for comparison: no renewals, nobody is fenced,
    and all epochs are 0. Raises InputError for unusable settings, at entry also for a group of
    other settings and a Redis that refuses; RunError at the end if it gave up, unless told before.
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
        rule: str = "guarded",
        balance: str = "count",
        max_progress_ms: float | None = None,
        on_event: OnEvent | None = None,
        seed: int | None = None,
        renewer: str = "auto",
    ) -> None:
        check_handler(handler, "handler")
        self.url, self.group, self.node, self.rule = url, group, node, rule
        self.times = times or LeaseTimes()
        self.settings = MemberSettings(
            node=node, partitions=partitions, times=self.times, balance=balance
        )
        self._incarnation = uuid.uuid4().hex[:16]
        self._parts = make_parts(
            url,
            group,
            self.settings,
            rule=rule,
            incarnation=self._incarnation,
            random=Random() if seed is None else Random(f"{seed}/lease/{node}"),
            max_progress_ms=max_progress_ms,
            renewer=renewer,
        )
        self.machine: Machine = self._parts.machine
        self._hints = self._make_hints()
        self._is_deaf = False
        """Whether messages of others are not heard, and that has been told."""
        self._handler = handler
        self._events = EventLog(node, on_event)
        self.observer: Observer | None = None
        self.loop_lag = LoopLag()
        self.down_since_s: float | None = None
        """Of `lease_now_s`: since when the store has been away."""
        self._lags: deque[float] = deque(maxlen=LAGS_KEPT)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._begun = self.drain_wanted = False
        self._calls: set[asyncio.Task[None]] = set()
        self._wake: asyncio.TimerHandle | None = None
        self._wake_s = math.inf
        self._interpreters = self._interpreters_of()

    # --- life ---------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._loop = loop = asyncio.get_running_loop()
        self._outcome = Completion(self.node)
        self._joined: asyncio.Future[None] = loop.create_future()
        self._runner = HandlerRunner(self._handler, self._handler_ended)
        self._leases = self._parts.make_leases(self._renewer_says, self._renewed)
        self._begun = True
        self._leases.beat_on(loop)
        self.loop_lag.watch(loop)
        self._listening = loop.create_task(self._hints.run())
        self._listening.add_done_callback(_tell_end_of_hints)
        self._feed(ev.Started())
        if self.drain_wanted:
            self._feed(ev.Drain())
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
        if kind is None:
            self._outcome.raise_unless_told()

    async def wait(self) -> None:
        """Until the member has left by itself. Raises RunError, which says why it gave up."""
        await self._outcome.wait()

    async def drain(self) -> None:
        """Hand everything over, and leave."""
        self._feed(ev.Drain())
        await asyncio.wait([self._outcome.future])

    def drain_soon(self) -> None:
        """Begin to drain; from any thread, before entry too. `wait` tells when it is done."""
        self.drain_wanted = True
        self._call_soon(self._feed, ev.Drain())

    @property
    def state(self) -> str:
        """Returns what the member is doing, in words; from any thread, like the others here."""
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
        return self._leases.kind if self._begun else ""

    @property
    def renew_lag_s_max(self) -> float:
        """Returns how late the latest of the last renewals was sent; 0 before the first."""
        return max(list(self._lags), default=0.0)

    async def _until_decided(self) -> None:
        """Until it is a member or has to wait for another one of its id; a store that is away is
        waited for, one that refuses is not."""
        decided: list[asyncio.Future[Any]] = [self._joined, self._outcome.future]
        await asyncio.wait(decided, return_when=asyncio.FIRST_COMPLETED)
        if self._joined.done():
            self._joined.result()
        self._outcome.raise_unless_told()

    async def _close(self) -> None:
        self._outcome.left()
        self._listening.cancel()
        if self._wake is not None:
            self._wake.cancel()
        self.loop_lag.close()
        await asyncio.wait([self._listening])
        await self._close_leases()
        if self._calls:
            _, late = await asyncio.wait(self._calls, timeout=CLOSE_S)
            for call in late:
                call.cancel()
        if self._joined.done() and not self._joined.cancelled():
            self._joined.exception()  # seen: it came too late to be told
        await self._parts.close()

    async def _close_leases(self) -> None:
        """It waits for threads, and so has one of its own, if there is room for one."""
        with ThreadPoolExecutor(1) as pool:
            try:
                closing = asyncio.get_running_loop().run_in_executor(pool, self._leases.close)
            except RuntimeError:
                self._leases.close()
            else:
                await closing

    # --- events in ----------------------------------------------------------------------------

    def _make_hints(self) -> Hints:
        return Hints(
            self.url,
            self.group,
            on_challenge=lambda p: self._feed(ev.Challenged(p)),
            on_allocated=lambda p: self._feed(ev.Allocated(p)),
            on_resync=self._resubscribed,
            on_lost=self._hints_lost,
            random=Random(f"{self._incarnation}/hints"),
        )

    def _feed(self, event: Any) -> None:
        if self._outcome.is_there():
            return
        try:
            self._handle(event)
        except Exception as error:  # noqa: BLE001 - it is told in full
            self._fail(error)

    def _handle(self, event: Any) -> None:
        now_s = lease_now_s()
        commands = []
        if self.machine.next_deadline() <= now_s:
            # Late: what was renewed meanwhile may not have been read yet, and must not be fenced.
            seen = [(p, e, self._leases.deadline_s(p, e)) for p, e in self.held.items()]
            commands += self.machine.handle(ev.LeasesSeen(seen), now_s)
        for command in [*commands, *self.machine.handle(event, now_s)]:
            if isinstance(command, ev.Ask):
                self._begin(self._ask(command))
            else:
                self._interpreters[type(command)](command)
        if self.machine.state in {Phase.MEMBER, Phase.WAITING} and not self._joined.done():
            self._joined.set_result(None)
        self._arm()

    def _fail(self, error: Exception) -> None:
        # The machine or an interpreter raised: as in `live.engine.driver`, their state is anybody's
        # guess. Going on without the rest of the commands would keep what nobody works on. So the
        # whole member ends, loudly: nobody acts, nothing is renewed, and others take the partitions
        # once the leases have run out, which needs nothing of what failed.
        self._outcome.failed(error)
        self.machine = FailedMachine(one_line(error))
        self._runner.fence_all()
        self._leases.end()

    def _resubscribed(self) -> None:
        if self._is_deaf:
            self._is_deaf = False
            _log.info("messages on the group's channels are heard again")
        self._feed(ev.Resubscribed())

    def _hints_lost(self, error: PeerError) -> None:
        """Told once, until they are heard again; before it has joined, that tells."""
        if self.machine.state in {Phase.MEMBER, Phase.WAITING} and not self._is_deaf:
            self._is_deaf = True
            _log.warning(Message("no messages on the group's channels", reason=str(error)))

    def _arm(self) -> None:
        due_s = self.machine.next_deadline()
        if due_s >= self._wake_s or self._outcome.is_there():
            return
        if self._wake is not None:
            self._wake.cancel()
        self._wake_s = due_s
        wait_s = max(0.0, due_s - lease_now_s())
        self._wake = asyncio.get_running_loop().call_later(wait_s, self._woke)

    def _woke(self) -> None:
        self._wake, self._wake_s = None, math.inf
        self._feed(ev.TimerFired())

    def _handler_ended(self, lease: Lease, problem: str | None) -> None:
        partition, epoch = lease.partition, lease.epoch
        if problem is not None:
            _log.error(Message("handler failed", partition=partition, epoch=epoch, reason=problem))
        self._feed(ev.HandlerEnded(partition, epoch, problem, lease.was_told))
        if problem is not None and self.observer is not None:
            self.observer.handler_failed()

    def _renewed(self, late_s: float) -> None:
        """In the thread that watches over renewal."""
        self._lags.append(late_s)
        if self.observer is not None:
            self.observer.renewed(late_s)

    def _renewer_says(self, event: Any) -> None:
        """In the thread that watches over renewal."""
        self._call_soon(self._renewal_event, event)

    def _call_soon(self, call: Callable[[Any], None], event: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            if self._loop is not None:
                self._loop.call_soon_threadsafe(call, event)

    def _renewal_event(self, event: Any) -> None:
        if isinstance(event, RenewerStarted):
            _log.info(Message("renewal starts", by=event.kind, reason=event.why or None))
        elif isinstance(event, RenewerEnded):
            _log.warning(Message("renewal ended, and is started again", reason=event.how))
        else:
            self._feed(event)

    # --- commands -----------------------------------------------------------------------------

    def _interpreters_of(self) -> dict[type, Callable[[Any], None]]:
        store = self._parts.store
        return {
            ev.PublishChallenge: lambda c: self._hint(store.publish_challenge(*c.partitions)),
            ev.PublishAllocated: lambda c: self._hint(store.publish_allocated(c.partition)),
            ev.MeasureWork: lambda _: self._call_soon(
                self._feed, ev.WorkMeasured(self._leases.work())
            ),
            ev.BeginRenewals: lambda _: self._leases.begin(),
            ev.EndRenewals: lambda _: self._leases.end(),
            ev.StartRenewing: lambda _: None,  # with the grant that follows, in `_run`
            ev.StopRenewing: lambda c: self._leases.drop(c.partition, c.epoch),
            ev.RunHandler: self._run,
            ev.StopHandler: lambda c: self._leases.stop(c.partition, c.epoch, c.by_s),
            ev.FenceHandler: self._fence,
            ev.LeasesExtended: lambda _: None,  # handlers read it where the renewer has written it
            ev.Tell: self._tell,
            ev.Finished: lambda c: self._outcome.left(c.problem),
        }

    def _begin(self, call: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(call)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _ask(self, ask: ev.Ask) -> None:
        try:
            answer = await self._parts.asks[type(ask)](ask)
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
        except Exception as error:  # noqa: BLE001 - a bug, or a library's: told, asked again
            _log.exception(Message("ask failed", ask=type(ask).__name__))
            self._feed(ev.AskFailed(ask, f"{type(error).__name__}: {error}"))
        else:
            self._feed(ev.Answered(ask, answer))

    def _hint(self, publishing: Coroutine[Any, Any, None]) -> None:
        async def publish() -> None:
            try:
                await publishing
            except PeerError as error:
                _log.debug(Message("hint was not sent", reason=str(error)))

        self._begin(publish())

    def _run(self, command: ev.RunHandler) -> None:
        runtime = LOOP if self._runner.is_async else THREAD
        lease = self._leases.grant(command.partition, command.epoch, command.fence_s, runtime)
        self._runner.start(lease)

    def _fence(self, command: ev.FenceHandler) -> None:
        self._leases.fence(command.partition, command.epoch)
        self._runner.cancel(command.partition, command.epoch)

    def _tell(self, command: ev.Tell) -> None:
        more: dict[str, Any] = {"partition": command.partition, "epoch": command.epoch}
        if command.event == ev.REDIS_DOWN:
            self.down_since_s = lease_now_s()
            more["problem"] = self.machine.problem
        elif command.event == ev.REDIS_UP:
            self.down_since_s = None
        if self.observer is not None:
            self.observer.told(command.event)
        self.tell(command.event, **more)

    def tell(self, event: str, **more: Any) -> None:
        """A line of the event log: see `EventLog`."""
        self._events.tell(event, **more)


def _tell_end_of_hints(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("no hint is heard any more; looked up each period", exc_info=error)
