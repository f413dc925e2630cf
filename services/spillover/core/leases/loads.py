"""What a holder makes of the work that its handlers report: each partition's load.

A load is work per normal lease time, smoothed, and told to the group anew only when it has changed
by more than what noise does (`policy.leases`). Who takes a partition over begins with what was
told of it last, so that a move changes no load. One whose handler reports nothing counts for the
least.

Who may take what because of loads is decided elsewhere; how they are stored is in
`core.leases.records`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spillover.core.leases.agenda import MemberAgenda
from spillover.core.leases.holdings import Holdings
from spillover.core.leases.records import LOAD_UNIT, LoadStanding, stored_load
from spillover.policy.leases import LOAD_LEAST, smoothed_load, told_load

MEASURED_PERIODS_MIN = 0.5
"""A rate is taken over no less than this: surveys may follow each other closely."""

SILENT_PERIODS = 2.0
"""A handler that has just begun may take so long to report for the first time; up to then what was
told of the partition before stands."""


@dataclass(slots=True)
class _Measured:
    """The measured load of one lease, in units of work per normal lease time, None before it is
    known."""

    epoch: int
    started_s: float
    since_s: float
    work: float = 0.0
    smoothed: float | None = None
    told: float | None = None


class OwnLoads:
    """The loads of the partitions that this member serves, by partition."""

    def __init__(self, agenda: MemberAgenda, holdings: Holdings) -> None:
        self._agenda = agenda
        self._holdings = holdings
        self._measured: dict[int, _Measured] = {}
        self._known: dict[int, float] = {}
        """The loads that the group knows, by the last survey."""

    def surveyed(self, loads: LoadStanding) -> None:
        self._known = {partition: load / LOAD_UNIT for partition, load in loads.known.items()}

    def measured(self, work: Sequence[tuple[int, int, float | None]], now_s: float) -> None:
        """Take the work that handlers have reported since they began; see `events.WorkMeasured`."""
        held = self._holdings.held
        self._measured = {p: one for p, one in self._measured.items() if p in held}
        for partition, epoch, total in work:
            one = held.get(partition)
            if one is not None and one.epoch == epoch and not one.stopping:
                self._measure(self._of(partition, epoch, one.started_s), total, now_s)

    def told(self) -> list[tuple[int, int, int]]:
        """Returns what the group is to know: (partition, epoch, load in thousandths)."""
        return [
            (partition, one.epoch, stored_load(one.told))
            for partition, one in self._measured.items()
            if one.told is not None
        ]

    def _of(self, partition: int, epoch: int, started_s: float) -> _Measured:
        one = self._measured.get(partition)
        if one is None or one.epoch != epoch:
            known = self._known.get(partition)
            one = _Measured(epoch, started_s, started_s, smoothed=known, told=known)
            self._measured[partition] = one
        return one

    def _measure(self, one: _Measured, total: float | None, now_s: float) -> None:
        normal_s = self._agenda.normal_s
        periods = (now_s - one.since_s) / normal_s
        if periods < MEASURED_PERIODS_MIN:
            return
        if total is None and now_s - one.started_s < SILENT_PERIODS * normal_s:
            return
        load = max(LOAD_LEAST, ((total or 0.0) - one.work) / periods)
        one.work = total or 0.0
        one.since_s = now_s
        one.smoothed = load if one.smoothed is None else smoothed_load(one.smoothed, load)
        one.told = one.smoothed if one.told is None else told_load(one.told, one.smoothed)
