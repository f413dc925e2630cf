"""`spillover exact tokens`: blocking and occupancy of a pool with tokens, exactly (Comte)."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rich.table import Table

from spillover.cli.models import ModelResult
from spillover.commandline.option_types import above_zero, whole_number
from spillover.commandline.terminal import open_console, say
from spillover.inputs.pool_file import load_pool
from spillover.inputs.yaml_file import shown_path
from spillover.model.errors import InputError
from spillover.model.extras import check_extra
from spillover.model.pool import Pool

if TYPE_CHECKING:
    from spillover.sim.theory.tokens.exact import TokenFigures

POLICIES = ("dynamic", "static-best", "static-uniform", "ideal")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--pool", required=True, metavar="F",
        help="the pool: a YAML file, or a built-in name (comte8, comte11)",
    )  # fmt: skip
    parser.add_argument(
        "--load", type=above_zero, metavar="RHO",
        help="scale the arrival rates to this share of all servers' rates",
    )  # fmt: skip
    parser.add_argument(
        "--policy", choices=POLICIES, default="dynamic",
        help="give jobs to servers by tokens (dynamic), at random by the best or by uniform "
        "shares (static), or so that the least is blocked that is stable (ideal)",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=whole_number, default=1, metavar="N",
        help="accepted for symmetry: nothing is random here",
    )  # fmt: skip


def run(options: argparse.Namespace) -> ModelResult:
    """Solve the pool."""
    check_extra("exact tokens", "sim", "numpy")
    from spillover.sim.theory.tokens.exact import exact_tokens  # noqa: PLC0415 - needs numpy

    pool = load_pool(options.pool)
    try:
        if options.load is not None:
            pool = pool.at_load(options.load)
        figures = exact_tokens(pool, options.policy)
    except InputError as error:
        raise InputError(shown_path(options.pool), error.field, error.expected) from error
    return ModelResult(figures.as_dict(), lambda: _print_figures(pool, options.policy, figures))


def _print_figures(pool: Pool, policy: str, figures: TokenFigures) -> None:
    console = open_console()
    table = Table(title=f"pool {pool.name}, {policy}, load {pool.load:g}")
    for name in ("type", "rate", "blocked", "server", "rate", "idle"):
        table.add_column(name, justify="left" if name in {"type", "server"} else "right")
    for row in range(max(len(pool.types), len(pool.servers))):
        cells: list[str] = []
        for entries, shares in (
            (pool.types, figures.blocking_per_type),
            (pool.servers, figures.idle),
        ):
            if row < len(entries):
                entry = entries[row]
                cells += [entry.id, f"{entry.rate:g}", _shown(shares[entry.id])]
            else:
                cells += [""] * 3
        table.add_row(*cells)
    console.print(table)
    say(
        console,
        f"blocked {_shown(figures.blocking)} of all jobs, "
        f"{_shown(figures.occupancy)} of all capacity in use",
    )


def _shown(share: float | None) -> str:
    return "open" if share is None else f"{share:.6g}"
