"""`spillover plan tokens`: find token limits for a pool of unlike servers, and their effects."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from spillover.cli.models.progress import progress_bar
from spillover.cli.parsing import node_url, whole_number_in
from spillover.cli.pool_measured import Measured, measure
from spillover.commandline.option_types import above_zero
from spillover.commandline.parsing import add_json
from spillover.commandline.terminal import open_console, say, show_table, table_of
from spillover.inputs.pool_file import load_pool
from spillover.inputs.yaml_file import shown_path
from spillover.model.errors import InputError
from spillover.model.extras import check_extra
from spillover.model.pool import Pool

if TYPE_CHECKING:
    from spillover.sim.theory.tokens.limits import Limits, TokenPlan

ABOVE_IDEAL = 0.01
"""The goal without options: at most one job in a hundred more is blocked than has to be."""

MEASURED_S = 30.0

AT_MOST = 32
TOKENS_MAX = 1000
"""The exact model of a few classes takes limits up to this; a node takes larger ones."""

ROWS_MAX = 14
TYPES_SHOWN = 6
"""The table has columns for up to so many types; --json has them all."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        f"{parser.description}: more tokens block fewer jobs, and let more jobs share a server, so "
        "that each takes longer; the figures are exact"
    )
    pools = parser.add_mutually_exclusive_group(required=True)
    pools.add_argument(
        "--pool", metavar="F",
        help="the pool: a YAML file, or a built-in name (comte8, comte11)",
    )  # fmt: skip
    pools.add_argument(
        "--from", type=node_url, dest="url", metavar="URL",
        help="take the pool of this node, at the rates measured there",
    )  # fmt: skip
    parser.add_argument(
        "--for-s", type=above_zero, metavar="S",
        help=f"measure that for so long (default {MEASURED_S:g}): the longer, the better known",
    )  # fmt: skip
    parser.add_argument(
        "--load", type=above_zero, metavar="RHO",
        help="scale the arrival rates to this share of all servers' rates",
    )  # fmt: skip
    goals = parser.add_mutually_exclusive_group()
    goals.add_argument(
        "--blocking", type=above_zero, metavar="B",
        help="find the fewest tokens that block at most this share of jobs (default: "
        f"{ABOVE_IDEAL:g} more than any dispatcher has to)",
    )  # fmt: skip
    goals.add_argument(
        "--slowdown", type=above_zero, metavar="X",
        help="find the least blocking while jobs take on average at most X times as long as alone",
    )  # fmt: skip
    goals.add_argument(
        "--time-ms", type=above_zero, metavar="T",
        help="find the least blocking while jobs take on average at most T ms",
    )  # fmt: skip
    parser.add_argument(
        "--at-most", type=whole_number_in(1, TOKENS_MAX), default=AT_MOST, metavar="K",
        help="give a class at most so many tokens, such as what fits into a server's memory",
    )  # fmt: skip
    parser.add_argument(
        "--plot", metavar="FILE",
        help="draw the curve to this file: .png, .svg or .pdf",
    )  # fmt: skip
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command; its exit status."""
    check_extra("plan tokens", "sim", "numpy")
    path = None
    if options.plot is not None:
        from spillover.cli.models.overflow_plot import check_plot_file

        path = check_plot_file(options.plot)
    if options.for_s is not None and options.url is None:
        raise InputError("--for-s", "", "expected with --from alone")
    measured = None if options.url is None else _measured(options.url, options.for_s or MEASURED_S)
    try:
        plan = _plan(_pool(measured, options), options)
    except InputError as error:
        if error.source != "pool":
            raise
        source = options.url or shown_path(options.pool)
        raise InputError(source, error.field, error.expected) from error
    if path is not None:
        from spillover.cli.models.limits_plot import draw_limits

        draw_limits(plan, path)
    if options.json:
        told = {} if measured is None else {"measured": measured.as_dict()}
        print(json.dumps(plan.as_dict() | told))
    else:
        _print(plan, measured)
    return 0


def _measured(url: str, duration_s: float) -> Measured:
    say(open_console(), f"measuring {url} for {duration_s:g} s")
    with progress_bar("measured", duration_s) as on_progress:
        return asyncio.run(measure(url, duration_s, on_progress))


def _pool(measured: Measured | None, options: argparse.Namespace) -> Pool:
    """Returns the pool with its rates: those measured, or those of the file."""
    pool = load_pool(options.pool) if measured is None else measured.pool
    return pool if options.load is None else pool.at_load(options.load)


def _plan(pool: Pool, options: argparse.Namespace) -> TokenPlan:
    from spillover.sim.theory.tokens.limits import Goal, plan_limits

    goals = {name: getattr(options, name) for name in ("blocking", "slowdown", "time_ms")}
    said = [Goal(name, most) for name, most in goals.items() if most is not None]
    goal = said[0] if said else Goal("above_ideal", ABOVE_IDEAL)
    with progress_bar("limits", 1.0) as on_progress:
        return plan_limits(pool, goal, options.at_most, on_progress)


def _print(plan: TokenPlan, measured: Measured | None) -> None:
    console = open_console()
    types = [each.id for each in plan.pool.types]
    shown = types if 1 < len(types) <= TYPES_SHOWN else []
    names = ("blocked", *(f"type {each}" for each in shown), "above the best", "in use")
    table = table_of(
        "tokens of a class",
        (*names, "jobs", "time, ms", "slowdown"),
        title=f"pool {plan.pool.name}, load {plan.pool.load:g}",
    )
    table.columns[0].no_wrap = True
    for name, limits in _rows(plan):
        per_type = limits.figures.blocking_per_type
        table.add_row(
            name,
            _share(limits.figures.blocking),
            *(_share(per_type[each]) for each in shown),
            _share(limits.above_ideal),
            f"{limits.figures.occupancy:.1%}",
            f"{limits.jobs:.1f}",
            f"{limits.time_ms:.4g}",
            "-" if limits.slowdown is None else f"{limits.slowdown:.2f}",
        )
    show_table(console, table)
    for line in (*(() if measured is None else measured.remarks()), *_sentences(plan)):
        say(console, line)


def _rows(plan: TokenPlan) -> Iterable[tuple[str, Limits]]:
    """Yield some of the curve, with the row that is right for all classes alike, and the others."""
    last = len(plan.curve)
    step = -(-last // ROWS_MAX)
    for count, limits in enumerate(plan.curve, 1):
        if limits is plan.uniform:
            yield f"{count}, best if all alike", limits
        elif count in {1, last} or count % step == 0:
            yield str(count), limits
    if plan.given is not None:
        yield "as given", plan.given
    yield "recommended", plan.best


def _sentences(plan: TokenPlan) -> Iterable[str]:
    yield f"no dispatcher blocks less than {_share(plan.ideal.blocking)} at this load"
    if plan.given is None:
        yield "the limits as given are too many for the exact model: spillover sim tokens"
    limits = ", ".join(f"{name}: {count}" for name, count in plan.best.tokens.items())
    yield f"recommended: {{{limits}}}"
    if not plan.goal.is_kept(plan.best):
        most = max(plan.best.tokens.values())
        above = _share(plan.best.above_ideal)
        yield f"blocking stays {above} above that with {most} tokens a class"
    if not plan.is_searched:
        yield "the search for limits by class ended early: there may be better ones"
    from spillover.sim.theory.tokens.limits import several_servers

    if pooled := several_servers(plan.pool):
        yield (
            f"the model lets a job use all servers of its class at once ({', '.join(pooled)}); "
            "a node runs it on one, so expect more blocking: best give each server a class"
        )


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
