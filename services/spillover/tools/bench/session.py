"""A benchmark under way: which cases are wanted, sides run in turn, rows and notes collected.

Knows nothing of what is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from spillover.model.errors import InputError, RunError
from spillover.tools.bench.model import BenchPlan, Figure, Row, Side, Stage, Value


class Session:
    """Collects what the stages find. `say` gets each line of progress."""

    def __init__(self, plan: BenchPlan, say: Callable[[str], None]) -> None:
        self.plan = plan
        self.say = say
        self.rows: list[Row] = []
        self.notes: list[str] = []
        self.details: list[dict[str, Any]] = []
        """What is behind the rows, for whoever reads the JSON."""

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
        """Run all sides, `plan.runs` times, and note a row for each wanted figure and peer.

        In a run each side has `turns` turns, and its values are those of all of them together: the
        shorter a turn, the more alike the machine is to all sides. The order is turned round on
        every other one: who goes first may find it harder.
        """
        sides = (ours, *peers)
        taken: list[list[Sequence[Value]]] = [[] for _ in sides]
        for run in range(self.plan.runs):
            self.say_run(figures[0].case, run)
            for turn in range(run * turns, (run + 1) * turns):
                order = list(zip(sides, taken, strict=True))
                for side, runs in reversed(order) if turn % 2 else order:
                    runs.append(await side.measure())
        runs_of = [
            _runs_of(turns, values, side.name) for side, values in zip(sides, taken, strict=True)
        ]
        for index, figure in enumerate(figures):
            if not self.wants(figure.case):
                continue
            columns = [tuple(float(run[index]) for run in runs) for runs in runs_of]
            if not peers:
                self.add(Row(case=figure.case, unit=figure.unit, values=columns[0]))
            for peer, column in zip(peers, columns[1:], strict=True):
                self.add(
                    Row(
                        case=figure.case,
                        unit=figure.unit,
                        values=columns[0],
                        peer=peer.name,
                        peer_values=column,
                    )
                )

    def say_run(self, case: str, run: int) -> None:
        """Tell that a run begins; the first is 0."""
        self.say(f"{case}: run {run + 1} of {self.plan.runs}")

    def add(self, row: Row) -> None:
        self.rows.append(row)

    def note(self, line: str) -> None:
        """Keep a line for the end, and for whoever reads the JSON."""
        if line not in self.notes:
            self.notes.append(line)


def _runs_of(turns: int, values: list[Sequence[Value]], name: str) -> list[Sequence[float]]:
    """Of each figure, over as many turns as a run has."""
    runs = (values[at : at + turns] for at in range(0, len(values), turns))
    return [[_over(figure, name) for figure in zip(*run, strict=True)] for run in runs]


def _over(values: Sequence[Value], name: str) -> float:
    parts = [value if isinstance(value, tuple) else (value, 1.0) for value in values]
    of = sum(part[1] for part in parts)
    if of <= 0:
        raise RunError(f"{name}: nothing that the system counted was used")
    return sum(part[0] for part in parts) / of
