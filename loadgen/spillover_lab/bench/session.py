"""A benchmark under way: what is to be measured, sides run in turn, and the rows that come of it.

Nothing here knows what is measured.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias, TypeVar

from spillover.model.errors import InputError, RunError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlan:
    """How a benchmark is run."""

    runs: int = 5
    """The number of runs of each side; what is shown are medians."""
    seed: int = 1
    case: str = ""
    """Cases are run whose name contains this."""
    quick: bool = False
    """Shorter runs of fewer requests show that it works; they are not for quoting."""
    policies: tuple[str, ...] | None = None
    """Overflow policies that are measured in turn; None for the benchmark's own."""
    duration_s: float | None = None
    """The length of each schedule; None for the benchmark's own lengths."""
    replicas: int | None = None
    """How many copies of what is measured run side by side; None for as many as the machine
    allows."""

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
"""What one turn gives: a value, or an amount and what it was got for. The latter are added up over
the turns of a run before one is divided by the other."""


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
    """Half of the 95 % interval of ours, where it is known."""
    peer_half_width: float | None = None

    @property
    def value(self) -> float:
        return statistics.median(self.values)

    @property
    def peer_value(self) -> float | None:
        return statistics.median(self.peer_values) if self.peer_values else None

    @property
    def ratio(self) -> float | None:
        """Returns ours to the peer's: of the two medians, or the median of the ratios of paired
        runs. None without a peer, or where its value is not above 0."""
        if self.paired:
            pairs = zip(self.values, self.peer_values, strict=True)
            ratios = [ours / theirs for ours, theirs in pairs if theirs > 0]
            return statistics.median(ratios) if ratios else None
        peer_value = self.peer_value
        return self.value / peer_value if peer_value is not None and peer_value > 0 else None

    def as_dict(self) -> dict[str, Any]:
        """Returns the row of the benchmark's JSON: its figures, the single runs behind them, and
        the intervals if they are known."""
        names = ("case", "value", "unit", "peer", "peer_value", "ratio")
        row = {name: getattr(self, name) for name in names} | {"runs": len(self.values)}
        row |= {"values": list(self.values), "peer_values": list(self.peer_values)}
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

    def as_dict(self) -> dict[str, Any]:
        """Returns the object that `spillover bench --json` prints."""
        return {
            "name": self.name,
            "machine": self.machine,
            "rows": [row.as_dict() for row in self.rows],
            "notes": list(self.notes),
            "plan": asdict(self.plan),
        }


class Session:
    """Collects what the stages find. `say` gets each line of progress."""

    def __init__(self, plan: BenchPlan, say: Callable[[str], None]) -> None:
        self.plan = plan
        self.say = say
        self.rows: list[Row] = []
        self.notes: list[str] = []

    def wants(self, *cases: str) -> bool:
        """Returns whether any of these cases is to be run."""
        return any(self.plan.case in case for case in cases)

    async def run(self, stages: Sequence[Stage]) -> None:
        """Run what is wanted of the stages, one after the other.

        Raises InputError if no case is wanted, and what the stages raise.
        """
        names = [case for stage in stages for case in stage.cases]
        if not self.wants(*names):
            expected = f"expected a part of one of: {'; '.join(names)}; got {self.plan.case!r}"
            raise InputError("--case", "", expected)
        for stage in stages:
            if self.wants(*stage.cases):
                await stage.run(self)

    async def compare(
        self, figures: Sequence[Figure], ours: Side, *peers: Side, turns: int = 1
    ) -> None:
        """Run all sides, `plan.runs` times, and add a row for each wanted figure and peer.

        In a run each side has `turns` turns, and its values are those of all of them together: the
        shorter a turn, the more alike the machine is to all sides. The order is turned round on
        every other one: who goes first may find it harder.
        """
        sides = (ours, *peers)
        taken: list[list[Sequence[Value]]] = [[] for _ in sides]
        for run, _ in enumerate(self.seeds(figures[0].case)):
            for turn in range(run * turns, (run + 1) * turns):
                order = list(zip(sides, taken, strict=True))
                for side, runs in reversed(order) if turn % 2 else order:
                    runs.append(await side.measure())
        runs_of = {
            side.name: _runs_of(turns, values, side.name)
            for side, values in zip(sides, taken, strict=True)
        }
        for index, figure in enumerate(figures):
            values = {name: [run[index] for run in runs] for name, runs in runs_of.items()}
            self.add_beside(figure.case, figure.unit, values)

    def add_beside(
        self, case: str, unit: str, values: Mapping[str, Sequence[float]], *, paired: bool = False
    ) -> None:
        """Add a row for the first side beside each of the others, by their values of each run; a
        row of its own if there are no others. Nothing, if the case is not wanted."""
        if not self.wants(case):
            return
        (_, ours), *others = values.items()
        row = Row(case=case, unit=unit, values=tuple(map(float, ours)))
        if not others:
            self.add(row)
        for peer, theirs in others:
            peer_values = tuple(map(float, theirs))
            self.add(replace(row, peer=peer, peer_values=peer_values, paired=paired))

    def seeds(self, case: str) -> Iterator[int]:
        """Yields the seed of each run, and says that it begins."""
        for run in range(self.plan.runs):
            self.say(f"{case}: run {run + 1} of {self.plan.runs}")
            yield self.plan.seed + run

    def add(self, row: Row) -> None:
        self.rows.append(row)

    def note(self, line: str) -> None:
        """Keep a line for the end, and for whoever reads the JSON."""
        if line not in self.notes:
            self.notes.append(line)


async def together(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Returns what they give, which run at the same time. If one fails the others are cancelled."""
    tasks = [asyncio.create_task(one) for one in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _runs_of(turns: int, values: list[Sequence[Value]], name: str) -> list[Sequence[float]]:
    """Returns each figure over as many turns as a run has, run by run."""
    runs = (values[at : at + turns] for at in range(0, len(values), turns))
    return [[_over(figure, name) for figure in zip(*run, strict=True)] for run in runs]


def _over(values: Sequence[Value], name: str) -> float:
    parts = [value if isinstance(value, tuple) else (value, 1.0) for value in values]
    of = sum(part[1] for part in parts)
    if of <= 0:
        raise RunError(f"{name}: nothing that the system counted was used")
    return sum(part[0] for part in parts) / of
