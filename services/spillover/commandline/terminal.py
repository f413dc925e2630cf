"""Tables and sentences of commands go to a terminal, or to a file or pipe of any width."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

WIDE = 1000
"""Files and pipes are so many columns wide: there a row shall be one line."""


def open_console(*, stderr: bool = True) -> Console:
    """Returns the console of stderr, or of stdout for results. COLUMNS is honored."""
    console = Console(stderr=stderr)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(stderr=stderr, width=WIDE)
    return console


def table_of(names: str, figures: Iterable[str], **look: Any) -> Table:
    """Returns an empty table with a column for names and, to the right, one for each figure."""
    table = Table(**look)
    table.add_column(names)
    for figure in figures:
        table.add_column(figure, justify="right")
    return table


def show_table(console: Console, table: Table) -> None:
    """Print a table with every word of it: where the terminal is too narrow it wraps lines, and
    cuts none."""
    least = Measurement.get(console, console.options.update(max_width=WIDE), table).minimum
    console.width = max(console.width, least)
    console.print(table)


def say(console: Console, sentence: str, style: str | None = None) -> None:
    """Print one line as it is, however long; names in it are no markup."""
    console.print(sentence, style=style, highlight=False, markup=False, soft_wrap=True)


def listed(counts: Mapping[Any, Any]) -> str:
    """Returns a text such as `0: 630, 1: 12`."""
    return ", ".join(f"{name}: {count}" for name, count in counts.items())
