"""`spillover exact probing`: Johnson's model of the distributed queue."""

from __future__ import annotations

import argparse
from functools import partial

from rich.table import Table

from spillover.cli.models import ModelResult
from spillover.cli.models.sim_probing import LABELS, add_system_options, read_system
from spillover.commandline.option_types import whole_number
from spillover.commandline.terminal import open_console
from spillover_lab.theory.chain import solve


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_system_options(parser)
    parser.add_argument(
        "--seed", type=whole_number, default=1, metavar="N",
        help="accepted for symmetry: nothing is random here",
    )  # fmt: skip


def run(options: argparse.Namespace) -> ModelResult:
    """Solve the model."""
    figures = solve(read_system(options)).as_dict()
    return ModelResult(figures, partial(_print, figures))


def _print(figures: dict[str, float]) -> None:
    table = Table("figure", "model")
    for name, value in figures.items():
        table.add_row(LABELS[name], f"{value:.6g}")
    open_console().print(table)
