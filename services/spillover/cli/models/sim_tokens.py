"""`spillover sim tokens`: simulate typed jobs on a pool of unlike servers."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from rich.table import Table

from spillover.cli.models import ModelResult
from spillover.cli.models.progress import OnProgress, progress_bar
from spillover.commandline.option_types import above_zero, at_least_zero, whole_number
from spillover.commandline.parsing import add_seed
from spillover.commandline.terminal import open_console, say, table_of
from spillover.inputs.pool_file import load_pool
from spillover.inputs.yaml_file import shown_path
from spillover.model.errors import InputError
from spillover.model.extras import check_extra
from spillover.model.pool import Pool
from spillover.model.token_orders import LONGEST_AVAILABLE, ORDERS


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--pool", required=True, metavar="F",
        help="the pool: a YAML file, or a built-in name (comte8, comte11)",
    )  # fmt: skip
    parser.add_argument(
        "--load", type=above_zero, metavar="RHO",
        help="scale the types' rates so that their sum is RHO times that of the servers'",
    )  # fmt: skip
    parser.add_argument(
        "--jobs", required=True, type=whole_number, metavar="N",
        help="measure so many jobs, after a warm-up",
    )  # fmt: skip
    parser.add_argument(
        "--policy", choices=("dynamic", "static-best", "static-uniform"), default="dynamic",
        help="give jobs to servers by tokens (dynamic), or at random: by the best or by uniform "
        "shares (static)",
    )  # fmt: skip
    parser.add_argument(
        "--order", choices=ORDERS, default=LONGEST_AVAILABLE,
        help="with dynamic: let a job take the available token that comes first in this order; "
        "theory is exact for the longest available",
    )  # fmt: skip
    parser.add_argument(
        "--discipline", choices=("ps", "fcfs"), default="ps",
        help="share the processor (ps, balanced fair), or serve first come, first served in "
        "parallel (fcfs)",
    )  # fmt: skip
    parser.add_argument(
        "--sizes", choices=("exp", "hyper", "hyper-by-class", "det"), default="exp",
        help="draw the sizes of jobs, of mean 1, by this law; hyper: figure 13's, by type",
    )  # fmt: skip
    parser.add_argument(
        "--interruptions", type=at_least_zero, metavar="M",
        help="with fcfs: let a job of mean size go to the end of the queue so often (default 10)",
    )  # fmt: skip
    add_seed(parser)


def run(options: argparse.Namespace) -> ModelResult:
    """Run the model."""
    check_extra("sim tokens", "sim", "numpy", "numba")
    if options.interruptions is not None and options.discipline != "fcfs":
        expected = "expected with --discipline fcfs only: ps interrupts nobody"
        raise InputError("--interruptions", "", expected)
    pool = load_pool(options.pool)
    try:
        with progress_bar("jobs", 1.0) as on_progress:
            result = _simulate(pool, options, on_progress)
    except InputError as error:
        if error.source != "pool":
            raise
        raise InputError(shown_path(options.pool), error.field, error.expected) from error
    return ModelResult(result, partial(_print_tokens, result))


def _simulate(pool: Pool, options: argparse.Namespace, on_progress: OnProgress) -> dict[str, Any]:
    from spillover.sim.tokens import INTERRUPTIONS, run_tokens

    if options.load is not None:
        pool = pool.at_load(options.load)
    interruptions = INTERRUPTIONS if options.interruptions is None else options.interruptions
    return run_tokens(
        pool,
        options.jobs,
        options.seed,
        options.policy,
        options.discipline,
        options.sizes,
        on_progress=on_progress,
        interruptions=interruptions,
        order=options.order,
    ).as_dict()


def _print_tokens(result: dict[str, Any]) -> None:
    title = f"{result['pool']} at load {result['load']:.4g}: "
    title += ", ".join(result[name] for name in ("policy", "order", "discipline", "sizes"))
    table = table_of("", ("share", "95 % interval"), title=title)
    shares, widths = result["blocking"], result["ci95"]["blocking"]
    _add_row(table, "blocked", shares["average"], widths["average"])
    for name, share in shares["per_type"].items():
        _add_row(table, f"blocked, type {name}", share, widths["per_type"][name])
    _add_row(table, "occupancy", result["occupancy"], result["ci95"]["occupancy"])
    for name, share in result["idle"].items():
        _add_row(table, f"idle, server {name}", share, result["ci95"]["idle"][name])
    console = open_console()
    console.print(table)
    say(
        console,
        f"{result['jobs']} jobs after {result['warm_up_jobs']} to warm up, "
        f"{result['jobs_per_s']:.0f} jobs/s simulated",
    )


def _add_row(table: Table, name: str, share: float | None, width: float | None) -> None:
    value = "-" if share is None else f"{share:.6f}"
    table.add_row(name, value, "-" if width is None else f"± {width:.6f}")
