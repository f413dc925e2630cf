"""Bars on stderr show the progress of a model, only where that is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from rich.progress import Progress

from spillover.commandline.terminal import open_console

OnProgress: TypeAlias = Callable[[float], None] | None
"""A function on_progress(done) that takes how much of the total is done, or None where nobody
looks."""


@contextmanager
def progress_bar(name: str, total: float) -> Iterator[OnProgress]:
    """Show one bar, up to `total`."""
    with progress_bars([name], total) as bar_of:
        yield bar_of(name)


@contextmanager
def progress_bars(names: Sequence[str], total: float) -> Iterator[Callable[[str], OnProgress]]:
    """Show a bar for each name, each up to `total`; the function given returns by name how to move
    it."""
    console = open_console()
    if not console.is_terminal:
        yield lambda _: None
        return
    with Progress(console=console, transient=True) as progress:
        tasks = {name: progress.add_task(name, total=total) for name in names}

        def bar_of(name: str) -> OnProgress:
            return lambda done: progress.update(tasks[name], completed=done)

        yield bar_of
