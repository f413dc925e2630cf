"""How a group's keys are called in Redis, and how its values are written and read there.

All keys carry the hash tag `{spillover:G}`, so that they lie in one slot of a cluster. A value's
fields are joined by `|`, the node first. What cannot be read counts as not there: then scripts and
members take the partition for one that was never served.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from spillover.core.lease_records import (
    Allocation,
    Grab,
    Registration,
    Snapshot,
    StoredLoad,
    check_name,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GroupKeys:
    """The keys and channels of one group."""

    allocation: str
    grab: str
    members: str
    group: str
    load: str
    """Hash by partition: thousandths|at_ms; only in groups that are evened out by loads."""
    grab_channel: str
    allocated_channel: str

    @classmethod
    def of(cls, group: str) -> GroupKeys:
        """Raises InputError for a name that cannot stand in a hash tag."""
        check_name("lease group", "group", group)
        tag = f"{{spillover:{group}}}"
        hashes = ("allocation", "grab", "members", "group", "load")
        channels = ("grab-lease", "allocated-lease")
        return cls(*(f"{tag}:{name}" for name in hashes + channels))

    @property
    def hashes(self) -> tuple[str, str, str, str]:
        """In the order in which scripts get them."""
        return self.allocation, self.grab, self.members, self.group

    @property
    def hashes_with_load(self) -> tuple[str, str, str, str, str]:
        """For scripts that count loads."""
        return (*self.hashes, self.load)


def read_allocation(value: str) -> Allocation:
    """`node|epoch|since_ms|lease_to_ms|stop_to_ms`; raises ValueError."""
    node, epoch, since_ms, lease_to_ms, stop_to_ms = value.split("|")
    return Allocation(node, int(epoch), int(since_ms), int(lease_to_ms), int(stop_to_ms))


def read_grab(value: str) -> Grab:
    """`node|since_ms|to_ms`; raises ValueError."""
    node, since_ms, to_ms = value.split("|")
    return Grab(node, int(since_ms), int(to_ms))


def read_registration(value: str) -> Registration:
    """`alive_to_ms|incarnation`; raises ValueError."""
    alive_to_ms, incarnation = value.split("|")
    return Registration(int(alive_to_ms), incarnation)


def read_load(value: str) -> StoredLoad:
    """`thousandths|at_ms`; raises ValueError."""
    amount, at_ms = value.split("|")
    return StoredLoad(int(amount), int(at_ms))


def read_snapshot(reply: Sequence[str]) -> Snapshot:
    """What `survey.lua` answers: the clock, the era, and three hashes, each as lines of fields and
    values in turn; `survey_loads.lua` adds the loads."""
    now_ms, era, allocation, grab, members, *load = reply
    return Snapshot(
        int(now_ms),
        era,
        _by_partition(allocation, read_allocation),
        _by_partition(grab, read_grab),
        _by_node(members),
        _by_partition(load[0], read_load) if load else None,
    )


def _by_partition(lines: str, read: Callable[[str], T]) -> dict[int, T]:
    fields = iter(lines.split("\n"))
    found = {}
    for partition, value in zip(fields, fields, strict=False):
        try:
            found[int(partition)] = read(value)
        except ValueError:
            continue
    return found


def _by_node(lines: str) -> dict[str, Registration]:
    fields = iter(lines.split("\n"))
    found = {}
    for node, value in zip(fields, fields, strict=False):
        try:
            found[node] = read_registration(value)
        except ValueError:
            continue
    return found
