"""The part of a lease that a sink needs; `live.leases.renewal.lease.Lease` has it."""

from __future__ import annotations

from typing import NoReturn, Protocol

from spillover.live.leases.renewal.lease import Fenced


class HeldPartition(Protocol):
    """A partition held at an epoch."""

    @property
    def partition(self) -> int: ...

    @property
    def epoch(self) -> int: ...

    def check(self) -> None:
        """Raises Fenced once it is over."""


def fenced_by(lease: HeldPartition, newer: int) -> NoReturn:
    """Raise Fenced, because the sink has seen a later epoch."""
    raise Fenced(lease.partition, lease.epoch, f"the sink has seen epoch {newer}")
