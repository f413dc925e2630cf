"""How far a model is: bars on stderr, only where that is a terminal. Only showing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from rich.progress import Progress

from spillover_loadgen.terminal import open_console

OnProgress: TypeAlias = Callable[[float], None] | None
"""on_progress(done): how much of the total is done; None where nobody looks."""


@contextmanager
def progress_bar(name: str, total: float) -> Iterator[OnProgress]:
    """One bar, up to `total`."""
    with progress_bars([name], total) as bar_of:
        yield bar_of(name)


@contextmanager
def progress_bars(names: Sequence[str], total: float) -> Iterator[Callable[[str], OnProgress]]:
    """Shows a bar for each name, each up to `total`: what is given says by name how to move it."""
    console = open_console()
    if not console.is_terminal:
        yield lambda _: None
        return
    with Progress(console=console, transient=True) as progress:
        tasks = {name: progress.add_task(name, total=total) for name in names}

        def bar_of(name: str) -> OnProgress:
            return lambda done: progress.update(tasks[name], completed=done)

        yield bar_of
