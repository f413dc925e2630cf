"""Snapshots of what one cluster knows of its neighbors, for policies, records and users.
`neighbors` has the table that they are made from."""

from __future__ import annotations

from dataclasses import dataclass

from spillover.model.ids import ClusterId
from spillover.policy.overflow.base import NeighborLoads
from spillover.policy.overflow.degradation import SAME


@dataclass(frozen=True, slots=True)
class Knowledge:
    """The knowledge of all neighbors at one instant, by position. It never changes once made."""

    ids: tuple[ClusterId, ...]
    handles: tuple[int, ...]
    loads: NeighborLoads
    """The loads that policies get."""
    accept: tuple[float, ...]
    reported_s: tuple[float, ...]
    known: tuple[bool, ...]
    accepting: tuple[bool, ...]
    degraded: tuple[bool, ...]
    takes: tuple[bool, ...]
    """The neighbors that may get work from a cluster that is well: they accept and do it or have it
    done well, or take a probe."""
    takes_unkeyed: tuple[bool, ...]
    """The same for work that must not run twice: a place that may lose it is tried with that only
    if no other has come."""
    ranks: tuple[float, ...]
    """The rank of each neighbor as a place for work: the lower the better."""
    best: float
    """The lowest rank of the neighbors that accept; infinity if none does."""
    limits_bytes: tuple[float, ...] | None = None
    """The size from which on each neighbor loses requests; None where none does."""
    serves: tuple[bool, ...] | None = None
    """The neighbors that serve the group of types; None where there is one, which all serve."""

    def as_good_as(self, own: float) -> tuple[bool, ...]:
        """Returns which neighbors may be given work by a cluster of the rank `own`, which is not
        well: the best of those that accept, unless the cluster is better itself."""
        limit = min(own, self.best) + SAME
        ranked = zip(self.accepting, self.ranks, strict=True)
        return tuple([accepts and rank <= limit for accepts, rank in ranked])


@dataclass(slots=True)
class NeighborView:
    """One row of /state: the beliefs about a neighbor, and their age."""

    handle: int
    id: ClusterId
    delay_s: float
    way_s: float
    accept_probability: float
    neighborhood_accept_probability: float
    queue_length: int
    age_s: float | None
    alive: bool
    degraded: bool = False
    avoided: bool = False
    missed: int = 0
    ahead: int = 0
    load: float = 0.0
    load_age_s: float | None = None
