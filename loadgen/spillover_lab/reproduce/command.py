"""`spillover reproduce`: the figures of the five source documents, and of our own policy, computed
again.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from spillover.cli.parsing import whole_number_in
from spillover.commandline.parsing import add_json, add_seed
from spillover.commandline.terminal import open_console, say
from spillover.model.errors import InputError
from spillover.model.extras import check_extra
from spillover_lab.reproduce.catalog import DOCUMENTS, select
from spillover_lab.reproduce.figure import Effort
from spillover_lab.reproduce.page import write_page
from spillover_lab.reproduce.run import Record, RunOutcome, RunPlan, run_plan

EXIT_INTERRUPTED = 130
JOBS_MAX = 64
EXTRAS = {"matplotlib": "report", "jinja2": "report", "numpy": "sim", "numba": "sim"}
"""What figures cannot do without, and where it comes from."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    known = ", ".join(
        f"{document.prefix} ({', '.join(f.name.rpartition('-')[2] for f in own)})"
        for document, own in DOCUMENTS
    )
    parser.epilog = f"Documents, and the numbers of their figures: {known}."
    parser.add_argument(
        "names", nargs="*", metavar="NAME",
        help="a figure (comte-9) or a document (comte); all if none is given",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=_directory, required=True, metavar="DIR",
        help="write NAME.png, NAME.json and index.html to this directory",
    )  # fmt: skip
    parser.add_argument(
        "--full", action="store_true", help="run as long as the documents did: much longer"
    )
    add_seed(parser)
    parser.add_argument(
        "--jobs", type=whole_number_in(1, JOBS_MAX), default=2, metavar="N",
        help="compute in so many processes",
    )  # fmt: skip
    parser.add_argument(
        "--fresh", action="store_true",
        help="compute again what is in the directory already",
    )  # fmt: skip
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command; its exit status."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    for package, extra in EXTRAS.items():
        check_extra("reproduce", extra, package)
    plan = RunPlan(
        names=select(options.names),
        directory=_prepared(options.out),
        effort=Effort.FULL if options.full else Effort.DEFAULT,
        seed=options.seed,
        jobs=options.jobs,
        fresh=options.fresh,
    )
    outcome, interrupted = RunOutcome(), False
    with _Display(len(plan.names)) as display:
        try:
            run_plan(plan, display, outcome)
        except KeyboardInterrupt:
            interrupted = True
    page = write_page(plan.directory)
    display.end(outcome, page, interrupted=interrupted)
    if interrupted:
        return EXIT_INTERRUPTED
    if options.json:
        print(json.dumps(_as_json(plan, outcome, page)), flush=True)
    return 1 if outcome.failed else 0


def _directory(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("expected the name of a directory, got none")
    return Path(text)


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
        "effort": plan.effort,
        "figures": [
            {
                "name": name,
                "image": str(plan.directory / records[name].images[0]),
                "data": str(plan.directory / f"{name}.json"),
                "skipped": name in outcome.kept,
                "computed_s": records[name].computed_s,
                "claims": len(records[name].claims),
                "claims_hold": records[name].hold,
            }
            for name in plan.names
            if name in records
        ],
        "failed": [{"name": name, "reason": reason} for name, reason in outcome.failed.items()],
    }


class _Display(Progress):
    """A line for each figure that ends; on a terminal a bar, too, with those in the making."""

    def __init__(self, figures: int) -> None:
        console = open_console()
        look = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        super().__init__(
            *look, TextColumn("{task.description}"),
            console=console, transient=True, disable=not console.is_terminal,
        )  # fmt: skip
        self._making: list[str] = []
        self._bar = self.add_task("", total=figures)

    def started(self, name: str) -> None:
        self._making.append(name)
        self.update(self._bar, description=", ".join(self._making))

    def kept(self, record: Record) -> None:
        self._ended(f"{record.name}: there already, {_words(record)} (--fresh computes it again)")

    def computed(self, record: Record) -> None:
        self._making.remove(record.name)
        self._ended(f"{record.name}: computed in {record.computed_s:.1f} s, {_words(record)}")

    def failed(self, name: str, reason: str) -> None:
        self._making.remove(name)
        self._ended(f"{name}: failed: {reason}")

    def end(self, outcome: RunOutcome, page: Path, *, interrupted: bool) -> None:
        counts = f"{len(outcome.computed)} computed, {len(outcome.kept)} there already"
        if outcome.failed:
            counts += f", {len(outcome.failed)} failed"
        if interrupted:
            counts += "; interrupted, what is finished stays and is skipped next time"
        records = [*outcome.computed.values(), *outcome.kept.values()]
        if claims := sum(len(record.claims) for record in records):
            hold = sum(record.hold for record in records)
            counts += f". {hold} of {claims} statements hold"
        say(self.console, f"{counts}. Page: {page.resolve().as_uri()}")

    def _ended(self, line: str) -> None:
        say(self.console, line)
        self.update(self._bar, advance=1, description=", ".join(self._making))


def _words(record: Record) -> str:
    return f"{record.hold} of {len(record.claims)} statements hold"
