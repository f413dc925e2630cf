"""What a store of partition leases holds and answers, and how its two hashes are sorted out.

The store on Redis and the twin in memory give the same values, and both count with the same
functions here. Instants are ms of the store's own clock; nodes are given by id. How values are
written in Redis is in `live.leases.redis_values`; what a member does with them in
`core.leases.machine`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from spillover.model.errors import InputError
from spillover.model.lease_times import LeaseTimes
from spillover.policy.leases import LOAD_LEAST, LOAD_STALE_LEASES, fair_load, load_band

LOAD_UNIT = int(1_000 * LOAD_LEAST)
"""The least load of a partition, as it is stored: in thousandths."""

LOAD_FLOOR = LOAD_UNIT / 2
"""The least band: half of what a partition counts for at least, so that nodes whose partitions
report nothing are evened out as by counts."""

LOAD_MAX = 10**12
"""The largest load of one partition, in thousandths: then nine thousand of them add up without
rounding."""

PARTITIONS_MAX = 10_000
"""The most partitions of a group: every survey and every grab looks at all of them."""

NAME = re.compile(r"[A-Za-z0-9._-]{1,63}")
"""Ids of nodes and names of groups: neither `|` nor a brace can occur in them."""


def check_name(source: str, field_name: str, name: object) -> None:
    """Raise InputError unless `name` can name a node or a group."""
    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        expected = f"expected 1 to 63 of A-Z a-z 0-9 . _ -, got {name!r}"
        raise InputError(source, field_name, expected)


def check_partitions(source: str, partitions: object) -> None:
    """Raise InputError unless a group can have so many."""
    if not isinstance(partitions, int) or isinstance(partitions, bool) or partitions < 1:
        raise InputError(source, "partitions", f"expected at least 1, got {partitions!r:.80}")
    if partitions > PARTITIONS_MAX:
        expected = f"expected at most {PARTITIONS_MAX}, got {partitions}"
        raise InputError(source, "partitions", expected)


@dataclass(slots=True)
class Allocation:
    """The node that serves a partition. It outlives its lease: the epoch is needed for the next
    one."""

    owner: str
    epoch: int
    since_ms: float
    lease_to_ms: float
    """0: its holder has given it back."""
    stop_to_ms: float = 0.0
    """When the holder must have stopped; 0: the partition is not being handed over."""

    @property
    def over_ms(self) -> float:
        if self.stop_to_ms:
            return min(self.lease_to_ms, self.stop_to_ms)
        return self.lease_to_ms


@dataclass(slots=True)
class Grab:
    """The node that won the partition, and the time until which that blocks further challenges."""

    node: str
    since_ms: float
    to_ms: float


@dataclass(slots=True)
class Registration:
    """A member: until when it counts as alive, and which process of that id it is."""

    alive_to_ms: float
    incarnation: str


def stored_load(load: float) -> int:
    """Returns a load in thousandths, within what can be stored."""
    return max(LOAD_UNIT, round(min(1_000.0 * load, LOAD_MAX)))


@dataclass(slots=True)
class StoredLoad:
    """How much work a partition was when its holder last told: a whole number of thousandths of
    a unit of work per normal lease time, so that sums are exact wherever they are made."""

    amount: int
    at_ms: float


@dataclass(slots=True)
class Snapshot:
    """All that is stored of a group, read at one instant. Partitions that were never served have
    no allocation."""

    now_ms: float
    era: str
    allocations: Mapping[int, Allocation]
    grabs: Mapping[int, Grab]
    members: Mapping[str, Registration]
    loads: Mapping[int, StoredLoad] | None = None
    """The loads by partition; None in a group that is evened out by counts."""


@dataclass(frozen=True, slots=True)
class Joined:
    """The answer to a member that joins. If it is not in, another one of its id has still so long
    to live."""

    ok: bool
    other_alive_ms: float
    era: str


@dataclass(frozen=True, slots=True)
class Renewed:
    """The answer to a renewal."""

    era: str
    """Another than before: the store lost data, or is another server."""
    held: list[tuple[int, bool, bool]]
    """What has become of each pair sent: (partition, whether it is still held, whether another has
    won it)."""
    displaced: bool = False
    """Another process of that id is the member now: nothing was renewed."""


@dataclass(frozen=True, slots=True)
class Activation:
    """The epoch of the new holder; or None, and in how many ms the partition is free at the
    latest: 0 for a node that has not won it."""

    epoch: int | None
    free_in_ms: float


@dataclass(slots=True)
class Standing:
    """The counts of intended owners among living members."""

    held: dict[str, int]
    lately: dict[str, int]
    """How many of them came within one normal lease time."""
    above: int
    """How many members hold more than partitions // members."""


