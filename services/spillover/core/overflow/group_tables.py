"""The tables of neighbors of a cluster in a federation of several groups of types: one for each
group, and one for what is the same for all groups, which passes all news on to the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from spillover.core.overflow.knowledge import Knowledge
from spillover.core.overflow.neighbor import Neighbor
from spillover.core.overflow.neighbors import Neighbors
from spillover.model.ids import ClusterId
from spillover.model.load import LoadReport
from spillover.model.type_groups import TypeGroup


class GroupNeighbors(Neighbors):
    """The table of neighbors for one group. A neighbor that does not serve the group accepts
    nothing of it."""

    def __init__(self, group: TypeGroup, *told: Any) -> None:
        self._group = group
        super().__init__(*told)

    def join(self, cluster: ClusterId, delay_s: float) -> int:
        handle = super().join(cluster, delay_s)
        self.by_handle[handle].serves = cluster in self._group.served_by
        return handle

    def knowledge(self) -> Knowledge:
        if self.known_now is None:
            serves = tuple([row.serves for row in self])
            self.known_now = replace(super().knowledge(), serves=serves)
        return self.known_now

    def heard(self, handle: int, report: LoadReport | None, now_s: float) -> bool:
        if report is not None and (row := self.by_handle.get(handle)) is not None:
            report = self._part(row, report)
        return super().heard(handle, report, now_s)

    def _part(self, row: Neighbor, report: LoadReport) -> LoadReport:
        group = self._group
        for told in report.groups:
            if told.id == group.id:
                row.serves = True
                return replace(
                    report,
                    accept_probability=told.accept_probability,
                    neighborhood_accept_probability=told.neighborhood_accept_probability,
                    queue_length=max(0, told.ahead),
                    servers=told.servers,
                    accepting=told.accepting,
                    ahead=told.ahead,
                    load=told.load,
                    departure_s=told.departure_s,
                    residual=told.residual,
                    groups=(),
                )
        # A neighbor that tells of no named group is plain: its report holds for all of them.
        row.serves = row.id in group.served_by and not (group.id and report.groups)
        if row.serves:
            return report
        return replace(
            report,
            accept_probability=0.0,
            neighborhood_accept_probability=0.0,
            accepting=False,
            ahead=None,
            groups=(),
        )


class FederationNeighbors(Neighbors):
    """The table of neighbors as a whole: which there are, which live, and what each tells of
    itself. It passes all news on to the tables of the groups."""

    def __init__(self, parts: Sequence[Neighbors], *told: Any) -> None:
        self._parts: Sequence[Neighbors] = ()  # they have the neighbors of the start
        super().__init__(*told)
        self._parts = parts
        for part in parts:
            for handle, row in part.by_handle.items():
                row.there, row.sizes = self.by_handle[handle].there, self.by_handle[handle].sizes

    def join(self, cluster: ClusterId, delay_s: float) -> int:
        handles = [part.join(cluster, delay_s) for part in self._parts]
        handle = super().join(cluster, delay_s)
        there, sizes = self.by_handle[handle].there, self.by_handle[handle].sizes
        for part, own in zip(self._parts, handles, strict=True):
            part.by_handle[own].there, part.by_handle[own].sizes = there, sizes
        return handle

    def leave(self, handle: int) -> bool:
        for part in self._parts:
            part.leave(handle)
        return super().leave(handle)

    def part(self, handle: int, *, parting: bool) -> None:
        for part in self._parts:
            part.part(handle, parting=parting)
        super().part(handle, parting=parting)

    def use_delay(self, handle: int, delay_s: float) -> None:
        for part in self._parts:
            part.use_delay(handle, delay_s)
        super().use_delay(handle, delay_s)

    def hold_back(self, handle: int, held_back: bool) -> None:  # noqa: FBT001
        for part in self._parts:
            part.hold_back(handle, held_back)
        super().hold_back(handle, held_back)

    def heard(self, handle: int, report: LoadReport | None, now_s: float) -> bool:
        for part in self._parts:
            part.heard(handle, report, now_s)
        return super().heard(handle, report, now_s)

    def took(self, neighbor: Neighbor, way_s: float) -> None:
        for part in self._parts:
            if (row := part.by_handle.get(neighbor.handle)) is not None:
                part.took(row, way_s)
        super().took(neighbor, way_s)

    def judged(self, neighbor: Neighbor, now_s: float) -> None:
        for part in self._parts:
            if (row := part.by_handle.get(neighbor.handle)) is not None:
                part.judged(row, now_s)
        super().judged(neighbor, now_s)

    def lost(self, handle: int) -> bool:
        for part in self._parts:
            part.lost(handle)
        return super().lost(handle)

    def expire(self, now_s: float) -> list[int]:
        for part in self._parts:
            part.expire(now_s)
        return super().expire(now_s)

    def excuse(self, late_s: float) -> None:
        for part in self._parts:
            part.excuse(late_s)
        super().excuse(late_s)

    def check(self) -> None:
        super().check()
        for part in self._parts:
            part.check()
            assert [*part.by_handle] == [*self.by_handle]
            assert part.ids == self.ids
            assert part.known == self.known, "alive for one group and not for another"
