"""Where the commands print tables and sentences: a terminal, or a file or pipe of any width.

What is printed is not known here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

WIDE = 1000
"""Columns where nobody looks: in a file or a pipe a row shall be one line."""


def open_console(*, stderr: bool = True) -> Console:
    """For stderr, or for the results that belong on stdout. COLUMNS is honored."""
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
    """With every word of it: where the terminal is too narrow it wraps lines, and cuts none."""
    least = Measurement.get(console, console.options.update(max_width=WIDE), table).minimum
    console.width = max(console.width, least)
    console.print(table)


def say(console: Console, sentence: str, style: str | None = None) -> None:
    """One line as it is, however long: what names hold is no markup."""
    console.print(sentence, style=style, highlight=False, markup=False, soft_wrap=True)


def listed(counts: Mapping[Any, Any]) -> str:
    """Such as `0: 630, 1: 12`."""
    return ", ".join(f"{name}: {count}" for name, count in counts.items())
