"""What a worker process does: compute, judge and draw one figure after the other, by name.

Which figures, and in how many processes, is decided in `run`.
"""

from __future__ import annotations

import json
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeAlias

from spillover.model.errors import SpilloverError
from spillover.tools.report.drawing import png
from spillover.tools.reproduce.catalog import figures
from spillover.tools.reproduce.figure import Effort, Figure, OnProgress
from spillover.tools.reproduce.record import (
    Record,
    effort_name,
    versions,
    write_record,
    write_whole,
)

TELL_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class Task:
    """A figure to compute."""

    name: str
    effort: Effort
    seed: int
    directory: Path


@dataclass(frozen=True, slots=True)
class Share:
    """How much of the figure is done, 0..1."""

    done: float


@dataclass(frozen=True, slots=True)
class Finished:
    """The figure's files are written."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The figure could not be computed, for a reason in one line."""

    reason: str


News: TypeAlias = Share | Finished | Failed


def work(connection: Connection) -> None:
    """Compute each `Task` that comes through the connection, and send `News` of it, until it is
    closed from the other side."""
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        try:
            connection.send(_outcome(task, connection))
        except BrokenPipeError:
            return


def reproduce(task: Task, figure: Figure, tell: OnProgress) -> Record:
    """Compute one figure and write its files; `tell` is told the share that is done.

    Raises ValueError or TypeError for measured values that JSON cannot hold.
    """
    started_s = time.perf_counter()
    computed = figure.compute(task.effort, task.seed, tell)
    # As they will be read back: what is judged and drawn now is what the file holds.
    values = json.loads(json.dumps(computed, allow_nan=False))
    record = Record(
        name=figure.name,
        title=figure.title,
        seed=task.seed,
        effort=effort_name(task.effort),
        versions=versions(),
        computed_s=round(time.perf_counter() - started_s, 3),
        claims=figure.claims(values),
        values=values,
    )
    for name, dark in ((record.image, False), (record.dark_image, True)):
        image = png(lambda canvas: figure.draw(values, canvas), dark=dark)
        write_whole(task.directory / name, image)
    write_record(record, task.directory)
    return record


def _outcome(task: Task, connection: Connection) -> Finished | Failed:
    told_s = 0.0

    def tell(done: float) -> None:
        nonlocal told_s
        if time.perf_counter() - told_s >= TELL_EVERY_S:
            told_s = time.perf_counter()
            connection.send(Share(min(1.0, max(0.0, done))))

    try:
        reproduce(task, figures()[task.name], tell)
    except SpilloverError as error:
        return Failed(" ".join(str(error).split()))
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - one figure that fails must not end the others
        place = traceback.extract_tb(error.__traceback__)[-1]
        told = " ".join(f"{type(error).__name__}: {error}".split())
        return Failed(f"{told} ({Path(place.filename).name}, line {place.lineno})")
    return Finished()
