"""The shell of a lease member in virtual time: feeds its machine events, carries its commands out.

The machine is the one that runs live: `core.leases.machine`, or for the blog's rule
`core.leases.blog`. Here are its handlers (they run, and stop within a while), its renewals,
and its clock, which may run fast or slow. No rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from spillover.core.leases import events as ev
from spillover.core.leases.agenda import MemberSettings
from spillover.core.leases.blog import BlogMember
from spillover.core.leases.machine import LeaseMember
from spillover.core.leases.records import Renewed
from spillover.sim.engine.world import stream
from spillover.sim.leases.asks import BlogAsks, GuardedAsks, Store
from spillover.sim.leases.blog import BlogStore
from spillover.sim.leases.store_twin import LeaseTwin
from spillover.sim.leases.watch import Tenure
from spillover.sim.leases.world import Surroundings

Journal = Callable[[int, int, Any, float, list[Any]], None]
"""Looks on: (node, its life, event, instant by its clock, commands)."""

RENEWAL_JITTER = 0.1
"""A renewal comes up to this share of the period early: never late, the times count on it."""


RETRY_SHARE = 0.1
"""A renewal that found no store is repeated after this share of the period."""


class Machine(Protocol):
    """What is driven: see `core.machine`."""

    def handle(self, event: Any, now_s: float) -> list[Any]: ...
    def next_deadline(self) -> float: ...
    def check(self) -> None: ...


class SimMember:
    """One life of a node, its index `me`."""

    def __init__(
        self,
        me: int,
        machine: Machine,
        store: Store,
        around: Surroundings,
        look_on: Callable[[Any, float, list[Any]], None] | None,
    ) -> None:
        self._me = me
        self.machine = machine
        self._store = store
        self._around = around
        self._look_on = look_on
        self._rate = around.troubles.clock_rate.get(me, 1.0)
        self._wake_s = math.inf
        self._begun = False
        self._finished = False
        self._renewing: dict[int, int] | None = None
        self._renewals = 0
        """Tells the next planned renewal from those planned before."""
        self._tenures: dict[tuple[int, int], Tenure] = {}
        self._told_to_stop: set[tuple[int, int]] = set()
        self._interpreters: dict[type, Callable[[Any], None]] = {
            ev.PublishChallenge: self._challenge,
            ev.PublishAllocated: lambda c: around.publish_allocated(c.partition),
            ev.MeasureWork: lambda _: self._measure_work(),
            ev.BeginRenewals: lambda _: self._begin_renewals(),
            ev.EndRenewals: lambda _: self._end_renewals(),
            ev.StartRenewing: self._start_renewing,
            ev.StopRenewing: self._stop_renewing,
            ev.RunHandler: self._run,
            ev.StopHandler: self._stop,
            ev.FenceHandler: self._fence,
            ev.LeasesExtended: self._extended,
            ev.Tell: lambda c: around.told.append((around.now_ms, me, c.event, c.partition)),
            ev.Finished: self._finish,
        }

    def start(self) -> None:
        if not self._begun:
            self._begun = True
            self.feed(ev.Started())

    def hold(self, partitions: list[int]) -> None:
        """Be a member from the start, which serves these."""
        self._begun = True
        now_s = self._now_s
        joined, epoch = self._store.hold(partitions)
        commands = self.machine.handle(ev.Started(), now_s)
        if isinstance(self.machine, LeaseMember):
            commands = self.machine.handle(ev.Answered(commands[0], joined), now_s)
            for partition in partitions:
                self.machine.holdings.start(partition, epoch, now_s, now_s)
        elif isinstance(self.machine, BlogMember):
            for partition in partitions:
                self.machine.running.add(partition)
                commands.append(ev.RunHandler(partition, epoch, math.inf))
        self._carry_out(commands)
        self.feed(ev.TimerFired())

    def silence(self) -> None:
        """The process is gone; another life of the node may follow."""
        self._finished = True

    def drain(self) -> None:
        self.feed(ev.Drain())

    def on_challenged(self, partition: int) -> None:
        self.feed(ev.Challenged(partition))

    def on_allocated(self, partition: int) -> None:
        self.feed(ev.Allocated(partition))

    def feed(self, event: Any) -> None:
        if not self._finished:
            self._handle(event, self._now_s)

    def _handle(self, event: Any, now_s: float) -> None:
        commands = self.machine.handle(event, now_s)
        if self._look_on is not None:
            self.machine.check()
            self._look_on(event, now_s, commands)
        self._carry_out(commands)
        self._arm()

    @property
    def _now_s(self) -> float:
        """By the node's own clock."""
        return self._around.world.now_s * self._rate

    def _arm(self) -> None:
        due_s = self.machine.next_deadline()
        if due_s < self._wake_s:
            self._wake_s = due_s
            delay_ms = max(0.0, (due_s - self._now_s) / self._rate * 1000.0)
            self._around.timer(self._me, delay_ms, self._wake, due_s)

    def _wake(self, due_s: float) -> None:
        """Rounded, the clock may stand a hair before what was due."""
        if due_s != self._wake_s or self._finished:
            return  # an earlier one has come between
        self._wake_s = math.inf
        self._handle(ev.TimerFired(), max(due_s, self._now_s))

    def _carry_out(self, commands: list[Any]) -> None:
        for command in commands:
            if isinstance(command, ev.Ask):
                self._ask(command)
            else:
                self._interpreters[type(command)](command)

    def _ask(self, ask: ev.Ask) -> None:
        self._around.call(
            self._me,
            self._store.script(ask),
            then=lambda answer: self.feed(ev.Answered(ask, answer)),
            otherwise=lambda: self.feed(ev.AskFailed(ask, "no answer")),
        )

    def _challenge(self, command: ev.PublishChallenge) -> None:
        for partition in command.partitions:
            self._around.publish_challenge(partition)

    def _measure_work(self) -> None:
        """What handlers have done in their time, as they would report it."""
        around = self._around
        work = [
            (*pair, around.work.done(tenure.partition, tenure.from_ms, around.now_ms))
            for pair, tenure in self._tenures.items()
        ]
        self.feed(ev.WorkMeasured(work))

    # --- renewals ------------------------------------------------------------------------------

    def _begin_renewals(self) -> None:
        self._renewing = {}
        self._renewals += 1
        self._renew(self._renewals)

    def _end_renewals(self) -> None:
        self._renewing = None
        self._around.timer(self._me, 0.0, self.feed, ev.RenewalsEnded())

    def _start_renewing(self, command: ev.StartRenewing) -> None:
        if self._renewing is not None:
            self._renewing[command.partition] = command.epoch

    def _stop_renewing(self, command: ev.StopRenewing) -> None:
        if self._renewing is not None and self._renewing.get(command.partition) == command.epoch:
            del self._renewing[command.partition]

    def _renew(self, planned: int) -> None:
        if self._renewing is None or planned != self._renewals or self._finished:
            return
        around = self._around
        pairs = list(self._renewing.items())
        renewing = self._renewing
        sent_s = self._now_s

        def on_answer(answer: Renewed) -> None:
            self.feed(ev.RenewalAnswered(sent_s, pairs, answer))

        def on_failure() -> None:
            self.feed(ev.RenewalFailed("no answer", sent_s))
            if renewing is self._renewing:
                self._next_renewal(RETRY_SHARE)

        around.call(self._me, self._store.renewal(pairs), then=on_answer, otherwise=on_failure)
        self._next_renewal(1.0 - RENEWAL_JITTER * around.phases.random())

    def _next_renewal(self, periods: float) -> None:
        """So many periods from now, and not when it was planned before."""
        self._renewals += 1
        period_ms = self._around.times.renewal_period_ms * periods / self._rate
        self._around.timer(self._me, period_ms, self._renew, self._renewals)

    # --- handlers ------------------------------------------------------------------------------

    def _world_ms(self, local_s: float) -> float:
        return local_s / self._rate * 1000.0

    def _run(self, command: ev.RunHandler) -> None:
        around = self._around
        tenure = around.watch.started(command.partition, self._me, command.epoch, around.now_ms)
        tenure.fenced_ms = self._world_ms(command.fence_s)
        self._tenures[command.partition, command.epoch] = tenure

    def _extended(self, command: ev.LeasesExtended) -> None:
        for partition, epoch, fence_s in command.leases:
            self._tenures[partition, epoch].fenced_ms = self._world_ms(fence_s)

    def _stop(self, command: ev.StopHandler) -> None:
        tenure = self._tenures[command.partition, command.epoch]
        if command.epoch:
            tenure.fenced_ms = min(tenure.fenced_ms, self._world_ms(command.by_s))
        self._end_soon(command.partition, command.epoch)

    def _fence(self, command: ev.FenceHandler) -> None:
        tenure = self._tenures.get((command.partition, command.epoch))
        if tenure is None:
            return  # it has just ended, too late
        tenure.fenced_ms = min(tenure.fenced_ms, self._around.now_ms)
        self._end_soon(command.partition, command.epoch)

    def _end_soon(self, partition: int, epoch: int) -> None:
        if (partition, epoch) not in self._told_to_stop:
            self._told_to_stop.add((partition, epoch))
            stop_ms = self._around.handler_stop_ms()
            self._around.timer(self._me, stop_ms, self._ended, partition, epoch)

    def _ended(self, partition: int, epoch: int) -> None:
        self._told_to_stop.discard((partition, epoch))
        self._tenures.pop((partition, epoch)).to_ms = self._around.now_ms
        self.feed(ev.HandlerEnded(partition, epoch))

    def _finish(self, command: ev.Finished) -> None:
        """The process ends, and with it what still runs in it."""
        self._finished = True
        self._around.finished[self._me] = command.problem
        for tenure in self._tenures.values():
            tenure.to_ms = min(tenure.to_ms, self._around.now_ms)


