"""`spillover sim probing`: producers and consumers of the distributed queue, in virtual time."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

from rich.table import Table

from spillover.cli.models import Answer
from spillover.cli.models.exact_probing import LABELS, add_system_options, read_system
from spillover.cli.models.progress import progress_bar
from spillover.model.errors import InputError
from spillover.sim.queue.measuring import ProbingRun
from spillover_loadgen.option_types import whole_number
from spillover_loadgen.terminal import open_console, say


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_system_options(parser)
    parser.add_argument(
        "--objects", type=whole_number, default=100_000, metavar="K", help="to be consumed"
    )
    parser.add_argument(
        "--avoid-visited", action="store_true", help="probe no producer twice for one object"
    )
    parser.add_argument(
        "--engine", choices=("full", "fast"), default="fast",
        help="fast: Johnson's pseudo-code, compiled; full: the machines of the service (default "
        "fast)",
    )  # fmt: skip
    parser.add_argument("--seed", type=whole_number, default=1, metavar="N", help="of all draws")


def run(options: argparse.Namespace) -> Answer:
    """Simulate."""
    system = read_system(options)
    simulate = _engine(options.engine)
    avoid_visited = options.avoid_visited
    with progress_bar("objects", options.objects) as on_progress:
        try:
            measured = simulate(
                system, options.objects, options.seed, on_progress, avoid_visited=avoid_visited
            )
        except InputError as error:
            option = f"--{error.field.replace('_', '-')}"
            raise InputError(option, "", error.expected) from None
    result = measured.as_dict()
    return Answer(result, partial(_print, result))


def _engine(name: str) -> Callable[..., ProbingRun]:
    if name == "fast":
        from spillover.sim.queue.compiled import simulate as fast

        return fast
    from spillover.sim.queue.full import simulate as full

    return full


def _print(result: dict[str, Any]) -> None:
    table = Table("figure", "measured", "± (95 %)")
    for name, label in LABELS.items():
        table.add_row(label, f"{result[name]:.6g}", f"{result['ci95'][name]:.2g}")
    console = open_console()
    console.print(table)
    say(console, f"{result['objects']} objects")
