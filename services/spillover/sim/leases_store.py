"""The store of the guarded lease rule: two hashes and the members, changed by scripts only.

Each method is one script: it runs alone, reads the store's own clock (`now_ms`, handed in), and
compares owner and epoch before it changes anything. Who may take what is asked of
`policy.leasing`; what the nodes do with the answers is in `sim.leases_guarded`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from spillover.model.lease_times import LeaseTimes
from spillover.policy.leasing import may_grab_free, may_grab_held, move_budget, next_epoch


@dataclass(slots=True)
class Allocation:
    """Who serves a partition. It outlives its lease: the epoch is needed for the next one."""

    owner: int
    epoch: int
    since_ms: float
    lease_to_ms: float
    stop_to_ms: float = math.inf
    """While it is handed over: when the holder must have stopped."""

    @property
    def over_ms(self) -> float:
        return min(self.lease_to_ms, self.stop_to_ms)


@dataclass(slots=True)
class Grab:
    """Who won the partition, and until when that blocks further challenges."""

    node: int
    since_ms: float
    to_ms: float


@dataclass(slots=True)
class Standing:
    """The counts of intended owners among living members, as a script computes them."""

    held: dict[int, int]
    lately: dict[int, int]
    """How many of them came within one normal lease time."""
    above: int
    """How many members hold more than partitions // members."""


@dataclass(slots=True)
class Survey:
    """What a member reads at each poll."""

    standing: Standing
    free: list[int] = field(default_factory=list)
    """Partitions that nobody serves and nobody has won."""
    mine: list[int] = field(default_factory=list)
    """Won by the member that asks, and not yet started."""
    held: list[tuple[int, int, float]] = field(default_factory=list)
    """Not under challenge and served by another: (partition, owner, ms that it has been there)."""


