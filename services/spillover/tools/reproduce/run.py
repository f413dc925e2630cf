"""Computing the figures that were asked for: which are there already, the others in a few processes
that take one after the other.

A process computes (`worker`); here they are started, fed, listened to and ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Protocol

from spillover.tools.processes.child import Child
from spillover.tools.reproduce.figure import Effort
from spillover.tools.reproduce.record import Record, read_record, remove_drafts
from spillover.tools.reproduce.worker import Failed, Share, Task, work


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
    """Name to reason."""


class Listener(Protocol):
    """Who is told how it goes."""

    def kept(self, record: Record) -> None: ...
    def started(self, name: str) -> None: ...
    def progressed(self, name: str, done: float) -> None: ...
    def finished(self, record: Record) -> None: ...
    def failed(self, name: str, reason: str) -> None: ...


def run_plan(plan: RunPlan, listener: Listener, outcome: RunOutcome) -> None:
    """Compute the figures of a plan. A figure that fails does not keep the others from being
    computed; an interrupt ends at once, and `outcome` and the directory hold what is finished."""
    waiting = []
    for name in plan.names:
        record = None if plan.fresh else read_record(name, plan.directory)
        if record is not None and record.fits(plan.effort, plan.seed):
            outcome.kept[name] = record
            listener.kept(record)
        else:
            waiting.append(name)
    with _workers(min(plan.jobs, len(waiting)), plan.directory) as workers:
        _feed(plan, waiting, workers, listener, outcome)


@dataclass(slots=True)
class _Worker:
    """A process, and the figure that it is busy with."""

    child: Child
    name: str | None = None

    @classmethod
    def start(cls) -> _Worker:
        return cls(Child("the process that computes figures", work).start())

    def end(self, directory: Path) -> None:
        self.child.end()
        remove_drafts(directory, self.child.pid)


@contextmanager
def _workers(count: int, directory: Path) -> Iterator[list[_Worker]]:
    workers: list[_Worker] = []
    try:
        workers.extend(_Worker.start() for _ in range(count))
        yield workers
    finally:
        for worker in workers:
            worker.end(directory)


def _feed(
    plan: RunPlan,
    waiting: list[str],
    workers: list[_Worker],
    listener: Listener,
    outcome: RunOutcome,
) -> None:
    rest = iter(waiting)
    for worker in workers:
        _hand_out(plan, worker, rest, listener)
    while busy := {one.child.connection: one for one in workers if one.name is not None}:
        for connection in wait(list(busy)):
            worker = busy[connection]  # type: ignore[index]  # the stub speaks of sockets too
            assert worker.name is not None  # noqa: S101 - it is busy
            _hear(plan, worker, worker.name, listener, outcome)
            if worker.name is None:
                _hand_out(plan, worker, rest, listener)


def _hand_out(plan: RunPlan, worker: _Worker, rest: Iterator[str], listener: Listener) -> None:
    worker.name = next(rest, None)
    if worker.name is not None:
        listener.started(worker.name)
        worker.child.send(Task(worker.name, plan.effort, plan.seed, plan.directory))


def _hear(
    plan: RunPlan, worker: _Worker, name: str, listener: Listener, outcome: RunOutcome
) -> None:
    """Take one piece of news from a worker; without a figure afterwards, it is free."""
    try:
        news = worker.child.connection.recv()
    except (EOFError, ConnectionResetError):
        worker.end(plan.directory)
        worker.child = _Worker.start().child
        news = Failed("the process that computed it died")
    if isinstance(news, Share):
        listener.progressed(name, news.done)
        return
    worker.name = None
    if not isinstance(news, Failed):
        record = read_record(name, plan.directory)
        if record is not None:
            outcome.computed[name] = record
            listener.finished(record)
            return
        news = Failed("its files were gone as soon as they were written")
    outcome.failed[name] = news.reason
    listener.failed(name, news.reason)
