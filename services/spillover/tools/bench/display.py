"""What a benchmark shows people: lines while it runs, a table at the end. All of it on stderr."""

from __future__ import annotations

from rich.table import Table

from spillover.tools.bench.model import BenchResult
from spillover_loadgen.terminal import open_console, say

MISSING = "\N{EN DASH}"


def number(value: float | None) -> str:
    """Returns a number with about three digits, thousands apart; a dash for None."""
    if value is None:
        return MISSING
    decimals = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{decimals}f}".replace(",", " ")


class Display:
    """Lines and the closing table, on stderr."""

    def __init__(self) -> None:
        self.console = open_console()

    def say(self, line: str) -> None:
        say(self.console, line, style="dim")

    def show(self, result: BenchResult) -> None:
        machine = result.machine
        self.console.print(_table(result))
        say(
            self.console,
            f"On {machine['cpu']}, {machine['cores']} cores, {machine['system']}, "
            f"Python {machine['python']}; load when it began {machine['load_1min']}.",
        )
        for note in result.notes:
            say(self.console, note)


def _table(result: BenchResult) -> Table:
    runs = result.plan.runs
    what = f"medians of {runs} runs" if runs > 1 else "one run"
    table = Table(title=f"bench {result.name}: {what}", title_justify="left", header_style="bold")
    for title in ("case", "value", "unit", "peer", "its value", "ratio"):
        right = title in ("value", "its value", "ratio")
        table.add_column(title, justify="right" if right else "left", no_wrap=right)
    for row in result.rows:
        ratio = MISSING if row.ratio is None else f"{row.ratio:.2f}"
        peer_value = _with(row.peer_half_width, number(row.peer_value))
        cells = (row.unit, row.peer or MISSING, peer_value, ratio)
        table.add_row(row.case, _with(row.half_width, number(row.value)), *cells)
    return table


def _with(half_width: float | None, value: str) -> str:
    return f"{value} \N{PLUS-MINUS SIGN} {number(half_width)}" if half_width else value
