"""What a lease demo gave, as plain values: the input of the report and of the JSON object.

Instants are wall-clock seconds. Nothing is drawn or decided here.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

from spillover.tools.demo.leases.checking import StreamCheck
from spillover.tools.demo.leases.late_writes import LateWrites
from spillover.tools.demo.leases.ownership import START, Mark, OwnershipStory
from spillover.tools.demo.leases.plan import FROZEN, JOINED, KILLED, RESUMED, LeasePlan
from spillover.tools.demo.leases.watching import Look
from spillover.tools.report.formats import duration

TOLD_CAUSES = (KILLED, FROZEN, RESUMED, JOINED)
"""Of standstills: what the demo has brought about."""


@dataclass(frozen=True, slots=True)
class MemberResult:
    """One member, as far as it told."""

    node: str
    fate: str
    """`stayed`, or what was done to it."""
    acquired: int
    """Streams that it got, one after another."""
    held_max: int
    fenced: int
    """Leases that it gave up because they were over, or another one's."""
    late_renewals: int


@dataclass(frozen=True, slots=True)
class LeaseDemoResult:
    """All of it."""

    plan: LeasePlan
    group: str
    redis_version: str
    began_s: float
    """When the members were started."""
    settled_s: float
    """When they had shared the streams out."""
    ended_s: float
    """When they were told to leave: all records had been applied."""
    applied_s: float
    """When the last record was seen to have been applied."""
    marks: list[Mark]
    story: OwnershipStory
    """Up to `ended_s`."""
    looks: list[Look]
    checks: list[StreamCheck]
    late_writes: LateWrites
    members: list[MemberResult]
    phases_s: dict[str, float]
    """What took how long, in order."""
    finished_at: str

    @property
    def records(self) -> int:
        """Returns how many records lie in the streams."""
        return sum(one.records for one in self.checks)

    @property
    def applied(self) -> int:
        return sum(one.applied for one in self.checks)

    @property
    def duplicates(self) -> int:
        return sum(one.duplicates for one in self.checks)

    @property
    def missing(self) -> int:
        return sum(one.missing for one in self.checks)

    @property
    def moves(self) -> int:
        """Returns how often owners changed since all had their share."""
        return sum(self.story.moves.values()) - self.story.moves[START]

    @property
    def records_per_s(self) -> float:
        """Returns the rate from the start of the members to the last record, standstills
        included."""
        return self.applied / max(self.applied_s - self.began_s, 1e-3)

    @property
    def problems(self) -> list[str]:
        """Returns what contradicts exactly once; empty if nothing does."""
        found = [one.problem for one in self.checks if one.problem]
        if self.records != self.plan.records:
            found.append(f"{self.records} records lie in the streams, {self.plan.records} written")
        if self.late_writes.accepted:
            late = self.late_writes
            found.append(f"the sink took {late.accepted} of {late.tried} writes that came too late")
        return found

    def standstills_ms(self, cause: str) -> dict[str, float | int | None]:
        """Returns, of one cause: the longest, the median, how many; and the longest time without an
        applied record around one."""
        found = self.story.of_cause(cause)
        lengths_ms = [_ms(one.length_s) for one in found]
        gaps_ms = [_ms(one.applied_gap_s) for one in found if one.applied_gap_s is not None]
        return {
            "max": max(lengths_ms, default=None),
            "median": round(median(lengths_ms), 1) if lengths_ms else None,
            "count": len(found),
            "applied_gap_max": max(gaps_ms, default=None),
        }

    def standstill_rows(self) -> list[tuple[str, list[str]]]:
        """Returns, in words and by cause: what happened, the number of streams that moved, and
        three times."""
        rows = []
        for cause in TOLD_CAUSES:
            told = self.standstills_ms(cause)
            names = [f"{mark.node} {cause}" for mark in self.marks if mark.kind == cause]
            lengths = [duration(told[field]) for field in ("max", "median", "applied_gap_max")]
            rows.append(((names or [cause])[0], [str(told["count"]), *lengths]))
        return rows

    def told_end(self) -> list[str]:
        """Returns the verdict, in lines: for people."""
        late = self.late_writes
        counts = f"{self.applied:,} times applied, {self.duplicates} again, {self.missing} missing"
        refused = f"The sink refused {late.refused} of {late.tried} writes of former holders"
        lines = [
            f"{self.records:,} records: {counts}; {self.records_per_s:,.0f}/s with standstills.",
            f"{refused} that came after others had taken over.",
        ]
        if self.problems:
            lines.append(f"NOT EXACTLY ONCE, which is a bug in Spillover: {self.problems[0]}")
            lines += self.problems[1:]
        else:
            lines.append(
                f"Each record was applied exactly once, in all {self.plan.streams} streams."
            )
        return lines

    def as_json(self, report: str) -> dict[str, Any]:
        """Returns the object that `--json` prints."""
        return {
            "records": self.records,
            "applied": self.applied,
            "duplicates": self.duplicates,
            "missing": self.missing,
            "exactly_once": not self.problems,
            "fenced_writes": self.late_writes.refused,
            "late_writes": self.late_writes.tried,
            "members": [
                {
                    "node": one.node,
                    "fate": one.fate,
                    "acquired": one.acquired,
                    "held_max": one.held_max,
                    "fenced": one.fenced,
                    "late_renewals": one.late_renewals,
                }
                for one in self.members
            ],
            "moves": self.moves,
            "moves_fewest": self.story.fewest_moves,
            "moves_by_cause": self.story.moves,
            "standstill_ms": {cause: self.standstills_ms(cause) for cause in TOLD_CAUSES},
            "records_per_s": round(self.records_per_s, 1),
            "phases_s": {name: round(length, 3) for name, length in self.phases_s.items()},
            "streams": self.plan.streams,
            "seed": self.plan.seed,
            "max_lease_ms": self.plan.max_lease_ms,
            "group": self.group,
            "redis_version": self.redis_version,
            "report": report,
        }


def _ms(length_s: float) -> float:
    return round(length_s * 1000.0, 1)
