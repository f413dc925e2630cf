"""How a group's keys are called in Redis, how its values are written and read there, and where its
scripts lie.

All keys carry the hash tag `{spillover:G}`, so that they lie in one slot of a cluster. A value's
fields are joined by `|`, the node first: `node|epoch|since_ms|lease_to_ms|stop_to_ms` of an
allocation, `node|since_ms|to_ms` of a grab, `alive_to_ms|incarnation` of a member,
`thousandths|at_ms` of a load. What cannot be read counts as not there: then scripts and members
take the partition for one that was never served.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from spillover.core.leases.records import (
    NAME,
    Allocation,
    Grab,
    Registration,
    Snapshot,
    StoredLoad,
    check_name,
)
from spillover.live.redis.connection import Script

load_script = partial(Script.load, "spillover.live.leases")
"""Scripts of these names in lua/, as one. What each does is said there."""


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
        """Returns the hashes in the order in which scripts get them."""
        return self.allocation, self.grab, self.members, self.group

    @property
    def hashes_with_load(self) -> tuple[str, str, str, str, str]:
        return (*self.hashes, self.load)


def _lines_of(field: str, value: str) -> re.Pattern[str]:
    """Pairs of a field and its value, each on a line of its own. What stands between such pairs is
    passed over, whatever somebody wrote there."""
    return re.compile(f"^{field}\n{value}$", re.MULTILINE | re.ASCII)


_PARTITION = r"(0|[1-9]\d{0,8})"
_NUMBER = r"(\d{1,15})"
"""Numbers that are exact in Lua, too, as WHOLE in group.lua has them."""

_ALLOCATIONS = _lines_of(_PARTITION, rf"([^|\n]+)\|{_NUMBER}\|{_NUMBER}\|{_NUMBER}\|{_NUMBER}")
_GRABS = _lines_of(_PARTITION, rf"([^|\n]+)\|{_NUMBER}\|{_NUMBER}")
_MEMBERS = _lines_of(f"({NAME.pattern})", rf"{_NUMBER}\|([^|\n]*)")
_LOADS = _lines_of(_PARTITION, rf"{_NUMBER}\|{_NUMBER}")


def read_snapshot(reply: Sequence[str]) -> Snapshot:
    """Returns what `survey.lua` answers: the clock, the era, and three hashes, each as lines of
    fields and values in turn; `survey_loads.lua` adds the loads.
    """
    now_ms, era, allocations, grabs, members, *loads = reply
    return Snapshot(
        int(now_ms),
        era,
        {
            int(partition): Allocation(node, int(epoch), int(since), int(lease_to), int(stop_to))
            for partition, node, epoch, since, lease_to, stop_to in _ALLOCATIONS.findall(
                allocations
            )
        },
        {
            int(partition): Grab(node, int(since), int(to))
            for partition, node, since, to in _GRABS.findall(grabs)
        },
        {
            node: Registration(int(alive_to), incarnation)
            for node, alive_to, incarnation in _MEMBERS.findall(members)
        },
        {
            int(partition): StoredLoad(int(amount), int(at))
            for partition, amount, at in _LOADS.findall(loads[0])
        }
        if loads
        else None,
    )
