"""The values of a benchmark: what is to be run, what a stage of it is, and the rows that come out.

Their arithmetic is here; running, and showing them, is not.
"""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from spillover.tools.bench.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlan:
    """How a benchmark is run."""

    runs: int = 5
    """Of each side; what is shown are medians."""
    seed: int = 1
    case: str = ""
    """Run only the cases whose name contains this."""
    quick: bool = False
    """Shorter runs of fewer requests: to see that it works, not to quote."""
    policies: tuple[str, ...] | None = None
    """Overflow policies that are measured in turn; None for the benchmark's own."""
    duration_s: float | None = None
    """Of each schedule; None for the benchmark's own lengths."""
    replicas: int | None = None
    """Of what is measured, side by side; None for as many as the machine allows."""
    report: Path | None = None
    """Where a page on it is to be; None for no page."""

    def of(self, full: float, quick: float) -> float:
        """Returns the one of two lengths that this plan takes."""
        return quick if self.quick else full


@dataclass(frozen=True, slots=True)
class Stage:
    """Cases that share their processes. `run` is called if any of them is wanted."""

    cases: tuple[str, ...]
    run: Callable[[Session], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Figure:
    """One number that a side gives on each run."""

    case: str
    unit: str


Value: TypeAlias = float | tuple[float, float]
"""Of one turn: a value, or an amount and what it was got for, which are added up over the turns of
a run before one is divided by the other."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of those compared. `measure` is one turn: a value for each figure."""

    name: str
    measure: Callable[[], Awaitable[Sequence[Value]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A median of ours beside a median of one peer; without a peer there is only ours."""

    case: str
    unit: str
    values: tuple[float, ...]
    """Ours, run by run."""
    peer: str | None = None
    peer_values: tuple[float, ...] = ()
    paired: bool = False
    """Whether both had the same load in each run: then runs are compared one by one."""
    half_width: float | None = None
    """Of the 95 % interval of ours, where it is known."""
    peer_half_width: float | None = None

    @property
    def value(self) -> float:
        return statistics.median(self.values)

    @property
    def peer_value(self) -> float | None:
        return statistics.median(self.peer_values) if self.peer_values else None

    @property
    def ratio(self) -> float | None:
        """Returns ours to the peer's: of the two medians shown, or the median of the ratios of
        paired runs. None without a peer, or where its value is not above 0, as small differences
        may come out."""
        if self.paired:
            pairs = zip(self.values, self.peer_values, strict=True)
            ratios = [ours / theirs for ours, theirs in pairs if theirs > 0]
            return statistics.median(ratios) if ratios else None
        peer_value = self.peer_value
        return self.value / peer_value if peer_value is not None and peer_value > 0 else None

    def as_dict(self) -> dict[str, Any]:
        """Returns the row of contract section 3, the single runs behind it, and the intervals if
        they are known."""
        row = {
            "case": self.case,
            "value": self.value,
            "unit": self.unit,
            "runs": len(self.values),
            "peer": self.peer,
            "peer_value": self.peer_value,
            "ratio": self.ratio,
            "values": list(self.values),
            "peer_values": list(self.peer_values),
        }
        if self.half_width is not None:
            row |= {"half_width": self.half_width, "peer_half_width": self.peer_half_width}
        return row


@dataclass(frozen=True, slots=True)
class BenchResult:
    """All of one benchmark."""

    name: str
    plan: BenchPlan
    machine: dict[str, Any]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    """What a reader of the rows must know, such as a peer that is not installed."""
    details: tuple[dict[str, Any], ...] = ()
    """What is behind the rows, where they are not all."""

    def as_dict(self) -> dict[str, Any]:
        """Returns the object of contract section 3."""
        report = None if self.plan.report is None else str(self.plan.report)
        told = {
            "name": self.name,
            "machine": self.machine,
            "rows": [row.as_dict() for row in self.rows],
            "notes": list(self.notes),
            "plan": asdict(self.plan) | {"report": report},
        }
        return told | {"details": list(self.details)} if self.details else told