class GuardedStore:
    """The state in Redis, as one object. Nodes are indices."""

    def __init__(self, partitions: int, times: LeaseTimes) -> None:
        self._times = times
        self.allocations: list[Allocation | None] = [None] * partitions
        self.grabs: list[Grab | None] = [None] * partitions
        self.members: dict[int, float] = {}
        """When each member counts as dead."""

    def renew(
        self, now_ms: float, node: int, held: Sequence[tuple[int, int]]
    ) -> list[tuple[int, bool, bool]]:
        """Sign of life of a member and of its (partition, epoch) pairs.

        For each: (partition, whether it is still held, whether another node has won it).
        """
        self.members[node] = now_ms + self._times.max_lease_ms
        answer = []
        for partition, epoch in held:
            allocation = self._own(now_ms, partition, node, epoch)
            wanted = False
            if allocation is not None:
                allocation.lease_to_ms = now_ms + self._times.max_lease_ms
                wanted = self._wanted(now_ms, partition, node)
            answer.append((partition, allocation is not None, wanted))
        return answer

    def is_wanted(self, now_ms: float, partition: int, node: int, epoch: int) -> bool:
        """Whether another node has won what this one serves."""
        own = self._own(now_ms, partition, node, epoch)
        return own is not None and self._wanted(now_ms, partition, node)

    def grab(self, now_ms: float, partition: int, node: int, free_for_ms: float) -> bool:
        """Win the partition, if the counts allow it; `free_for_ms`: seen free for so long."""
        if self._live_grab(now_ms, partition) is not None:
            return False
        times = self._times
        if self.members.get(node, 0.0) <= now_ms:
            self.members[node] = now_ms + times.max_lease_ms
        standing = self.standing(now_ms)
        nodes = len(standing.held)
        partitions = len(self.allocations)
        held = standing.held.get(node, 0)
        allocation = self._live(now_ms, partition)
        if allocation is None:
            patience_ms = times.normal_lease_ms
            allowed = may_grab_free(
                held, standing.above, partitions, nodes, free_for_ms, patience_ms
            )
        else:
            allowed = allocation.owner != node and may_grab_held(
                standing.held.get(allocation.owner, 0),
                held,
                standing.above,
                partitions,
                nodes,
                now_ms - allocation.since_ms,
                times.min_residency_ms,
                standing.lately.get(node, 0),
                move_budget(partitions, nodes),
            )
        if allowed:
            self.grabs[partition] = Grab(node, now_ms, now_ms + times.grab_limit_ms)
        return allowed

    def drain(self, now_ms: float, partition: int, node: int, epoch: int) -> bool:
        """The holder begins to stop; from now on it has the maximum shutdown time."""
        allocation = self._own(now_ms, partition, node, epoch)
        if allocation is None:
            return False
        stop_to_ms = now_ms + self._times.max_shutdown_ms
        allocation.stop_to_ms = min(allocation.stop_to_ms, stop_to_ms)
        return True

    def release(self, now_ms: float, partition: int, node: int, epoch: int) -> bool:
        """The holder has stopped: the partition is free. A stale epoch changes nothing."""
        allocation = self._own(now_ms, partition, node, epoch)
        if allocation is None:
            return False
        allocation.lease_to_ms = now_ms
        return True

    def activate(self, now_ms: float, partition: int, node: int) -> tuple[int | None, float]:
        """The winner takes over what is free: (its epoch, 0), or (None, in how many ms the
        partition is free at the latest), or (None, 0) for a node that is not the winner."""
        grab = self._live_grab(now_ms, partition)
        if grab is None or grab.node != node:
            return None, 0.0
        living = self._live(now_ms, partition)
        if living is not None:
            return None, living.over_ms - now_ms if living.owner != node else 0.0
        before = self.allocations[partition]
        epoch = next_epoch(before.epoch if before is not None else 0, int(now_ms))
        to_ms = now_ms + self._times.max_lease_ms
        self.allocations[partition] = Allocation(node, epoch, now_ms, to_ms)
        grab.to_ms = now_ms + self._times.min_grab_ms
        return epoch, 0.0

    def survey(self, now_ms: float, node: int) -> Survey:
        """Both hashes, as a member sorts them out after reading them."""
        survey = Survey(self.standing(now_ms))
        for partition in range(len(self.allocations)):
            grab = self._live_grab(now_ms, partition)
            allocation = self._live(now_ms, partition)
            if grab is not None:
                if grab.node == node and (allocation is None or allocation.owner != node):
                    survey.mine.append(partition)
            elif allocation is None:
                survey.free.append(partition)
            elif allocation.owner != node:
                resident_ms = now_ms - allocation.since_ms
                survey.held.append((partition, allocation.owner, resident_ms))
        return survey

    def standing(self, now_ms: float) -> Standing:
        """Counts by intended owner: a won partition counts for the winner already."""
        held = {node: 0 for node, to_ms in self.members.items() if to_ms > now_ms}
        lately = dict.fromkeys(held, 0)
        recent_ms = now_ms - self._times.normal_lease_ms
        for partition in range(len(self.allocations)):
            grab = self._live_grab(now_ms, partition)
            allocation = self._live(now_ms, partition)
            if grab is not None:
                node, since_ms = grab.node, grab.since_ms
            elif allocation is not None:
                node, since_ms = allocation.owner, allocation.since_ms
            else:
                continue
            if node in held:
                held[node] += 1
                lately[node] += since_ms > recent_ms
        floor = len(self.allocations) // len(held) if held else 0
        return Standing(held, lately, sum(count > floor for count in held.values()))

    def _live(self, now_ms: float, partition: int) -> Allocation | None:
        """The allocation, unless its lease is over or its holder must have stopped."""
        allocation = self.allocations[partition]
        return allocation if allocation is not None and allocation.over_ms > now_ms else None

    def _own(self, now_ms: float, partition: int, node: int, epoch: int) -> Allocation | None:
        allocation = self._live(now_ms, partition)
        if allocation is None or (allocation.owner, allocation.epoch) != (node, epoch):
            return None
        return allocation

    def _live_grab(self, now_ms: float, partition: int) -> Grab | None:
        grab = self.grabs[partition]
        return grab if grab is not None and grab.to_ms > now_ms else None

    def _wanted(self, now_ms: float, partition: int, node: int) -> bool:
        grab = self._live_grab(now_ms, partition)
        return grab is not None and grab.node != node
