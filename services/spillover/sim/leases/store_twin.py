"""The store of partition leases in memory: the twin of the scripts in live/leases/lua, step by
step.

Each method is one script: it runs alone, goes by the store's own clock (`now_ms`, handed in), and
compares owner and epoch before it changes anything. One suite of tests, tests/contract, holds for
it and for Redis. How the counts are taken is shared with the live store: `core.leases.records`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spillover.core.leases.records import (
    Activation,
    Allocation,
    Grab,
    Joined,
    LoadStanding,
    Registration,
    Renewed,
    Snapshot,
    StoredLoad,
    Survey,
    load_standing_of,
    standing_of,
    survey_of,
)
from spillover.model.errors import InputError
from spillover.model.lease_times import LeaseTimes
from spillover.policy.leases import (
    may_grab_free,
    may_grab_held,
    may_shift_load,
    may_take_load,
    move_budget,
    next_epoch,
)


@dataclass(slots=True)
class _Group:
    """The values that are stored once, as in `:group` in Redis."""

    partitions: int
    rule: str
    balance: str
    era: str
    server: int
    grace_to_ms: float | None = None


class LeaseTwin:
    """One group, as all its members see it. What each of them saw last of the era is kept here, by
    node, as each live member's store keeps it for itself."""

    def __init__(
        self,
        partitions: int,
        times: LeaseTimes,
        *,
        rule: str = "guarded",
        balance: str = "count",
    ) -> None:
        self._partitions = partitions
        self._times = times
        self._rule = rule
        self._balance = balance
        self._group: _Group | None = None
        self._server = 0
        self._eras = 0
        self._known: dict[str, str] = {}
        self.allocations: dict[int, Allocation] = {}
        self.grabs: dict[int, Grab] = {}
        self.members: dict[str, Registration] = {}
        self.loads: dict[int, StoredLoad] = {}

    # What happens to a server

    def lose_all(self) -> None:
        """FLUSHALL, or a restart with an empty dataset."""
        self._group = None
        self.allocations.clear()
        self.grabs.clear()
        self.members.clear()
        self.loads.clear()

    def move(self) -> None:
        """Another server has the data now: a restart, or a promoted replica."""
        self._server += 1

    # The scripts

    def join(
        self,
        now_ms: float,
        node: str,
        incarnation: str,
        partitions: int | None = None,
        rule: str | None = None,
        balance: str | None = None,
    ) -> Joined:
        """Raises InputError if the group has another number of partitions, rule or balance."""
        self._known[node] = ""
        group = self._enter(now_ms, node, partitions, rule, balance)
        other = self._living(now_ms, node)
        if other is not None and other.incarnation != incarnation:
            return Joined(ok=False, other_alive_ms=other.alive_to_ms - now_ms, era=group.era)
        self._register(now_ms, node, incarnation)
        for dead in [one for one in self.members if self._living(now_ms, one) is None]:
            del self.members[dead]
        return Joined(ok=True, other_alive_ms=0.0, era=group.era)

    def leave(self, now_ms: float, node: str, incarnation: str) -> None:
        del now_ms
        member = self.members.get(node)
        if member is not None and member.incarnation == incarnation:
            del self.members[node]

    def renew(
        self, now_ms: float, node: str, incarnation: str, held: Sequence[tuple[int, int]]
    ) -> Renewed:
        """Sign of life of a member and of its (partition, epoch) pairs."""
        known = self._known.get(node, "")
        group = self._enter(now_ms, node)
        other = self._living(now_ms, node)
        if other is not None and other.incarnation != incarnation:
            lost = [(partition, False, False) for partition, _ in held]
            return Renewed(group.era, lost, displaced=True)
        if other is not None and other.alive_to_ms > now_ms + self._times.max_lease_ms:
            self._forget_the_future(now_ms)
        self._register(now_ms, node, incarnation)
        is_new = known not in ("", group.era)
        answers = []
        for partition, epoch in held:
            own = self._kept(now_ms, partition, node, epoch, is_new=is_new)
            wanted = False
            if own is not None:
                own.lease_to_ms = now_ms + self._times.max_lease_ms
                self.allocations[partition] = own
                if self._winner(now_ms, partition) is None:
                    self.grabs.pop(partition, None)
                wanted = self._wanted(now_ms, partition, node)
            answers.append((partition, own is not None, wanted))
        return Renewed(group.era, answers)

    def is_wanted(self, now_ms: float, partition: int, node: str, epoch: int) -> bool:
        """Returns whether another node has won what this one serves."""
        own = self._own(now_ms, partition, node, epoch)
        return own is not None and self._wanted(now_ms, partition, node)

    def grab(self, now_ms: float, partition: int, node: str, free_for_ms: float) -> bool:
        """Win the partition, if the counts allow it; `free_for_ms`: seen free for so long."""
        group = self._enter(now_ms, node)
        in_grace = group.grace_to_ms is not None and group.grace_to_ms > now_ms
        if in_grace or self._winner(now_ms, partition) is not None:
            return False
        if self._living(now_ms, node) is None or not self._may_grab(
            now_ms, partition, node, free_for_ms
        ):
            return False
        self.grabs[partition] = Grab(node, now_ms, now_ms + self._times.grab_limit_ms)
        return True

    def drain(self, now_ms: float, partition: int, node: str, epoch: int) -> bool:
        """Takes note that the holder begins to stop, and returns whether the lease was its own:
        from now on it has the maximum shutdown time."""
        own = self._own(now_ms, partition, node, epoch)
        if own is None:
            return False
        stop_to_ms = now_ms + self._times.max_shutdown_ms
        own.stop_to_ms = min(own.stop_to_ms or stop_to_ms, stop_to_ms)
        return True

    def release(self, now_ms: float, partition: int, node: str, epoch: int) -> bool:
        """Frees the partition, whose holder has stopped, and returns whether the lease was its own.
        A stale epoch changes nothing."""
        own = self._own(now_ms, partition, node, epoch)
        if own is None:
            return False
        own.lease_to_ms = own.stop_to_ms = 0.0
        grab = self.grabs.get(partition)
        if grab is not None and grab.node == node:
            del self.grabs[partition]
        return True

    def activate(self, now_ms: float, partition: int, node: str) -> Activation:
        """Gives the winner what is free, and returns with which epoch, or in what time to ask
        again."""
        grab = self._winner(now_ms, partition)
        if grab is None or grab.node != node:
            return Activation(None, 0.0)
        living = self._live(now_ms, partition)
        if living is not None:
            return Activation(None, living.over_ms - now_ms if living.owner != node else 0.0)
        before = self.allocations.get(partition)
        epoch = next_epoch(before.epoch if before is not None else 0, int(now_ms))
        to_ms = now_ms + self._times.max_lease_ms
        self.allocations[partition] = Allocation(node, epoch, now_ms, to_ms)
        grab.to_ms = now_ms + self._times.min_grab_ms
        return Activation(epoch, 0.0)

    def snapshot(self, now_ms: float) -> Snapshot:
        """Returns all that is stored; not a copy."""
        era = self._group.era if self._group is not None else ""
        loads = self.loads if self._balance == "load" else None
        return Snapshot(now_ms, era, self.allocations, self.grabs, self.members, loads)

    def survey(
        self, now_ms: float, node: str, loads: Sequence[tuple[int, int, int]] = ()
    ) -> Survey:
        """Both hashes and the members, sorted out for `node`, which tells first what its loads
        are; see lua/survey_loads.lua."""
        for partition, epoch, amount in loads:
            if self._own(now_ms, partition, node, epoch) is not None:
                self.loads[partition] = StoredLoad(amount, now_ms)
        return survey_of(self.snapshot(now_ms), self._partitions, self._times, node)

    def _enter(
        self,
        now_ms: float,
        node: str,
        partitions: int | None = None,
        rule: str | None = None,
        balance: str | None = None,
    ) -> _Group:
        """lua/era.lua."""
        group = self._group
        wanted = partitions or self._partitions, rule or self._rule, balance or self._balance
        if group is not None:
            have = group.partitions, group.rule, group.balance
            names = "partitions", "rule", "balance"
            for name, stored, given in zip(names, have, wanted, strict=True):
                if stored != given:
                    raise InputError("lease group", name, f"expected {stored}, got {given}")
        is_moved = group is not None and group.server != self._server
        if group is None or is_moved:
            self._eras += 1
            group = self._group = _Group(*wanted, f"era{self._eras}", self._server)
            self._forget_the_future(now_ms)
        grace_longest_ms = now_ms + self._times.max_lease_ms
        if group.grace_to_ms is not None and group.grace_to_ms > grace_longest_ms:
            group.grace_to_ms = grace_longest_ms
        is_known_otherwise = self._known.get(node, "") not in ("", group.era)
        if (is_moved or is_known_otherwise) and group.grace_to_ms is None:
            group.grace_to_ms = now_ms + self._times.max_lease_ms
        self._known[node] = group.era
        return group

    def _forget_the_future(self, now_ms: float) -> None:
        """Instants of a clock that was ahead of this one; see lua/era.lua."""
        to_ms = now_ms + self._times.max_lease_ms
        for allocation in self.allocations.values():
            allocation.since_ms = min(allocation.since_ms, now_ms)
            allocation.lease_to_ms = min(allocation.lease_to_ms, to_ms)
            allocation.stop_to_ms = min(allocation.stop_to_ms, to_ms)
        for grab in self.grabs.values():
            grab.since_ms, grab.to_ms = min(grab.since_ms, now_ms), min(grab.to_ms, to_ms)
        for member in self.members.values():
            member.alive_to_ms = min(member.alive_to_ms, to_ms)
        if self._group is not None and self._group.grace_to_ms is not None:
            self._group.grace_to_ms = min(self._group.grace_to_ms, to_ms)

    def _kept(
        self, now_ms: float, partition: int, node: str, epoch: int, *, is_new: bool
    ) -> Allocation | None:
        """Returns the stored lease to be renewed, or one that the store forgot; see
        lua/renew.lua."""
        stored = self.allocations.get(partition)
        if stored is None or epoch > stored.epoch:
            grab = self.grabs.get(partition)
            if grab is not None and grab.since_ms < epoch:
                del self.grabs[partition]
            return Allocation(node, epoch, min(epoch, now_ms), 0.0)
        if (stored.owner, stored.epoch) != (node, epoch):
            return None
        if not stored.lease_to_ms or 0.0 < stored.stop_to_ms <= now_ms:
            return None
        return stored if stored.lease_to_ms > now_ms or is_new else None

    def _may_grab(self, now_ms: float, partition: int, node: str, free_for_ms: float) -> bool:
        times = self._times
        partitions = self._partitions
        snapshot = self.snapshot(now_ms)
        standing = standing_of(snapshot, partitions, times)
        if snapshot.loads is not None:
            loads = load_standing_of(snapshot, partitions, times, standing.held)
            return self._may_grab_load(
                now_ms, partition, node, free_for_ms, loads, standing.lately[node]
            )
        nodes = len(standing.held)
        held = standing.held[node]
        allocation = self._live(now_ms, partition)
        if allocation is None:
            patience_ms = times.normal_lease_ms
            return may_grab_free(held, standing.above, partitions, nodes, free_for_ms, patience_ms)
        return allocation.owner != node and may_grab_held(
            standing.held.get(allocation.owner, 0),
            held,
            standing.above,
            partitions,
            nodes,
            now_ms - allocation.since_ms,
            times.min_residency_ms,
            standing.lately[node],
            move_budget(partitions, nodes),
        )

    def _may_grab_load(
        self,
        now_ms: float,
        partition: int,
        node: str,
        free_for_ms: float,
        loads: LoadStanding,
        lately: int,
    ) -> bool:
        """lua/by_loads.lua."""
        times = self._times
        own, load = loads.held[node], loads.of[partition]
        least = min(loads.held.values())
        allocation = self._live(now_ms, partition)
        if allocation is None:
            patience_ms = times.normal_lease_ms
            return may_take_load(own, least, load, loads.mean, loads.band, free_for_ms, patience_ms)
        giver = loads.held.get(allocation.owner, 0)
        return (
            allocation.owner != node
            and now_ms - allocation.since_ms >= times.min_residency_ms
            and lately < move_budget(self._partitions, len(loads.held))
            and may_shift_load(giver, own, load, loads.mean, loads.band, least)
        )

    def _register(self, now_ms: float, node: str, incarnation: str) -> None:
        self.members[node] = Registration(now_ms + self._times.max_lease_ms, incarnation)

    def _living(self, now_ms: float, node: str) -> Registration | None:
        member = self.members.get(node)
        return member if member is not None and member.alive_to_ms > now_ms else None

    def _live(self, now_ms: float, partition: int) -> Allocation | None:
        """The allocation, unless its lease is over or its holder must have stopped."""
        allocation = self.allocations.get(partition)
        return allocation if allocation is not None and allocation.over_ms > now_ms else None

    def _own(self, now_ms: float, partition: int, node: str, epoch: int) -> Allocation | None:
        allocation = self._live(now_ms, partition)
        if allocation is None or (allocation.owner, allocation.epoch) != (node, epoch):
            return None
        return allocation

    def _winner(self, now_ms: float, partition: int) -> Grab | None:
        grab = self.grabs.get(partition)
        return grab if grab is not None and grab.to_ms > now_ms else None

    def _wanted(self, now_ms: float, partition: int, node: str) -> bool:
        grab = self._winner(now_ms, partition)
        return grab is not None and grab.node != node
