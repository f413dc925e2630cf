"""`spillover reproduce`: the figures of the five source documents, computed again."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from spillover.cli.parsing import whole_number_in
from spillover.model.errors import InputError
from spillover.model.extras import check_extra
from spillover.tools.reproduce.catalog import figures_of, select
from spillover.tools.reproduce.documents import DOCUMENTS
from spillover.tools.reproduce.figure import Effort
from spillover.tools.reproduce.page import write_page
from spillover.tools.reproduce.record import Record
from spillover.tools.reproduce.run import RunOutcome, RunPlan, run_plan
from spillover_loadgen.option_types import whole_number
from spillover_loadgen.terminal import open_console

EXIT_INTERRUPTED = 130
JOBS_MAX = 64

_EXTRAS = {"matplotlib": "report", "jinja2": "report", "numpy": "sim", "numba": "sim"}
"""What figures cannot do without, and where it comes from."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = f"Documents, and the numbers of their figures: {_all_figures()}."
    parser.add_argument(
        "names", nargs="*", metavar="NAME",
        help="a figure (comte-9) or a document (comte); all if none is given",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=_directory, required=True, metavar="DIR",
        help="where NAME.png, NAME.json and index.html go",
    )  # fmt: skip
    parser.add_argument(
        "--full", action="store_true", help="the documents' run lengths: much longer"
    )
    parser.add_argument("--seed", type=whole_number, default=1, metavar="N", help="of all draws")
    parser.add_argument(
        "--jobs", type=whole_number_in(1, JOBS_MAX), default=2, metavar="N", help="processes"
    )
    parser.add_argument("--fresh", action="store_true", help="compute again what is in DIR already")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def run(options: argparse.Namespace) -> int:
    """Run the command; its exit status."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    _check_extras()
    plan = _plan_of(options)
    outcome = RunOutcome()
    interrupted = False
    display = _display(len(plan.names))
    with display:
        try:
            run_plan(plan, display, outcome)
        except KeyboardInterrupt:
            interrupted = True
    return _end(plan, outcome, interrupted=interrupted, as_json=options.json)


def _end(plan: RunPlan, outcome: RunOutcome, *, interrupted: bool, as_json: bool) -> int:
    """Write the page and tell what came of it; the exit status."""
    page = write_page(plan.directory)
    _tell_end(outcome, page, interrupted=interrupted)
    if as_json and not interrupted:
        print(json.dumps(_as_json(plan, outcome, page)), flush=True)
    if interrupted:
        return EXIT_INTERRUPTED
    return 1 if outcome.failed else 0


def _plan_of(options: argparse.Namespace) -> RunPlan:
    return RunPlan(
        names=select(options.names),
        directory=_prepared(options.out),
        effort=Effort(full=options.full),
        seed=options.seed,
        jobs=options.jobs,
        fresh=options.fresh,
    )


def _all_figures() -> str:
    """Such as `comte (9, 10, 12, 13)`, for all documents."""
    return ", ".join(
        f"{document.prefix} ("
        + ", ".join(f.name.removeprefix(f"{document.prefix}-") for f in figures_of(document))
        + ")"
        for document in DOCUMENTS
    )


def _check_extras() -> None:
    for package, extra in _EXTRAS.items():
        check_extra("reproduce", extra, package)


def _prepared(directory: Path) -> Path:
    """The directory, made if it is not there; find out before minutes have passed if it cannot."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        writable = False
    else:
        writable = os.access(directory, os.W_OK | os.X_OK)
    if not writable:
        raise InputError(
            "--out", "", f"expected a directory that can be written to, got {directory}"
        )
    return directory


def _as_json(plan: RunPlan, outcome: RunOutcome, page: Path) -> dict[str, Any]:
    records = {**outcome.computed, **outcome.kept}
    return {
        "out": str(plan.directory),
        "page": str(page),
        "seed": plan.seed,
        "effort": "full" if plan.effort.full else "default",
        "figures": [
            {
                "name": name,
                "image": str(plan.directory / records[name].image),
                "data": str(plan.directory / f"{name}.json"),
                "skipped": name in outcome.kept,
                "computed_s": records[name].computed_s,
                "claims": len(records[name].claims),
                "claims_hold": sum(claim.holds for claim in records[name].claims),
            }
            for name in plan.names
            if name in records
        ],
        "failed": [{"name": name, "reason": reason} for name, reason in outcome.failed.items()],
    }


def _tell_end(outcome: RunOutcome, page: Path, *, interrupted: bool) -> None:
    records = [*outcome.computed.values(), *outcome.kept.values()]
    claims = [claim for record in records for claim in record.claims]
    hold = sum(claim.holds for claim in claims)
    counts = f"{len(outcome.computed)} computed, {len(outcome.kept)} there already"
    if outcome.failed:
        counts += f", {len(outcome.failed)} failed"
    if interrupted:
        counts += "; interrupted, what is finished stays and is skipped next time"
    if claims:
        counts += f". {hold} of {len(claims)} statements hold"
    _say(f"{counts}. Page: {page.resolve().as_uri()}")


def _directory(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("expected the name of a directory, got none")
    return Path(text)


def _display(figures: int) -> _Lines:
    """What shows how it goes, from `with` on."""
    console = open_console()
    return _Bars(console, figures) if console.is_terminal else _Lines()


class _Lines:
    """A line for each figure that ends, for logs."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def say(self, line: str) -> None:
        _say(line)

    def kept(self, record: Record) -> None:
        self.say(f"{record.name}: there already, {_words(record)} (--fresh computes it again)")

    def started(self, name: str) -> None:
        pass

    def progressed(self, name: str, done: float) -> None:
        pass

    def finished(self, record: Record) -> None:
        self.say(f"{record.name}: computed in {record.computed_s:.1f} s, {_words(record)}")

    def failed(self, name: str, reason: str) -> None:
        self.say(f"{name}: failed: {reason}")


class _Bars(_Lines):
    """The same lines above one bar for all figures and one for each in the making."""

    def __init__(self, console: Console, figures: int) -> None:
        self._progress = Progress(
            TextColumn("{task.description:<14}"),
            BarColumn(),
            TextColumn("{task.percentage:3.0f} %"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._all = self._progress.add_task("all figures", total=figures)
        self._making: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def say(self, line: str) -> None:
        self._progress.console.print(line, highlight=False, markup=False)

    def kept(self, record: Record) -> None:
        super().kept(record)
        self._progress.advance(self._all)

    def started(self, name: str) -> None:
        self._making[name] = self._progress.add_task(name, total=1.0)

    def progressed(self, name: str, done: float) -> None:
        self._progress.update(self._making[name], completed=done)

    def finished(self, record: Record) -> None:
        super().finished(record)
        self._end(record.name)

    def failed(self, name: str, reason: str) -> None:
        super().failed(name, reason)
        self._end(name)

    def _end(self, name: str) -> None:
        self._progress.remove_task(self._making.pop(name))
        self._progress.advance(self._all)


def _words(record: Record) -> str:
    hold = sum(claim.holds for claim in record.claims)
    return f"{hold} of {len(record.claims)} statements hold"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
