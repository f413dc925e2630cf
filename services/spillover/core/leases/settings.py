"""Which member of which group a machine is: its id, the group's size, times and balance."""

from __future__ import annotations

from dataclasses import dataclass, field

from spillover.core.leases.records import check_name, check_partitions
from spillover.model.errors import InputError
from spillover.model.lease_times import LEASE_BALANCES, LeaseTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """One member of a group of `partitions` partitions. Raises InputError."""

    node: str
    partitions: int
    times: LeaseTimes = field(default_factory=LeaseTimes)
    balance: str = "count"
    """The measure by which the group is evened out, `count` or `load`; the same for all its
    members."""

    def __post_init__(self) -> None:
        check_name("lease member", "node", self.node)
        check_partitions("lease member", self.partitions)
        if self.balance not in LEASE_BALANCES:
            expected = f"expected one of {', '.join(LEASE_BALANCES)}, got {self.balance!r}"
            raise InputError("lease member", "balance", expected)