@dataclass(slots=True)
class LoadStanding:
    """The loads of intended owners among living members; all in thousandths, see StoredLoad."""

    of: list[int]
    """The load of each partition; one that is not known counts for the mean of those that are."""
    known: dict[int, int]
    """The loads of partitions that were reported lately."""
    held: dict[str, int]
    """The load that each member holds."""
    mean: float
    """The mean load of the living, if they served everything; see `policy.leases.fair_load`."""
    band: float


@dataclass(slots=True)
class Survey:
    """The standing of a group as a member reads it from the hashes at each poll."""

    era: str
    standing: Standing
    free: list[int] = field(default_factory=list)
    """Partitions that nobody serves and nobody has won."""
    mine: list[int] = field(default_factory=list)
    """Won by the member that asks, and not yet started."""
    own: list[tuple[int, int]] = field(default_factory=list)
    """The partitions that the store counts as the member's, as (partition, epoch). One that the
    member does not know was granted in an answer that was lost: releasing it frees it at once."""
    held: list[tuple[int, str, float]] = field(default_factory=list)
    """Not under challenge and served by another: (partition, owner, ms that it has been there)."""
    loads: LoadStanding | None = None
    """The loads of the group; None in a group that is evened out by counts."""


def standing_of(snapshot: Snapshot, partitions: int, times: LeaseTimes) -> Standing:
    """Counts by intended owner: a won partition counts for the winner already."""
    now_ms = snapshot.now_ms
    held = {node: 0 for node, member in snapshot.members.items() if member.alive_to_ms > now_ms}
    lately = dict.fromkeys(held, 0)
    recent_ms = now_ms - times.normal_lease_ms
    for partition in range(partitions):
        grab = snapshot.grabs.get(partition)
        if grab is not None and grab.to_ms > now_ms:
            node, since_ms = grab.node, grab.since_ms
        else:
            allocation = snapshot.allocations.get(partition)
            if allocation is None or allocation.over_ms <= now_ms:
                continue
            node, since_ms = allocation.owner, allocation.since_ms
        if node in held:
            held[node] += 1
            lately[node] += since_ms > recent_ms
    floor = partitions // len(held) if held else 0
    return Standing(held, lately, sum(count > floor for count in held.values()))


def load_standing_of(
    snapshot: Snapshot, partitions: int, times: LeaseTimes, living: Iterable[str]
) -> LoadStanding:
    """Loads by intended owner, as `standing_of` counts."""
    stored = snapshot.loads or {}
    stale_ms = snapshot.now_ms - LOAD_STALE_LEASES * times.max_lease_ms
    known = {
        partition: load.amount
        for partition, load in stored.items()
        if 0 <= partition < partitions and load.at_ms > stale_ms
    }
    usual = sum(known.values()) // len(known) if known else LOAD_UNIT
    of = [known.get(partition, usual) for partition in range(partitions)]
    held = dict.fromkeys(living, 0)
    for partition, load in enumerate(of):
        node = _intended_owner(snapshot, partition)
        if node in held:
            held[node] += load
    mean = fair_load(of, len(held)) if held else 0.0
    return LoadStanding(of, known, held, mean, load_band(mean, LOAD_FLOOR))


def _intended_owner(snapshot: Snapshot, partition: int) -> str | None:
    grab = snapshot.grabs.get(partition)
    if grab is not None and grab.to_ms > snapshot.now_ms:
        return grab.node
    allocation = snapshot.allocations.get(partition)
    if allocation is not None and allocation.over_ms > snapshot.now_ms:
        return allocation.owner
    return None


def survey_of(snapshot: Snapshot, partitions: int, times: LeaseTimes, node: str) -> Survey:
    """Returns what there is to do for `node`."""
    now_ms = snapshot.now_ms
    survey = Survey(snapshot.era, standing_of(snapshot, partitions, times))
    if snapshot.loads is not None:
        survey.loads = load_standing_of(snapshot, partitions, times, survey.standing.held)
    for partition in range(partitions):
        allocation = snapshot.allocations.get(partition)
        if allocation is not None and allocation.over_ms <= now_ms:
            allocation = None
        elif allocation is not None and allocation.owner == node:
            survey.own.append((partition, allocation.epoch))
        grab = snapshot.grabs.get(partition)
        if grab is not None and grab.to_ms > now_ms:
            if grab.node == node and (allocation is None or allocation.owner != node):
                survey.mine.append(partition)
        elif allocation is None:
            survey.free.append(partition)
        elif allocation.owner != node:
            survey.held.append((partition, allocation.owner, now_ms - allocation.since_ms))
    return survey
