"""What the lease demo shows while it runs: progress bars, who holds what, and the closing table.

All of it goes to stderr. Where that is no terminal, a line now and then takes their place.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from spillover.tools.demo.leases.model import LeaseDemoResult
from spillover.tools.demo.leases.plan import LeasePlan
from spillover_loadgen.terminal import open_console, say, table_of

REFRESH_PER_S = 8
LINE_EVERY_S = 5.0
HELD_BAR_WIDTH = 32
EVENTS_SHOWN = 10
COLORS = ("dodger_blue1", "dark_orange", "green3", "orchid", "gold3", "cyan3", "red3", "purple")
STATE_STYLES = {"running": "green", "frozen": "cyan", "killed": "red", "ended": "red"}


@dataclass(frozen=True, slots=True)
class View:
    """The state of the demo at one moment."""

    at_s: float
    """Since the members were started."""
    written: int
    applied: int
    rate_per_s: float
    members: list[tuple[str, str, int]]
    """Name, state, streams held."""
    owners: list[str | None]
    """By stream."""


class LeaseDisplay:
    """On a terminal or as lines."""

    def __init__(self) -> None:
        self.console = open_console()
        self._live: Live | None = None
        self._table: _LiveTable | None = None
        self._plan: LeasePlan | None = None
        self._next_line_s = 0.0

    def say(self, line: str) -> None:
        say(self.console, line)

    @contextmanager
    def filling(self, records: int) -> Iterator[Callable[[int], None]]:
        """Shows how records are written: what is given is called with how many are."""
        title = f"writing {records} records"
        if not self.console.is_terminal:
            _print_line(f"{title} ...")
            yield lambda _: None
            return
        with _progress(self.console) as progress:
            task = progress.add_task(title, total=records)
            yield lambda written: progress.update(task, completed=written)

    @contextmanager
    def run(self, plan: LeasePlan) -> Iterator[None]:
        """Shows the members while they run."""
        self._plan, self._next_line_s = plan, 0.0
        if not self.console.is_terminal:
            yield
            return
        with Live(console=self.console, refresh_per_second=REFRESH_PER_S) as live:
            self._live, self._table = live, _LiveTable(plan, self.console)
            try:
                yield
            finally:
                self._live = None

    def tell(self, at_s: float, words: str) -> None:
        """Tells that something has happened, so long after the members were started."""
        if self._live is not None and self._table is not None:
            self._table.events.append(f"{at_s:5.1f} s  {words}")
        else:
            _print_line(f"{at_s:5.1f} s  {words}")

    def show(self, view: View) -> None:
        if self._live is not None and self._table is not None:
            self._live.update(self._table.draw(view))
        elif self._plan is not None and view.at_s >= self._next_line_s:
            self._next_line_s = view.at_s + LINE_EVERY_S
            held = " ".join(f"{node}:{count}" for node, _, count in view.members)
            done = f"{view.applied} of {self._plan.records} applied"
            _print_line(f"{view.at_s:5.1f} s  {done}, {view.rate_per_s:.0f}/s, held {held}")


class _LiveTable:
    """Records applied, a row for each member, a block for each stream in its owner's color."""

    def __init__(self, plan: LeasePlan, console: Console) -> None:
        self.events: list[str] = []
        self._plan = plan
        self._progress = _progress(console)
        self._task: TaskID = self._progress.add_task("records applied", total=plan.records)
        self._colors: dict[str, str] = {}

    def draw(self, view: View) -> Group:
        self._progress.update(self._task, completed=view.applied)
        about = Text(
            f"{view.at_s:5.1f} s  {view.rate_per_s:,.0f} records/s applied, "
            f"{view.written - view.applied:,} waiting",
            style="dim",
        )
        events = Text("\n".join(self.events[-EVENTS_SHOWN:]), style="dim")
        return Group(self._progress, about, self._members(view), self._streams(view), events)

    def _members(self, view: View) -> Table:
        table = Table(box=None, header_style="dim")
        for title in ("member", "state", "held"):
            table.add_column(title, justify="right" if title == "held" else "left", min_width=7)
        table.add_column("", min_width=HELD_BAR_WIDTH)
        for node, state, held in view.members:
            bar = "█" * round(HELD_BAR_WIDTH * held / self._plan.streams)
            color = self._color(node)
            told = Text(state, style=STATE_STYLES.get(state, ""))
            table.add_row(Text(node, style=color), told, str(held), Text(bar, style=color))
        return table

    def _streams(self, view: View) -> Text:
        strip = Text(" streams ", style="dim")
        for owner in view.owners:
            strip.append(
                "·" if owner is None else "■", style=self._color(owner) if owner else "red"
            )
        return strip

    def _color(self, node: str) -> str:
        return self._colors.setdefault(node, COLORS[len(self._colors) % len(COLORS)])


def closing_table(result: LeaseDemoResult) -> Table:
    """Returns what came of each disturbance."""
    table = table_of(
        "event",
        ("streams moved", "stood still, longest", "median", "nothing applied, longest"),
        title="What each disturbance cost", title_justify="left", header_style="bold",
    )  # fmt: skip
    for name, told in result.standstill_rows():
        table.add_row(name, *told)
    return table


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
        console=console,
    )


def _print_line(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
