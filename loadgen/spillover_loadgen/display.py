"""What a run looks like in a terminal: the progress bar and the table of results, on stderr.

Formats values that others have computed; decides and computes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from spillover.commandline.terminal import open_console, say, table_of
from spillover_loadgen.record import Outcome


@contextmanager
def progress_bar() -> Iterator[Callable[[int, int, int], None] | None]:
    """Yields what tells the bar the numbers sent, done and in total; None without a terminal."""
    console = open_console()
    if not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("sent {task.completed:.0f} of {task.total:.0f}"),
        BarColumn(),
        TextColumn("waiting {task.fields[waiting]}"),
        TimeElapsedColumn(),
    )
    # Drawn when told to, not by a thread of its own: that would delay the sending.
    with Progress(*columns, console=console, auto_refresh=False, transient=True) as bar:
        task = bar.add_task("", total=0, waiting=0)

        def tell(sent: int, done: int, total: int) -> None:
            bar.update(task, completed=sent, total=total, waiting=sent - done, refresh=True)

        yield tell


def print_summary(result: dict[str, Any]) -> None:
    """The result of a run as a table, a row for each home, each type and all, and its reasons."""
    figures = ("sent", "ok", "not ok", "mean", "p50", "p99", "max", "std", "forwarded")
    title = f"system time in ms by home (seed {result['seed']})"
    table = table_of("home", figures, title=title)
    for cluster, figures in result["per_cluster"].items():
        table.add_row(cluster, *_cells(figures))
    table.add_section()
    for kind, figures in result.get("per_type", {}).items():
        table.add_row(f"type {kind}", *_cells(figures))
    table.add_section()
    table.add_row("all", *_cells(result))
    console = open_console()
    console.print(table)
    for reason, count in result["reasons"].items():
        say(console, f"{count} not ok: {reason}")


def _cells(figures: dict[str, Any]) -> list[str]:
    ok = figures["outcomes"][Outcome.OK]
    times = figures["system_time_ms"]
    share = figures["forwarded_share"]
    return [
        str(figures["sent"]),
        str(ok),
        str(figures["sent"] - ok),
        *(_milliseconds(times[name]) for name in ("mean", "p50", "p99", "max", "std")),
        "-" if share is None else f"{share:.1%}",
    ]


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
