"""The conditions that hold for a lease member after every event; tests and simulations assert
them."""

from __future__ import annotations

from spillover.core.leases.claims import Claims
from spillover.core.leases.holdings import Holdings


def check_leases(holdings: Holdings, claims: Claims, now_s: float, partitions: int) -> None:
    """Raises AssertionError where an invariant does not hold."""
    held, ending = holdings.held, holdings.ending
    assert held.keys().isdisjoint(ending), "a partition is served twice here"
    for partition, one in held.items():
        assert one.partition == partition
        assert 0 <= partition < partitions
        assert one.fence_s > now_s, "a holder works beyond its lease"
        assert holdings.epochs[partition] == one.epoch, "an older epoch is served"
    for partition, epoch in ending.items():
        assert holdings.epochs[partition] >= epoch, "what has ended is not known"
    assert claims.claims.keys().isdisjoint(held), "what is held is claimed"
    for partition, epoch in holdings.releasing:
        assert held.get(partition) is None or held[partition].epoch > epoch
