"""The source document's algorithm, steps 1-6 as written: whoever answers a challenge first has it.

Nothing here decides better than the document does; the guarded rule is in `sim.leases_guarded`.
What the document leaves open, and what is done:

* Each node keeps a timer per partition, reset by every challenge it hears of, its own included
  ("challenges" = all). Or, once a period, it challenges one random partition that it does not
  serve ("one").
* A node that is already waiting, starting or stopping does not react to a further challenge of the
  same partition, except that its timer is reset; and one that finds itself as the winner, because
  it answered two challenges, does not stop.
* The clearing of step 1 concerns partitions that the node does not serve.
* The mark of step 6 is removed the minimum grab time after the winner has started.
* Hashes are changed without comparing who stands there: a late holder clears away its successor.
"""

from __future__ import annotations

from spillover.policy.leasing import WAIT_READINGS, holder_wait_ms, is_abandoned, rival_wait_ms
from spillover.sim.leases_watch import Tenure
from spillover.sim.leases_world import Surroundings


class BlogStore:
    """The two hashes, by partition; a value is a node."""

    def __init__(self) -> None:
        self.allocation: dict[int, int] = {}
        self.grab: dict[int, int] = {}

    def set_grab_if_free(self, partition: int, node: int) -> int:
        """HSETNX on the grab hash; the winner that stands there after it."""
        return self.grab.setdefault(partition, node)

    def grabbed(self, partition: int) -> bool:
        return partition in self.grab

    def owner(self, partition: int) -> int | None:
        return self.allocation.get(partition)

    def allocate(self, partition: int, node: int) -> None:
        self.allocation[partition] = node

    def clear_grab(self, partition: int) -> None:
        self.grab.pop(partition, None)

    def clear_allocation(self, partition: int) -> None:
        self.allocation.pop(partition, None)

    def clear_both(self, partition: int) -> None:
        self.clear_allocation(partition)
        self.clear_grab(partition)


class BlogNode:
    """One node, its index `me`. `challenges`: `all` or `one`, see above; `waits`: which reading of
    step 2, see `policy.leasing`."""

    def __init__(
        self,
        me: int,
        partitions: int,
        store: BlogStore,
        around: Surroundings,
        challenges: str,
        waits: str,
    ) -> None:
        self._me = me
        self._partitions = partitions
        self._store = store
        self._around = around
        self._challenges = challenges
        self._less, self._more = WAIT_READINGS[waits]
        self._running: dict[int, Tenure] = {}
        self._busy: set[int] = set()
        """Partitions of which a challenge, a start or a stop is under way here."""
        self._awaited: dict[int, int] = {}
        """Won, and waiting for the other node to stop; the value tells one wait from another."""
        self._waits = 0
        self._challenged_ms: list[float] = []
        """When a challenge of the partition was last heard of."""
        self._due_ms: list[float] = []

    def own(self, partition: int) -> None:
        """Serve a partition from the start."""
        self._store.allocate(partition, self._me)
        self._run(partition)

    def start(self) -> None:
        around = self._around
        now_ms = around.now_ms
        self._challenged_ms = [now_ms] * self._partitions
        self._due_ms = [
            now_ms + around.phases.random() * around.times.normal_lease_ms
            for _ in range(self._partitions)
        ]
        if self._challenges == "one":
            around.timer(self._me, self._due_ms[0] - now_ms, self._challenge_one)
            return
        for partition, due_ms in enumerate(self._due_ms):
            around.timer(self._me, due_ms - now_ms, self._when_due, partition)

    # Step 1

    def _when_due(self, partition: int) -> None:
        around = self._around
        now_ms = around.now_ms
        if now_ms >= self._due_ms[partition]:
            self._due_ms[partition] = now_ms + around.period_ms(around.times.normal_lease_ms)
            self._consider(partition)
        around.timer(self._me, self._due_ms[partition] - now_ms, self._when_due, partition)

    def _challenge_one(self) -> None:
        around = self._around
        foreign = [p for p in range(self._partitions) if p not in self._running]
        if foreign:
            self._consider(foreign[int(around.phases.random() * len(foreign))])
        period_ms = around.period_ms(around.times.normal_lease_ms)
        around.timer(self._me, period_ms, self._challenge_one)

    def _consider(self, partition: int) -> None:
        if partition in self._running or partition in self._busy:
            return

        def on_grabbed(grabbed: bool) -> None:  # noqa: FBT001 - an answer of the store
            since_ms = around.now_ms - self._challenged_ms[partition]
            if is_abandoned(since_ms, around.times.max_lease_ms):
                around.call(self._me, self._store.clear_both, partition, then=publish)
            elif not grabbed:
                publish()

        def publish(_: object = None) -> None:
            around.publish_challenge(partition)

        around = self._around
        around.call(self._me, self._store.grabbed, partition, then=on_grabbed)

    # Step 2

    def on_challenged(self, partition: int) -> None:
        around = self._around
        self._challenged_ms[partition] = around.now_ms
        period_ms = around.period_ms(around.times.normal_lease_ms)
        self._due_ms[partition] = around.now_ms + period_ms
        if partition in self._busy:
            return
        self._busy.add(partition)
        held, delay_ms = len(self._running), around.times.held_delay_ms
        if partition in self._running:
            wait_ms = holder_wait_ms(held, delay_ms, self._less)
        else:
            wait_ms = rival_wait_ms(held, delay_ms, self._more)
        around.timer(self._me, wait_ms, self._race, partition)

    # Step 3

    def _race(self, partition: int) -> None:
        def on_winner(winner: int) -> None:
            if winner == self._me:
                self._won(partition)
            elif partition in self._running:
                around.timer(self._me, around.handler_stop_ms(), self._stopped, partition)
            else:
                self._busy.discard(partition)

        around = self._around
        around.call(self._me, self._store.set_grab_if_free, partition, self._me, then=on_winner)

    def _stopped(self, partition: int) -> None:
        around = self._around
        self._running.pop(partition).to_ms = around.now_ms
        self._busy.discard(partition)

        def publish(_: object) -> None:
            around.publish_allocated(partition)

        around.call(self._me, self._store.clear_allocation, partition, then=publish)

    # Step 4

    def _won(self, partition: int) -> None:
        def on_owner(owner: int | None) -> None:
            if owner is None or owner == self._me:
                self._take(partition)
            else:
                self._waits += 1
                self._awaited[partition] = self._waits
                limit_ms = around.times.max_shutdown_ms
                around.timer(self._me, limit_ms, self._start_anyway, partition, self._waits)

        around = self._around
        around.call(self._me, self._store.owner, partition, then=on_owner)

    def on_allocated(self, partition: int) -> None:
        """The other node says that it has stopped."""
        if self._awaited.pop(partition, None) is not None:
            self._take(partition)

    def _start_anyway(self, partition: int, wait: int) -> None:
        """The other node has had the maximum shutdown time."""
        if self._awaited.get(partition) == wait:
            self.on_allocated(partition)

    # Steps 5 and 6

    def _take(self, partition: int) -> None:
        def on_allocated(_: object) -> None:
            if partition not in self._running:
                self._run(partition)
            self._busy.discard(partition)
            around.timer(self._me, around.times.min_grab_ms, self._unmark, partition)

        around = self._around
        around.call(self._me, self._store.allocate, partition, self._me, then=on_allocated)

    def _unmark(self, partition: int) -> None:
        self._around.call(self._me, self._store.clear_grab, partition)

    def _run(self, partition: int) -> None:
        around = self._around
        self._running[partition] = around.watch.started(partition, self._me, 0, around.now_ms)
