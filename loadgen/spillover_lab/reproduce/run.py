"""Computing the figures that were asked for: which are there already, the others in a process each,
a few at a time; and what is left of one, NAME.json and the images that belong to it.

A process computes, judges and draws one figure, and hands over what it has made; files are written
here, so that a process that ends early leaves none. NAME.json is written last and at once, so that
where it stands the figure is complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
import traceback
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import version
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Protocol, TypeAlias

import spillover
from spillover.model.errors import SpilloverError
from spillover_lab.processes.child import Child
from spillover_lab.reproduce.catalog import FIGURES
from spillover_lab.reproduce.drawing import images
from spillover_lab.reproduce.figure import Claim, Effort, Figure, Values

COMPUTING = ("model", "policy", "core", "inputs", "sim", "workloads")
"""The rooms of the product that a measured value may depend on, beside this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A computed figure. `values` is what was measured, in the figure's own shape."""

    name: str
    title: str
    seed: int
    effort: Effort
    versions: dict[str, str]
    computed_s: float
    claims: list[Claim]
    values: Values

    @property
    def images(self) -> tuple[str, str]:
        """Returns the names of the drawings for light pages and for dark ones."""
        return f"{self.name}.png", f"{self.name}.dark.png"

    @property
    def hold(self) -> int:
        return sum(claim.holds for claim in self.claims)

    def fits(self, effort: Effort, seed: int) -> bool:
        """Returns whether computing the figure again would give the same."""
        return (self.seed, self.effort, self.versions) == (seed, effort, versions())

    def write(self, directory: Path, images: tuple[bytes, bytes]) -> None:
        """Writes the images, then NAME.json. Raises ValueError for what JSON cannot hold."""
        content = {**asdict(self), "image": self.images[0]}
        text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
        for name, image in zip(self.images, images, strict=True):
            write_whole(directory / name, image)
        write_whole(directory / f"{self.name}.json", f"{text}\n".encode())


def read_record(name: str, directory: Path) -> Record | None:
    """Reads the record of that figure; None if there is none, or none that is whole."""
    try:
        content = json.loads((directory / f"{name}.json").read_text(encoding="utf-8"))
        del content["image"]
        content["claims"] = [Claim(**claim) for claim in content["claims"]]
        record = Record(**content | {"effort": Effort(content["effort"])})
    except (OSError, ValueError, KeyError, TypeError):
        return None
    is_whole = record.name == name and all((directory / one).is_file() for one in record.images)
    return record if is_whole else None


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file so that nobody ever sees a part of it."""
    # Beside it, as only within a file system is a move one step.
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        draft.write_bytes(content)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


@cache
def versions() -> dict[str, str]:
    """Returns what the numbers may depend on; `sources` changes with the code that computes."""
    digest = hashlib.sha256()
    product = Path(spillover.__file__).parent
    for room in (*(product / name for name in COMPUTING), Path(__file__).parent):
        for path in sorted(room.rglob("*.py")):
            digest.update(path.relative_to(room).as_posix().encode() + path.read_bytes())
    return {
        "spillover": spillover.__version__,
        "python": platform.python_version(),
        **{package: version(package) for package in ("matplotlib", "numba", "numpy")},
        "sources": digest.hexdigest()[:12],
    }


Made: TypeAlias = tuple[Record, tuple[bytes, bytes]]
"""A figure's record, and its images."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """What is to be computed, and where to."""

    names: Sequence[str]
    directory: Path
    effort: Effort
    seed: int
    jobs: int
    fresh: bool
    """Compute again what is there already."""


@dataclass(slots=True)
class RunOutcome:
    """What became of the figures of a plan, by name."""

    computed: dict[str, Record] = field(default_factory=dict)
    kept: dict[str, Record] = field(default_factory=dict)
    """Those that were there already, computed as the plan says."""
    failed: dict[str, str] = field(default_factory=dict)
    """The reasons."""


class Listener(Protocol):
    """It is told how the run goes."""

    def kept(self, record: Record) -> None: ...
    def started(self, name: str) -> None: ...
    def computed(self, record: Record) -> None: ...
    def failed(self, name: str, reason: str) -> None: ...


def run_plan(plan: RunPlan, listener: Listener, outcome: RunOutcome) -> None:
    """Computes the figures of a plan. A figure that fails does not keep the others from being
    computed; an interrupt ends at once, and `outcome` and the directory hold what is finished."""
    waiting: deque[str] = deque()
    for name in plan.names:
        record = None if plan.fresh else read_record(name, plan.directory)
        if record is not None and record.fits(plan.effort, plan.seed):
            outcome.kept[name] = record
            listener.kept(record)
        else:
            waiting.append(name)
    busy: dict[Connection, tuple[str, Child]] = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < plan.jobs:
                name = waiting.popleft()
                child = Child(f"the process of {name}", _work, name, plan.effort, plan.seed).start()
                busy[child.connection] = name, child
                listener.started(name)
            for connection in wait(list(busy)):
                _finish(*busy[connection], plan.directory, listener, outcome)  # type: ignore[index]
                del busy[connection]  # type: ignore[arg-type]  # the stub speaks of sockets too
    finally:
        for _, child in busy.values():
            child.end()


def _finish(
    name: str, child: Child, directory: Path, listener: Listener, outcome: RunOutcome
) -> None:
    """Takes what a process has made, and writes it."""
    try:
        made: Made | str = child.connection.recv()
    except (EOFError, ConnectionResetError):
        made = "the process that computed it died"
    child.end()
    if isinstance(made, str):
        outcome.failed[name] = made
        listener.failed(name, made)
        return
    record, pictures = made
    record.write(directory, pictures)
    outcome.computed[name] = record
    listener.computed(record)


def reproduce(figure: Figure, effort: Effort, seed: int) -> Made:
    """Computes, judges and draws one figure. Raises ValueError or TypeError for measured values
    that JSON cannot hold."""
    started_s = time.perf_counter()
    computed = figure.compute(effort, seed)
    # As they will be read back: what is judged and drawn now is what the file holds.
    values = json.loads(json.dumps(computed, allow_nan=False))
    record = Record(
        name=figure.name,
        title=figure.title,
        seed=seed,
        effort=effort,
        versions=versions(),
        computed_s=round(time.perf_counter() - started_s, 3),
        claims=[statement.judge(values) for statement in figure.statements],
        values=values,
    )
    return record, images(figure.panels(values), figure.columns)


def _work(name: str, effort: Effort, seed: int, connection: Connection) -> None:
    """What a process does: it sends what it has made, or in one line why it could not."""
    made: Made | str
    try:
        made = reproduce(FIGURES[name], effort, seed)
    except SpilloverError as error:
        made = " ".join(str(error).split())
    except Exception as error:  # noqa: BLE001 - one figure that fails must not end the others
        place = traceback.extract_tb(error.__traceback__)[-1]
        told = " ".join(f"{type(error).__name__}: {error}".split())
        made = f"{told} ({Path(place.filename).name}, line {place.lineno})"
    connection.send(made)
