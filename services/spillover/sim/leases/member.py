"""The shell of a lease member in virtual time: what its machine's commands mean there.

The machine is the one that runs live: `core.leases.machine`, or for the blog's rule
`core.leases.blog`, and so is what drives it, `core.driver`. Here are its handlers (they run, and
stop within a while), its renewals, and its clock, which may run fast or slow. No rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from spillover.core.driver import Driver, Interpreters
from spillover.core.leases import events as ev
from spillover.core.leases.blog import BlogMember
from spillover.core.leases.machine import LeaseMember
from spillover.core.leases.records import Renewed
from spillover.core.leases.settings import MemberSettings
from spillover.core.machine import Machine
from spillover.sim.engine.world import stream
from spillover.sim.leases.asks import AskStore, BlogAsks, GuardedAsks
from spillover.sim.leases.blog import BlogStore
from spillover.sim.leases.store_twin import LeaseTwin
from spillover.sim.leases.watch import Tenure
from spillover.sim.leases.world import Surroundings

Handled = Callable[[ev.Event, float, Sequence[ev.Command]], None]
"""Looks on: (event, instant by the node's clock, commands)."""

Journal = Callable[[int, int, ev.Event, float, Sequence[ev.Command]], None]
"""Looks on at all: (node, its life), and as above."""

RENEWAL_JITTER = 0.1
"""A renewal comes up to this share of the period early: never late, the times count on it."""


RETRY_SHARE = 0.1
"""A renewal that found no store is repeated after this share of the period."""


class _Watched:
    """A machine that is asked after each event whether it contradicts itself, while somebody looks
    on."""

    def __init__(self, machine: Machine[ev.Event, ev.Command], look_on: Handled) -> None:
        self._machine = machine
        self._look_on = look_on
        self.next_deadline = machine.next_deadline
        self.check = machine.check

    def handle(self, event: ev.Event, now_s: float) -> Sequence[ev.Command]:
        commands = self._machine.handle(event, now_s)
        self.check()
        self._look_on(event, now_s, commands)
        return commands


class _Clockwork:
    """A node's own clock, and what wakes the node by it: late, if it is stalled."""

    def __init__(self, me: int, around: Surroundings) -> None:
        self._me = me
        self._around = around
        self.rate = around.troubles.clock_rate.get(me, 1.0)

    def clock(self) -> float:
        return self._around.world.now_s * self.rate

    def at(self, due_s: float, ring: Callable[[float], None]) -> _Clockwork:
        delay_ms = max(0.0, (due_s - self.clock()) / self.rate * 1000.0)
        self._around.timer(self._me, delay_ms, ring, due_s)
        return self

    next_s = math.inf
    """No event rings anything: a node is woken as late as the world has it."""

    def run_due(self, now_s: float) -> None:
        """Nothing is."""

    def cancel(self) -> None:
        """The world takes nothing back; the driver knows which of its timers counts."""


class SimMember:
    """One life of a node, its index `me`."""

    def __init__(
        self,
        me: int,
        machine: Machine[ev.Event, ev.Command],
        store: AskStore,
        around: Surroundings,
        look_on: Handled | None,
    ) -> None:
        self._me = me
        self.machine = machine
        self._store = store
        self._around = around
        self._clockwork = _Clockwork(me, around)
        self._begun = False
        self._finished = False
        self._renewing: dict[int, int] | None = None
        self._renewals = 0
        """Tells the next planned renewal from those planned before."""
        self._tenures: dict[tuple[int, int], Tenure] = {}
        self._told_to_stop: set[tuple[int, int]] = set()
        self._interpreters = self._interpreters_of()
        self._driver: Driver[ev.Event, ev.Command] = Driver(
            machine if look_on is None else _Watched(machine, look_on),
            self._clockwork,
            self._interpreters,
            catch_up_s_max=0.0,
        )
        self._driver.start(ev.TimerFired())

    def _interpreters_of(self) -> Interpreters[ev.Command]:
        around = self._around
        return {
            **dict.fromkeys(ev.ASKS, self._ask),
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
            ev.Tell: lambda c: around.told.append((around.now_ms, self._me, c.event, c.partition)),
            ev.Finished: self._finish,
        }

    def start(self) -> None:
        if not self._begun:
            self._begun = True
            self.feed(ev.Started())

    def hold(self, partitions: list[int]) -> None:
        """Be a member from the start, which serves these."""
        self._begun = True
        now_s = self._clockwork.clock()
        joined, epoch = self._store.hold(partitions)
        commands = self.machine.handle(ev.Started(), now_s)
        if isinstance(self.machine, LeaseMember):
            (ask,) = (command for command in commands if isinstance(command, ev.Ask))
            commands = self.machine.handle(ev.Answered(ask, joined), now_s)
            for partition in partitions:
                self.machine.holdings.start(partition, epoch, now_s, now_s)
        elif isinstance(self.machine, BlogMember):
            for partition in partitions:
                self.machine.running.add(partition)
                commands = [*commands, ev.RunHandler(partition, epoch, math.inf)]
        for command in commands:
            self._interpreters[type(command)](command)
        self.feed(ev.TimerFired())

    def silence(self) -> None:
        """The process is gone; another life of the node may follow."""
        self._finished = True
        self._driver.close()

    def drain(self) -> None:
        self.feed(ev.Drain())

    def on_challenged(self, partition: int) -> None:
        self.feed(ev.Challenged(partition))

    def on_allocated(self, partition: int) -> None:
        self.feed(ev.Allocated(partition))

    def feed(self, event: ev.Event) -> None:
        self._driver.feed(event)

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
        sent_s = self._clockwork.clock()

        def on_answer(answer: Renewed) -> None:
            self.feed(ev.RenewalAnswered(sent_s, pairs, answer))

        def on_failure() -> None:
            self.feed(ev.RenewalFailed("no answer", sent_s))
            if renewing is self._renewing:
                self._next_renewal(RETRY_SHARE)

        around.call(self._me, self._store.renewal(pairs), then=on_answer, otherwise=on_failure)
        self._next_renewal(1.0 - RENEWAL_JITTER * around.phases.random())

    def _next_renewal(self, periods: float) -> None:
        """Plan the next renewal so many periods from now, and not when it was planned before."""
        self._renewals += 1
        period_ms = self._around.times.renewal_period_ms * periods / self._clockwork.rate
        self._around.timer(self._me, period_ms, self._renew, self._renewals)

    # --- handlers ------------------------------------------------------------------------------

    def _world_ms(self, local_s: float) -> float:
        return local_s / self._clockwork.rate * 1000.0

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
        self.silence()
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
        """Returns the random numbers of the node's next life."""
        self._lives += 1
        return stream(self._seed, f"lease-member/{node}/{self._lives}")

    def _member(
        self, node: int, machine: Machine[ev.Event, ev.Command], store: AskStore
    ) -> SimMember:
        look_on = None if self._journal is None else partial(self._journal, node, self._lives)
        return SimMember(node, machine, store, self._around, look_on)
