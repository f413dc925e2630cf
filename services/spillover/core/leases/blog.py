"""The machine of one member under the blog's rule: steps 1-6 as written, the fastest answer wins.

For comparison; the same events and commands as `core.leases.machine`, but no leases that anybody
watches over: no renewals, no epochs (0), no fence. Nothing here decides better than the document
does. What the document leaves open, and what is done:

* Each member keeps a timer per partition, reset by every challenge it hears of, its own included
  ("challenges" = all). Or, once a period, it challenges one random partition that it does not
  serve ("one").
* A member that is already waiting, starting or stopping does not react to a further challenge of
  the same partition, except that its timer is reset; and one that finds itself as the winner,
  because it answered two challenges, does not stop.
* The clearing of step 1 concerns partitions that the member does not serve.
* The mark of step 6 is removed the minimum grab time after the winner has started.
* Hashes are changed without comparing who stands there: a late holder clears away its successor.
* An ask that fails ends whatever it was part of; a stopped handler is told of all the same.
* A drain stops and clears everything, without a word to anybody but the messages.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

from spillover.core.leases import events as ev
from spillover.core.leases.agenda import MemberAgenda
from spillover.core.leases.settings import MemberSettings
from spillover.policy.leases import WAIT_READINGS, holder_wait_ms, is_abandoned, rival_wait_ms

EPOCH = 0


class BlogMember:
    """One member. `challenges`: `all` or `one`, see above; `waits`: which reading of step 2, see
    `policy.leases`."""

    def __init__(
        self,
        settings: MemberSettings,
        random: Random,
        challenges: str = "all",
        waits: str = "halves",
    ) -> None:
        self._agenda = MemberAgenda(settings, random)
        self.settings = settings
        self.running: set[int] = set()
        """Partitions whose handler runs here, told to stop or not."""
        self._stopping: set[int] = set()
        self._challenges = challenges
        self._less, self._more = WAIT_READINGS[waits]
        self._busy: set[int] = set()
        """Partitions of which a challenge, a start or a stop is under way here."""
        self._awaited: dict[int, int] = {}
        """Won, and waiting for the other member to stop; the value tells one wait from another."""
        self._waits = 0
        self._challenged_s: list[float] = []
        """When a challenge of the partition was last heard of."""
        self._due_s: list[float] = []
        self._now_s = -math.inf
        self._leaving = False
        self._finished = False
        self._handlers: dict[type, Callable[[Any, float], None]] = {
            ev.Started: self._started,
            ev.Answered: self._answered,
            ev.AskFailed: self._ask_failed,
            ev.Challenged: lambda event, now_s: self._challenged(event.partition, now_s),
            ev.Allocated: lambda event, now_s: self._allocated(event.partition, now_s),
            ev.HandlerEnded: lambda event, now_s: self._handler_ended(event.partition, now_s),
            ev.Drain: self._drain,
        }
        self._answers: dict[type, Callable[[Any, Any, float], None]] = {
            ev.AskMarked: self._marked,
            ev.AskMark: self._raced,
            ev.AskOwner: self._saw_owner,
            ev.AskAllocate: self._took,
            ev.AskClear: self._cleared,
        }

    def handle(self, event: ev.Event, now_s: float) -> list[ev.Command]:
        """Events that are not known here, of renewals and of resubscriptions, say nothing."""
        now_s = self._now_s = max(now_s, self._now_s)
        if self._finished:
            return []
        self._agenda.run_due(now_s)
        if (handle := self._handlers.get(type(event))) is not None:
            handle(event, now_s)
        self._agenda.run_due(now_s)
        if self._leaving and not self.running and not self._busy:
            self._finished = True
            self._agenda.clear()
            self._agenda.command(ev.Finished())
        return self._agenda.take_commands()

    def next_deadline(self) -> float:
        return self._agenda.first_s()

    def check(self) -> None:
        """Raise AssertionError if the state contradicts itself."""
        assert self._stopping <= self.running
        assert self._awaited.keys() <= self._busy
        assert not (self._finished and self.running)

    def _started(self, event: ev.Started, now_s: float) -> None:
        del event
        agenda = self._agenda
        self._challenged_s = [now_s] * agenda.partitions
        self._due_s = [
            now_s + agenda.random.random() * agenda.normal_s for _ in range(agenda.partitions)
        ]
        if self._challenges == "one":
            agenda.at(self._due_s[0], self._challenge_one)
            return
        for partition, due_s in enumerate(self._due_s):
            agenda.at(due_s, self._when_due, partition)

    # --- step 1 --------------------------------------------------------------------------------

    def _when_due(self, partition: int, now_s: float) -> None:
        if now_s >= self._due_s[partition]:
            self._due_s[partition] = now_s + self._agenda.period_s()
            self._consider(partition, now_s)
        self._agenda.at(self._due_s[partition], self._when_due, partition)

    def _challenge_one(self, now_s: float) -> None:
        agenda = self._agenda
        foreign = [p for p in range(agenda.partitions) if p not in self.running]
        if foreign:
            self._consider(foreign[int(agenda.random.random() * len(foreign))], now_s)
        agenda.at(now_s + agenda.period_s(), self._challenge_one)

    def _consider(self, partition: int, now_s: float) -> None:
        if partition not in self.running and partition not in self._busy and not self._leaving:
            self._agenda.ask(ev.AskMarked, now_s, partition)

    def _marked(self, ask: ev.AskMarked, marked: object, now_s: float) -> None:
        partition = ask.partition
        since_ms = (now_s - self._challenged_s[partition]) * 1000.0
        if is_abandoned(since_ms, self._agenda.times.max_lease_ms):
            self._agenda.ask(ev.AskClear, now_s, partition, True, True)  # noqa: FBT003 - both hashes
        elif marked is not True:
            self._publish(partition)

    def _publish(self, partition: int) -> None:
        self._agenda.tell(ev.CHALLENGED, partition)
        self._agenda.command(ev.PublishChallenge([partition]))

    # --- steps 2 and 3 -------------------------------------------------------------------------

    def _challenged(self, partition: int, now_s: float) -> None:
        agenda = self._agenda
        if not 0 <= partition < len(self._due_s) or self._leaving:
            return
        self._challenged_s[partition] = now_s
        self._due_s[partition] = now_s + agenda.period_s()
        if partition in self._busy:
            return
        self._busy.add(partition)
        held, delay_ms = len(self.running), agenda.times.held_delay_ms
        if partition in self.running:
            wait_ms = holder_wait_ms(held, delay_ms, self._less)
        else:
            wait_ms = rival_wait_ms(held, delay_ms, self._more)
        agenda.at(now_s + wait_ms / 1000.0, self._race, partition)

    def _race(self, partition: int, now_s: float) -> None:
        if self._leaving:
            self._busy.discard(partition)
        else:
            self._agenda.ask(ev.AskMark, now_s, partition)

    def _raced(self, ask: ev.AskMark, winner: object, now_s: float) -> None:
        partition = ask.partition
        if winner == self._agenda.node:
            self._agenda.tell(ev.GRABBED, partition)
            self._agenda.ask(ev.AskOwner, now_s, partition)
        elif partition in self.running:
            self._stop(partition, now_s)
        else:
            self._busy.discard(partition)

    def _stop(self, partition: int, now_s: float) -> None:
        if partition not in self._stopping:
            self._stopping.add(partition)
            self._agenda.tell(ev.RELEASING, partition, EPOCH)
            by_s = now_s + self._agenda.max_shutdown_s
            self._agenda.command(ev.StopHandler(partition, EPOCH, by_s))

    def _handler_ended(self, partition: int, now_s: float) -> None:
        if partition in self.running:
            self.running.remove(partition)
            self._stopping.discard(partition)
            self._busy.discard(partition)
            self._agenda.tell(ev.RELEASED, partition, EPOCH)
            self._agenda.ask(ev.AskClear, now_s, partition, True, False)  # noqa: FBT003 - allocation

    def _cleared(self, ask: ev.AskClear, answer: object, now_s: float) -> None:
        """Go on after both marks are cleared, in step 1 with a challenge; after the allocation is,
        in step 3, with a stopped handler."""
        del answer, now_s
        if ask.allocation and ask.grab:
            self._publish(ask.partition)
        elif ask.allocation:
            self._agenda.command(ev.PublishAllocated(ask.partition))

    # --- step 4 --------------------------------------------------------------------------------

    def _saw_owner(self, ask: ev.AskOwner, owner: object, now_s: float) -> None:
        partition = ask.partition
        if owner is None or owner == self._agenda.node:
            self._agenda.ask(ev.AskAllocate, now_s, partition)
        else:
            self._waits += 1
            self._awaited[partition] = self._waits
            limit_s = now_s + self._agenda.max_shutdown_s
            self._agenda.at(limit_s, self._start_anyway, partition, self._waits)

    def _allocated(self, partition: int, now_s: float) -> None:
        """The other member says that it has stopped."""
        if self._awaited.pop(partition, None) is not None:
            self._agenda.ask(ev.AskAllocate, now_s, partition)

    def _start_anyway(self, partition: int, wait: int, now_s: float) -> None:
        """The other member has had the maximum shutdown time."""
        if self._awaited.get(partition) == wait:
            self._allocated(partition, now_s)

    # --- steps 5 and 6 -------------------------------------------------------------------------

    def _took(self, ask: ev.AskAllocate, answer: object, now_s: float) -> None:
        del answer
        partition = ask.partition
        if partition not in self.running:
            self.running.add(partition)
            self._agenda.command(ev.RunHandler(partition, EPOCH, math.inf))
            self._agenda.tell(ev.ACQUIRED, partition, EPOCH)
        self._busy.discard(partition)
        self._agenda.at(now_s + self._agenda.min_grab_s, self._unmark, partition)
        if self._leaving:
            self._stop(partition, now_s)

    def _unmark(self, partition: int, now_s: float) -> None:
        self._agenda.ask(ev.AskClear, now_s, partition, False, True)  # noqa: FBT003 - the grab

    # --- what the document does not speak of ----------------------------------------------------

    def _answered(self, event: ev.Answered, now_s: float) -> None:
        self._answers[type(event.ask)](event.ask, event.answer, now_s)

    def _ask_failed(self, event: ev.AskFailed, now_s: float) -> None:
        ask = event.ask
        if isinstance(ask, ev.AskClear):
            self._cleared(ask, None, now_s)
        elif isinstance(ask, ev.AskMark | ev.AskOwner | ev.AskAllocate):
            self._busy.discard(ask.partition)

    def _drain(self, event: ev.Drain, now_s: float) -> None:
        del event
        self._leaving = True
        self._busy.clear()
        self._awaited.clear()
        for partition in sorted(self.running):
            self._stop(partition, now_s)