class Group:
    """Makes the members of one group around one store. With a journal, each machine is also asked
    after every event whether it contradicts itself."""

    def __init__(
        self,
        partitions: int,
        around: Surroundings,
        seed: int,
        journal: Journal | None,
        balance: str,
    ) -> None:
        self._partitions = partitions
        self._balance = balance
        self._around = around
        self._seed = seed
        self._journal = journal
        self._lives = 0

    def guarded(self, node: int, store: LeaseTwin) -> SimMember:
        machine = LeaseMember(self._settings(node), self._random(node))
        asks = GuardedAsks(store, self._around, f"n{node}", self._lives)
        return self._member(node, machine, asks)

    def blog(self, node: int, store: BlogStore, challenges: str, waits: str) -> SimMember:
        machine = BlogMember(self._settings(node), self._random(node), challenges, waits)
        return self._member(node, machine, BlogAsks(store, f"n{node}"))

    def _settings(self, node: int) -> MemberSettings:
        times = self._around.times
        return MemberSettings(
            node=f"n{node}", partitions=self._partitions, times=times, balance=self._balance
        )

    def _random(self, node: int) -> Random:
        """Of the next life."""
        self._lives += 1
        return stream(self._seed, f"lease-member/{node}/{self._lives}")

    def _member(self, node: int, machine: Machine, store: Store) -> SimMember:
        journal, life = self._journal, self._lives

        def look_on(event: Any, now_s: float, commands: list[Any]) -> None:
            if journal is not None:
                journal(node, life, event, now_s, commands)

        return SimMember(node, machine, store, self._around, look_on if journal else None)
