"""A node of the guarded lease rule: the source document's steps, with the counts as the judge.

Same hashes, channels and waits. What differs: a challenge that cannot succeed is not issued; the
wait of step 2 only spreads contenders; the store refuses what evens out nothing; a holder is asked
to stop and keeps its lease while it does, and a winner starts only when the partition is free; a
holder watches over its own lease; messages are hints, and both hashes are polled each period.
"""

from __future__ import annotations

from dataclasses import dataclass

from spillover.policy.leasing import (
    holder_wait_ms,
    may_give,
    may_grab_free,
    may_receive,
    move_budget,
    spread_wait_ms,
)
from spillover.sim.leases_store import Allocation, GuardedStore, Survey
from spillover.sim.leases_watch import Tenure
from spillover.sim.leases_world import Surroundings


@dataclass(slots=True)
class Held:
    """A partition that this node serves."""

    tenure: Tenure
    stopping: bool = False
    checking: bool = False


class GuardedNode:
    """One node, its index `me`."""

    def __init__(self, me: int, partitions: int, store: GuardedStore, around: Surroundings) -> None:
        self._me = me
        self._partitions = partitions
        self._store = store
        self._around = around
        self._held: dict[int, Held] = {}
        self._ending: set[int] = set()
        """Fenced, and the handler has not yet ended."""
        self._racing: set[int] = set()
        self._won: set[int] = set()
        self._seen_free_ms: dict[int, float] = {}
        """Since when a free partition has been seen free, by this node's own clock."""

    def own(self, partition: int) -> None:
        """Serve a partition from the start, as if it had long been so."""
        to_ms = self._around.times.max_lease_ms
        self._store.members[self._me] = to_ms
        self._store.allocations[partition] = Allocation(self._me, 1, -to_ms, to_ms)
        self._run(partition, 1, 0.0)

    def start(self) -> None:
        """Register; poll soon; renew and poll once a period from then on."""
        around = self._around
        first_ms = around.phases.random() * around.times.min_grab_ms
        self._renew()
        around.timer(self._me, first_ms, self._poll)

    # Renewal

    def _renew(self) -> None:
        around = self._around
        sent_ms = around.now_ms
        held = [(partition, one.tenure.epoch) for partition, one in self._held.items()]

        def on_renewed(answer: list[tuple[int, bool, bool]]) -> None:
            for (partition, kept, wanted), (_, epoch) in zip(answer, held, strict=True):
                one = self._held.get(partition)
                if one is None or one.tenure.epoch != epoch:
                    continue
                if not kept:
                    self._stop_at_once(partition)
                elif wanted:
                    self._hand_over(partition)
                if kept and not one.stopping:
                    one.tenure.fenced_ms = max(one.tenure.fenced_ms, self._lease_to_ms(sent_ms))

        around.call(self._me, self._script, "renew", (self._me, held), then=on_renewed)
        # Never later than the period: the relation of the times counts on it.
        period_ms = around.times.renewal_period_ms * (1.0 - 0.1 * around.phases.random())
        around.timer(self._me, period_ms, self._renew)

    def _lease_to_ms(self, sent_ms: float) -> float:
        """Until when a lease asked for at `sent_ms` may be relied on, whatever the way took."""
        return sent_ms + self._around.times.max_lease_ms - self._around.times.fence_margin_ms

    def _watch_lease(self, partition: int, one: Held) -> None:
        """Stop at once when the own lease is over."""
        if self._held.get(partition) is not one:
            return
        left_ms = one.tenure.fenced_ms - self._around.now_ms
        if left_ms <= 0:
            self._stop_at_once(partition)
        else:
            self._around.timer(self._me, left_ms, self._watch_lease, partition, one)

    # Steps 1 to 3: challenge, wait, grab

    def _poll(self) -> None:
        around = self._around
        around.call(self._me, self._script, "survey", (self._me,), then=self._on_survey)
        period_ms = around.period_ms(around.times.normal_lease_ms)
        around.timer(self._me, period_ms, self._poll)

    def _on_survey(self, survey: Survey) -> None:
        for partition in survey.mine:
            self._won.add(partition)
            self._activate(partition)
        self._consider_free(survey)
        self._consider_held(survey)

    def _consider_free(self, survey: Survey) -> None:
        now_ms = self._around.now_ms
        seen = self._seen_free_ms
        self._seen_free_ms = {p: seen.get(p, now_ms) for p in survey.free}
        standing = survey.standing
        own, nodes = standing.held.get(self._me, 0), max(1, len(standing.held))
        patience_ms = self._around.times.normal_lease_ms
        for partition, since_ms in self._seen_free_ms.items():
            if may_grab_free(
                own, standing.above, self._partitions, nodes, now_ms - since_ms, patience_ms
            ):
                self._challenge(partition)

    def _consider_held(self, survey: Survey) -> None:
        """Challenge only what the store would grant, from the largest holders first."""
        held, above = survey.standing.held, survey.standing.above
        nodes = max(1, len(held))
        own = held.get(self._me, 0)
        budget = move_budget(self._partitions, nodes)
        budget -= survey.standing.lately.get(self._me, 0)
        if budget <= 0 or not may_receive(own, above, self._partitions, nodes):
            return
        around = self._around
        givers = [
            (-held.get(owner, 0), around.phases.random(), partition)
            for partition, owner, resident_ms in survey.held
            if resident_ms >= around.times.min_residency_ms
            and may_give(held.get(owner, 0), above, self._partitions, nodes)
        ]
        for _, _, partition in sorted(givers)[:budget]:
            self._challenge(partition)

    def _challenge(self, partition: int) -> None:
        self._around.publish_challenge(partition)
        self.on_challenged(partition)

    def on_challenged(self, partition: int) -> None:
        """Step 2. The holder does not race: after its wait it looks whether it has lost."""
        around = self._around
        delay_ms = around.times.held_delay_ms
        one = self._held.get(partition)
        if one is not None:
            if not one.stopping and not one.checking:
                one.checking = True
                wait_ms = holder_wait_ms(len(self._held), delay_ms)
                around.timer(self._me, wait_ms, self._check, partition, one)
        elif not any(partition in taken for taken in (self._racing, self._won, self._ending)):
            self._racing.add(partition)
            longest_ms = around.times.longest_wait_ms
            wait_ms = spread_wait_ms(len(self._held), delay_ms, longest_ms)
            around.timer(self._me, wait_ms, self._grab, partition)

    def _grab(self, partition: int) -> None:
        around = self._around

        def on_answer(granted: bool) -> None:  # noqa: FBT001 - an answer of the store
            self._racing.discard(partition)
            if granted:
                self._won.add(partition)
                self._activate(partition)
                limit_ms = around.times.max_shutdown_ms
                around.timer(self._me, limit_ms, self.on_allocated, partition)

        free_for_ms = around.now_ms - self._seen_free_ms.get(partition, around.now_ms)
        arguments = (partition, self._me, free_for_ms)
        around.call(self._me, self._script, "grab", arguments, then=on_answer)

    # Steps 3b and 4: hand over

    def _check(self, partition: int, one: Held) -> None:
        def on_wanted(wanted: bool) -> None:  # noqa: FBT001 - an answer of the store
            one.checking = False
            if wanted and self._held.get(partition) is one:
                self._hand_over(partition)

        arguments = (partition, self._me, one.tenure.epoch)
        self._around.call(self._me, self._script, "is_wanted", arguments, then=on_wanted)

    def _hand_over(self, partition: int) -> None:
        """Keep the lease until the handler has stopped, but no longer than the limit."""
        one = self._held[partition]
        if one.stopping:
            return
        one.stopping = True
        around = self._around
        limit_ms = around.now_ms + around.times.max_shutdown_ms
        one.tenure.fenced_ms = min(one.tenure.fenced_ms, limit_ms)
        arguments = (partition, self._me, one.tenure.epoch)
        around.call(self._me, self._script, "drain", arguments)
        around.timer(self._me, around.handler_stop_ms(), self._stopped, partition, one)

    def _stopped(self, partition: int, one: Held) -> None:
        """The handler has ended by itself: say so, unless it had been fenced before."""
        around = self._around
        one.tenure.to_ms = around.now_ms
        self._ending.discard(partition)
        if self._held.get(partition) is not one:
            return
        del self._held[partition]

        def publish(released: bool) -> None:  # noqa: FBT001 - an answer of the store
            if released:
                around.publish_allocated(partition)

        arguments = (partition, self._me, one.tenure.epoch)
        around.call(self._me, self._script, "release", arguments, then=publish)

    def _stop_at_once(self, partition: int) -> None:
        """The lease is lost: the handler may act no more, and ends when it can."""
        one = self._held.pop(partition)
        around = self._around
        self._ending.add(partition)
        one.tenure.fenced_ms = min(one.tenure.fenced_ms, around.now_ms)
        if not one.stopping:
            one.stopping = True
            around.timer(self._me, around.handler_stop_ms(), self._stopped, partition, one)

    # Steps 5 and 6: activate; the mark of the grab runs out by itself

    def on_allocated(self, partition: int) -> None:
        if partition in self._won:
            self._activate(partition)

    def _activate(self, partition: int) -> None:
        around = self._around
        sent_ms = around.now_ms

        def on_answer(answer: tuple[int | None, float]) -> None:
            epoch, free_in_ms = answer
            if epoch is not None:
                self._won.discard(partition)
                # An answer that was longer on its way than the lease lasts is no lease.
                if self._lease_to_ms(sent_ms) > around.now_ms:
                    self._run(partition, epoch, sent_ms)
            elif free_in_ms <= 0.0:
                self._won.discard(partition)
            elif free_in_ms <= around.times.max_shutdown_ms:
                around.timer(self._me, free_in_ms, self.on_allocated, partition)

        around.call(self._me, self._script, "activate", (partition, self._me), then=on_answer)

    def _run(self, partition: int, epoch: int, sent_ms: float) -> None:
        around = self._around
        tenure = around.watch.started(partition, self._me, epoch, around.now_ms)
        tenure.fenced_ms = self._lease_to_ms(sent_ms)
        one = self._held[partition] = Held(tenure)
        self._seen_free_ms.pop(partition, None)
        self._watch_lease(partition, one)

    def _script(self, name: str, arguments: tuple[object, ...]) -> object:
        """Run a script of the store at the store's clock, which is the world's."""
        return getattr(self._store, name)(self._around.now_ms, *arguments)
