"""The partitions that a member serves: leases kept, handed over, given up, lost and fenced.

A holding lives from the activation until its handler has ended, or until it is fenced: then the
handler may act no more, and the partition counts as *ending* here until it really has ended. A
holder that hands over keeps its lease while its handler stops, but no longer than the limit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from spillover.core.leases import events as ev
from spillover.core.leases.agenda import MemberAgenda
from spillover.core.leases.records import Renewed
from spillover.policy.backoff import backoff_s
from spillover.policy.leases import holder_wait_ms

LATE_PERIODS = 1.5
"""Renewals further apart than so many periods were late."""


@dataclass(slots=True)
class Holding:
    """A partition that this member serves."""

    partition: int
    epoch: int
    started_s: float
    lease_s: float
    """The instant until which the lease may be relied on, by the last renewal that came back."""
    stop_by_s: float = math.inf
    """The instant until which its handler may act while it is being stopped; infinity while it is
    not."""
    checked_s: float = -math.inf
    """The instant until which no further look at whether it has been lost is planned."""

    @property
    def fence_s(self) -> float:
        return min(self.lease_s, self.stop_by_s)

    @property
    def stopping(self) -> bool:
        return self.stop_by_s < math.inf


@dataclass(slots=True)
class Failures:
    """A handler that ended by itself or hung: how often in a row, and until when to stay away."""

    count: int
    until_s: float


class Holdings:
    """The partitions that this member serves, or served until a moment ago, by number."""

    def __init__(self, agenda: MemberAgenda) -> None:
        self._agenda = agenda
        self.held: dict[int, Holding] = {}
        self.ending: dict[int, int] = {}
        """Fenced, and the handler has not yet ended: the epoch that it had."""
        self.releasing: dict[tuple[int, int], float] = {}
        """Stopped, and the store does not yet know: until when that matters to others."""
        self.failures: dict[int, Failures] = {}
        self.epochs: dict[int, int] = {}
        """The last epoch that this member had of a partition."""
        self.renewed_s = -math.inf
        """When the last renewal that came back was sent."""

    def serves(self, partition: int) -> bool:
        """Returns whether a handler of the partition runs here, entitled or not."""
        return partition in self.held or partition in self.ending

    def stays_away(self, partition: int, now_s: float) -> bool:
        failures = self.failures.get(partition)
        return failures is not None and now_s < failures.until_s

    @property
    def kept(self) -> int:
        """Returns how many partitions are served and not being handed over."""
        return sum(not one.stopping for one in self.held.values())

    # --- start ---------------------------------------------------------------------------------

    def start(self, partition: int, epoch: int, sent_s: float, now_s: float) -> None:
        """Serve what was activated, unless that news is old."""
        if epoch <= self.epochs.get(partition, -1):
            return
        if self.serves(partition) or self._agenda.lease_to_s(sent_s) <= now_s:
            self.give_back(partition, epoch, sent_s, now_s)
            return
        self.epochs[partition] = epoch
        lease_s = self._agenda.lease_to_s(sent_s)
        one = self.held[partition] = Holding(partition, epoch, now_s, lease_s)
        self._agenda.command(ev.StartRenewing(partition, epoch))
        self._agenda.command(ev.RunHandler(partition, epoch, lease_s))
        self._agenda.tell(ev.ACQUIRED, partition, epoch)
        self._agenda.at(lease_s, self._watch, one)

    def give_back(self, partition: int, epoch: int, sent_s: float, now_s: float) -> None:
        """Release what was activated and will not be served; news of it that come again are old.
        A higher epoch than is held means that the store takes the held one for over."""
        if epoch > self.epochs.get(partition, -1):
            if partition in self.held:
                self.fence(self.held[partition], ev.LOST)
            self.epochs[partition] = epoch
            self._release(partition, epoch, sent_s + self._agenda.max_lease_s, now_s)

    # --- renewal -------------------------------------------------------------------------------

    def renewed(
        self, pairs: Sequence[tuple[int, int]], answer: Renewed, sent_s: float, now_s: float
    ) -> None:
        """Take the answer to a renewal; it may have been overtaken by a later one."""
        late_s = LATE_PERIODS * self._agenda.times.renewal_period_ms / 1000.0
        if sent_s - self.renewed_s > late_s and self.renewed_s > -math.inf and pairs:
            self._agenda.tell(ev.RENEWED_LATE)
        self.renewed_s = max(self.renewed_s, sent_s)
        lease_s = self._agenda.lease_to_s(sent_s)
        extended = []
        for (partition, epoch), (_, kept, wanted) in zip(pairs, answer.held, strict=True):
            one = self.held.get(partition)
            if one is None or one.epoch != epoch:
                continue
            if not kept:
                self.fence(one, ev.LOST)
                continue
            if lease_s > one.lease_s:
                one.lease_s = lease_s
                extended.append(one)
            if wanted:
                self.hand_over(one, now_s)
        if extended:
            leases = [(one.partition, one.epoch, one.fence_s) for one in extended]
            self._agenda.command(ev.LeasesExtended(leases))

    def seen(self, leases: Sequence[tuple[int, int, float]]) -> None:
        """Renewals whose answers are still to come have kept these."""
        for partition, epoch, lease_s in leases:
            one = self.held.get(partition)
            if one is not None and one.epoch == epoch:
                one.lease_s = max(one.lease_s, lease_s)

    def _watch(self, one: Holding, now_s: float) -> None:
        """Fence when the own lease is over."""
        if self.held.get(one.partition) is not one:
            return
        if one.fence_s <= now_s:
            self.fence(one, ev.FENCED)
        else:
            self._agenda.at(one.fence_s, self._watch, one)

    def fence(self, one: Holding, event: str) -> None:
        """The handler may act no more, and ends when it can."""
        del self.held[one.partition]
        self.ending[one.partition] = one.epoch
        self._agenda.command(ev.FenceHandler(one.partition, one.epoch))
        self._agenda.command(ev.StopRenewing(one.partition, one.epoch))
        self._agenda.tell(event, one.partition, one.epoch)

    def fence_all(self, event: str) -> None:
        for one in list(self.held.values()):
            self.fence(one, event)

    # --- challenged, and handed over -----------------------------------------------------------

    def challenged(self, one: Holding, now_s: float) -> None:
        """The holder does not race: after its wait (step 2) it looks whether it has lost."""
        if one.stopping or now_s < one.checked_s:
            return
        times = self._agenda.times
        wait_ms = holder_wait_ms(len(self.held), times.held_delay_ms)
        wait_s = min(wait_ms, times.longest_wait_ms) / 1000.0
        one.checked_s = now_s + wait_s + self._agenda.normal_s / 2.0
        self._agenda.at(now_s + wait_s, self._look, one)

    def _look(self, one: Holding, now_s: float) -> None:
        if self.held.get(one.partition) is one and not one.stopping:
            self._agenda.ask(ev.AskWanted, now_s, one.partition, one.epoch)

    def looked(self, ask: ev.AskWanted, wanted: object, now_s: float) -> None:
        one = self.held.get(ask.partition)
        if one is not None and one.epoch == ask.epoch:
            one.checked_s = now_s
            if wanted is True:
                self.hand_over(one, now_s)

    def hung(self, partition: int, epoch: int, now_s: float) -> None:
        """Give up a partition without progress: it is renewed no longer, and goes while the lease
        still lasts."""
        one = self.held.get(partition)
        if one is not None and one.epoch == epoch and not one.stopping:
            self._failed(one, now_s)
            self.hand_over(one, now_s)

    def hand_over(self, one: Holding, now_s: float) -> None:
        """Stop the handler; the lease is kept while it stops, but no longer than the limit."""
        if one.stopping:
            return
        agenda = self._agenda
        one.stop_by_s = now_s + agenda.max_shutdown_s * agenda.entitled_share
        agenda.tell(ev.RELEASING, one.partition, one.epoch)
        agenda.ask(ev.AskDrain, now_s, one.partition, one.epoch)
        agenda.command(ev.StopHandler(one.partition, one.epoch, one.fence_s))
        agenda.at(one.fence_s, self._watch, one)

    # --- the end of a handler ------------------------------------------------------------------

    def ended(self, partition: int, epoch: int, now_s: float, *, told: bool) -> None:
        """The handler has stopped: say so, unless it had been fenced before. It has failed unless
        it was told to, here or by what watches over its lease."""
        if self.ending.get(partition) == epoch:
            del self.ending[partition]
            return
        one = self.held.get(partition)
        if one is None or one.epoch != epoch:
            return
        if not (one.stopping or told):
            self._failed(one, now_s)
        del self.held[partition]
        self._agenda.command(ev.StopRenewing(partition, epoch))
        self._agenda.tell(ev.RELEASED, partition, epoch)
        margin_s = self._agenda.max_lease_s * (1.0 - self._agenda.entitled_share)
        self._release(partition, epoch, one.lease_s + margin_s, now_s)

    def _failed(self, one: Holding, now_s: float) -> None:
        """Stay away for a while, longer each time, until it has worked for a whole lease."""
        agenda = self._agenda
        before = self.failures.get(one.partition)
        worked = now_s - one.started_s >= agenda.max_lease_s
        count = 1 if before is None or worked else before.count + 1
        away_s = backoff_s(count - 1, agenda.min_grab_s, agenda.max_lease_s, agenda.random.random())
        self.failures[one.partition] = Failures(count, now_s + away_s)

    def release_again(self, partition: int, epoch: int, now_s: float) -> None:
        """Release a partition that the store takes for held, though its handler has ended here."""
        is_ours = self.epochs.get(partition) == epoch and not self.serves(partition)
        if is_ours and (partition, epoch) not in self.releasing:
            self._release(partition, epoch, now_s + self._agenda.max_lease_s, now_s)

    def _release(self, partition: int, epoch: int, matters_to_s: float, now_s: float) -> None:
        self.releasing[partition, epoch] = matters_to_s
        self._ask_release(partition, epoch, now_s)

    def _ask_release(self, partition: int, epoch: int, now_s: float) -> None:
        """Ask to release, and again, until it is answered, or the lease is over anyway."""
        matters_to_s = self.releasing.get((partition, epoch))
        if matters_to_s is None:
            return
        if now_s >= matters_to_s:
            del self.releasing[partition, epoch]
            return
        self._agenda.ask(ev.AskRelease, now_s, partition, epoch)
        again_s = now_s + max(self._agenda.max_shutdown_s, self._agenda.min_grab_s)
        self._agenda.at(min(again_s, matters_to_s), self._ask_release, partition, epoch)

    def released(self, ask: ev.AskRelease, released: object) -> None:
        """Tell whoever waits for it, and all others."""
        asked = self.releasing.pop((ask.partition, ask.epoch), None) is not None
        if asked and released is True:
            self._agenda.command(ev.PublishAllocated(ask.partition))
