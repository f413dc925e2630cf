"""Groups of types: those that may join the same classes in every cluster (decision 0038). A report
on one type of a group holds for all of them, so that neighbors report groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spillover.model.errors import InputError
from spillover.model.ids import ClusterId
from spillover.model.unlike_servers import UnlikeServers

GROUPS_MAX = 64
"""The most groups of a federation: each report names them all."""


@dataclass(frozen=True, slots=True)
class TypeGroup:
    """Types that are alike in every cluster. `id` is the first of them, by name."""

    id: str
    types: tuple[str, ...]
    served_by: frozenset[ClusterId]
    """The clusters that serve them, those with plain servers among them."""


@dataclass(frozen=True, slots=True)
class TypeGroups:
    """The groups of one federation; one of plain clusters has none, and serves every type
    everywhere."""

    groups: tuple[TypeGroup, ...]
    plain: frozenset[ClusterId]
    """Clusters with plain servers: they serve every type, one that no pool names too."""
    _places: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        places = {kind: index for index, one in enumerate(self.groups) for kind in one.types}
        object.__setattr__(self, "_places", places)

    @classmethod
    def of(cls, pools: Mapping[ClusterId, UnlikeServers | None]) -> TypeGroups:
        """Returns those of clusters with these pools, None being plain servers.

        Raises InputError where they are more than GROUPS_MAX.
        """
        joined: dict[str, dict[ClusterId, frozenset[str]]] = {}
        for cluster, pool in pools.items():
            for kind in () if pool is None else pool.types:
                joined.setdefault(kind.id, {})[cluster] = frozenset(kind.classes)
        alike: dict[frozenset[tuple[ClusterId, frozenset[str]]], list[str]] = {}
        for kind_id in sorted(joined):
            alike.setdefault(frozenset(joined[kind_id].items()), []).append(kind_id)
        if len(alike) > GROUPS_MAX:
            expected = f"expected at most {GROUPS_MAX} groups of types with the same classes"
            raise InputError("topology", "clusters", f"{expected}, got {len(alike)}")
        plain = frozenset(cluster for cluster, pool in pools.items() if pool is None)
        groups = tuple(
            TypeGroup(types[0], tuple(types), plain | {cluster for cluster, _ in where})
            for where, types in alike.items()
        )
        return cls(groups, plain)

    def index_of(self, kind: str) -> int | None:
        """Returns the place of the type's group in `groups`; None where no pool names it."""
        return self._places.get(kind)

    def reached_from(self, cluster: ClusterId, neighbors: Sequence[ClusterId]) -> tuple[str, ...]:
        """Returns the named types that a cluster or one of its neighbors serves."""
        near = {cluster, *neighbors}
        return tuple(
            kind for group in self.groups if near & group.served_by for kind in group.types
        )
