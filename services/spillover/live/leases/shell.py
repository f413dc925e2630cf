"""The shell of a lease member obeys its machine in real time, and joins renewals, handlers, hints
and the store. It makes no rules."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from spillover.core.driver import Driver, Interpreters
from spillover.core.leases import events as ev
from spillover.core.leases.machine import Phase
from spillover.live.engine.alarms import LoopAlarm
from spillover.live.engine.timers import Timers
from spillover.live.handlers.calls import one_line
from spillover.live.leases.asks import Asks
from spillover.live.leases.completion import Completion, FailedMachine
from spillover.live.leases.event_log import EventLog
from spillover.live.leases.handlers import Handler, HandlerRunner
from spillover.live.leases.parts import MachineState, Parts
from spillover.live.leases.renewal.clock import lease_now_s
from spillover.live.leases.renewal.lease import Lease
from spillover.live.leases.renewal.memory import LOOP, THREAD
from spillover.live.leases.renewal.renewer import Told
from spillover.live.leases.renewal.supervisor import RenewerEnded, RenewerStarted
from spillover.live.process.logs import Message
from spillover.model.errors import InputError, PeerError, StoreRefused

_log = logging.getLogger(__name__)


class MemberShell:
    """One member on the running loop, from `start` to `close`. Raises RunError where there is no
    room for the threads of its renewals."""

    def __init__(
        self, parts: Parts, handler: Handler, events: EventLog, completion: Completion
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._parts = parts
        self._events = events
        self._completion = completion
        self.machine: MachineState = parts.machine
        self._runner = HandlerRunner(handler, self._handler_ended)
        self.leases = parts.make_leases(self._renewer_says, events.renewed)
        self._asks = Asks(parts.operations, self._answered, self._ask_failed)
        self._hints = parts.make_hints(
            on_challenge=lambda partition: self.feed(ev.Challenged(partition)),
            on_allocated=lambda partition: self.feed(ev.Allocated(partition)),
            on_resync=self._resubscribed,
            on_lost=self._hints_lost,
        )
        self._is_deaf = False
        """True while messages of others are not heard, and the log says so."""
        self._timers = Timers(self._loop, partial(LoopAlarm, clock=lease_now_s))
        self._driver: Driver[ev.Event, ev.Command] = Driver(
            parts.machine,
            self._timers,
            self._interpreters(),
            self._failed,
            # What was renewed meanwhile may not have been read yet, and must not be fenced.
            on_late=self._leases_seen,
            late_s_min=0.0,
            catch_up_s_max=0.0,
        )

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        self.leases.beat_on(self._loop)
        self._listening = self._loop.create_task(self._hints.run())
        self._listening.add_done_callback(_tell_end_of_hints)
        self._driver.start(ev.TimerFired())
        self.feed(ev.Started())

    async def close(self) -> None:
        """Whatever still runs may act no more."""
        self._driver.close()
        self._timers.close()
        self._listening.cancel()
        await asyncio.wait([self._listening])
        await self._close_leases()
        await self._asks.close()
        await self._parts.close()

    async def _close_leases(self) -> None:
        """It waits for threads, and so has one of its own, if there is room for one."""
        with ThreadPoolExecutor(1) as pool:
            try:
                closing = self._loop.run_in_executor(pool, self.leases.close)
            except RuntimeError:
                self.leases.close()
            else:
                await closing

    # --- events in ----------------------------------------------------------------------------

    def feed(self, event: ev.Event) -> None:
        with contextlib.suppress(Exception):  # `_failed` has told it in full
            self._driver.feed(event)

    def feed_soon(self, event: ev.Event) -> None:
        """Feed an event soon, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self.feed, event)

    def _failed(self, error: BaseException) -> None:
        # Going on without the rest of the commands would keep what nobody works on. So the whole
        # member ends, loudly: nobody acts, nothing is renewed, and others take the partitions once
        # the leases have run out, which needs nothing of what failed.
        self._completion.failed(error)
        self.machine = FailedMachine(one_line(error))
        self._runner.fence_all()
        self.leases.end()

    def _leases_seen(self, _: float) -> ev.LeasesSeen:
        held = self._parts.held().items()
        return ev.LeasesSeen([(p, e, self.leases.deadline_s(p, e)) for p, e in held])

    def _answered(self, ask: ev.Ask, answer: Any) -> None:
        self.feed(ev.Answered(ask, answer))
        if self.machine.state in {Phase.MEMBER, Phase.WAITING}:
            self._completion.let_in()

    def _ask_failed(self, ask: ev.Ask, error: Exception) -> None:
        """A store that is away is waited for at entry, one that refuses is not."""
        if isinstance(error, StoreRefused):
            refusal: InputError | None = InputError("--redis", "", str(error))
        else:
            refusal = error if isinstance(error, InputError) else None
        if refusal is None or not self._completion.refuse(refusal):
            is_ours = isinstance(error, PeerError | InputError)
            said = str(error) if is_ours else f"{type(error).__name__}: {error}"
            self.feed(ev.AskFailed(ask, said))

    def _resubscribed(self) -> None:
        if self._is_deaf:
            self._is_deaf = False
            _log.info("messages on the group's channels are heard again")
        self.feed(ev.Resubscribed())

    def _hints_lost(self, error: PeerError) -> None:
        """Log once that messages do not come, until they are heard again. Before the member has
        joined, that itself tells."""
        if self.machine.state in {Phase.MEMBER, Phase.WAITING} and not self._is_deaf:
            self._is_deaf = True
            _log.warning(Message("no messages on the group's channels", reason=str(error)))

    def _handler_ended(self, lease: Lease, problem: str | None) -> None:
        partition, epoch = lease.partition, lease.epoch
        self.feed(ev.HandlerEnded(partition, epoch, problem, lease.was_told))
        if problem is not None:
            self._events.handler_failed()

    def _renewer_says(self, event: Told) -> None:
        """Take what the thread says that watches over renewal; in that thread."""
        if isinstance(event, RenewerStarted):
            _log.info(Message("renewal starts", by=event.kind, reason=event.why or None))
        elif isinstance(event, RenewerEnded):
            _log.warning(Message("renewal ended, and is started again", reason=event.how))
        else:
            self.feed_soon(event)

    # --- commands -----------------------------------------------------------------------------

    def _interpreters(self) -> Interpreters[ev.Command]:
        leases, store, publish = self.leases, self._parts.store, self._asks.publish
        return {
            **dict.fromkeys(self._parts.operations, self._asks.ask),
            ev.PublishChallenge: lambda c: publish(store.publish_challenge(*c.partitions)),
            ev.PublishAllocated: lambda c: publish(store.publish_allocated(c.partition)),
            ev.MeasureWork: lambda _: self.feed(ev.WorkMeasured(leases.work())),
            ev.BeginRenewals: lambda _: leases.begin(),
            ev.EndRenewals: lambda _: leases.end(),
            ev.StartRenewing: lambda _: None,  # with the grant that follows, in `_run`
            ev.StopRenewing: lambda c: leases.drop(c.partition, c.epoch),
            ev.RunHandler: self._run,
            ev.StopHandler: lambda c: leases.stop(c.partition, c.epoch, c.by_s),
            ev.FenceHandler: self._fence,
            ev.LeasesExtended: lambda _: None,  # handlers read it where the renewer has written it
            ev.Tell: lambda c: self._events.happened(c, self.machine.problem),
            ev.Finished: self._finish,
        }

    def _run(self, command: ev.RunHandler) -> None:
        runtime = LOOP if self._runner.is_async else THREAD
        lease = self.leases.grant(command.partition, command.epoch, command.fence_s, runtime)
        self._runner.start(lease)

    def _fence(self, command: ev.FenceHandler) -> None:
        self.leases.fence(command.partition, command.epoch)
        self._runner.cancel(command.partition, command.epoch)

    def _finish(self, command: ev.Finished) -> None:
        self._driver.close()
        self._completion.left(command.problem)


def _tell_end_of_hints(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("no hint is heard any more; looked up each period", exc_info=error)
