"""What the demo shows while it runs: a progress bar and a live table; and the closing table.

All of it goes to stderr. Where that is no terminal, a line now and then takes their place.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from spillover.commandline.terminal import open_console, say
from spillover_lab.demo.result import SPEEDUP_FIELDS, DemoResult, Summary, speedups
from spillover_lab.report.formats import factor, milliseconds

QUEUE_BAR_WIDTH = 40
REFRESH_PER_S = 5
LINE_EVERY_S = 5.0


class Display:
    """The progress of one run after the other, on a terminal or as lines."""

    def __init__(self) -> None:
        self.console = open_console()

    def say(self, line: str) -> None:
        say(self.console, line)

    @contextmanager
    def run(self, title: str, duration_s: float) -> Iterator[LineDisplay | TableDisplay]:
        if not self.console.is_terminal:
            yield LineDisplay(title, duration_s)
            return
        progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f} of {task.total:.0f} s"),
            TimeRemainingColumn(),
            console=self.console,
        )
        task = progress.add_task(title, total=duration_s)
        with Live(console=self.console, refresh_per_second=REFRESH_PER_S) as live:
            yield TableDisplay(live, progress, task)


class LineDisplay:
    """A line every few seconds, for logs."""

    def __init__(self, title: str, duration_s: float) -> None:
        self._title = title
        self._duration_s = duration_s
        self._next_s = 0.0

    def show(self, time_s: float, states: Mapping[str, dict[str, Any]]) -> None:
        if time_s < self._next_s:
            return
        self._next_s = time_s + LINE_EVERY_S
        lengths = " ".join(f"{c}:{state['queue_length']}" for c, state in states.items())
        done_s = min(time_s, self._duration_s)
        line = f"{self._title}: {done_s:.0f} of {self._duration_s:.0f} s, queues {lengths}"
        print(line, file=sys.stderr, flush=True)  # noqa: T201 - a line for logs


class TableDisplay:
    """A progress bar above a table with a row for each cluster."""

    def __init__(self, live: Live, progress: Progress, task: TaskID) -> None:
        self._live = live
        self._progress = progress
        self._task = task
        self._longest = 10

    def show(self, time_s: float, states: Mapping[str, dict[str, Any]]) -> None:
        self._progress.update(self._task, completed=max(0.0, time_s))
        self._live.update(Group(self._progress, self._table(states)))

    def _table(self, states: Mapping[str, dict[str, Any]]) -> Table:
        lengths = [state["queue_length"] for state in states.values()]
        self._longest = max(self._longest, *lengths)
        table = Table(box=None, header_style="dim")
        for title in ("cluster", "busy", "N", "P", "R", "forwards"):
            table.add_column(title, justify="left" if title == "cluster" else "right", min_width=5)
        table.add_column("queue", min_width=QUEUE_BAR_WIDTH)
        for cluster, state in states.items():
            length = state["queue_length"]
            bar = "█" * round(QUEUE_BAR_WIDTH * length / self._longest)
            table.add_row(
                cluster,
                f"{state['busy']}/{state['servers']}",
                str(length),
                f"{state['accept_probability']:.2f}",
                f"{state['neighborhood_accept_probability']:.2f}",
                str(state["forwards"]),
                f"[red]{bar}[/]",
            )
        return table


def closing_table(result: DemoResult) -> Table:
    """Returns figure 7 as a table: system times by user population, simulated values below them."""
    table = Table(
        title="System times in ms: isolated → networked, speed-up; below, as simulated",
        title_justify="left",
        header_style="bold",
        show_lines=True,
        padding=(0, 0, 0, 1),
    )
    table.add_column("users", no_wrap=True, min_width=5)
    for field in SPEEDUP_FIELDS:
        table.add_column(field, justify="right", no_wrap=True)
    for population in (*result.topology.cluster_ids, None):
        live, simulated = result.times_of(population), result.simulated_times_of(population)
        cells = [
            f"{_comparison(*live, field)}\n[dim]{_comparison(*simulated, field)}[/]"
            for field in SPEEDUP_FIELDS
        ]
        name, style = (population, None) if population is not None else ("all", "bold")
        table.add_row(name, *cells, style=style)
    return table


def _comparison(isolated: Summary, networked: Summary, field: str) -> str:
    times = f"{milliseconds(isolated.get(field))}→{milliseconds(networked.get(field))}"
    return f"{times} {factor(speedups(isolated, networked)[field])}"
