"""`spillover sim rebalance`: simulate clients that move when servers come and go."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from spillover.cli.models import ModelResult
from spillover.cli.models.progress import progress_bar
from spillover.cli.parsing import whole_number_in
from spillover.commandline.option_types import at_least_zero
from spillover.commandline.parsing import add_seed
from spillover.commandline.terminal import open_console, table_of
from spillover.model.errors import InputError

RULES = ("probabilistic", "stratified", "baseline", "consistent-hash")
STARTS = ("balanced", "random", "uneven")
CLIENTS_MAX = 10_000_000
VIRTUAL_NODES_MAX = 10_000


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--clients", type=whole_number_in(1, CLIENTS_MAX), required=True, metavar="N",
        help="the number of clients",
    )  # fmt: skip
    parser.add_argument(
        "--servers", type=_server_list, required=True, metavar="s1,s2,...",
        help="the servers at the start, with commas between",
    )  # fmt: skip
    parser.add_argument(
        "--then", type=_server_list, action="append", required=True, metavar="s2,s3,...",
        help="the servers after a change; may be repeated, one change after the other",
    )  # fmt: skip
    parser.add_argument(
        "--rule", choices=RULES, default="probabilistic",
        help="let clients move by rules 1 to 4 of Shraer & Reed (default), by ours without "
        "their spread, or by a rival's",
    )  # fmt: skip
    parser.add_argument(
        "--virtual-nodes", type=whole_number_in(1, VIRTUAL_NODES_MAX), metavar="K",
        help="with consistent-hash: put each server so often on the circle (default 1)",
    )  # fmt: skip
    parser.add_argument(
        "--start", choices=STARTS,
        help="begin balanced (default), random, or uneven, with half of the clients on the "
        "first server; not for consistent-hash, whose circle says",
    )  # fmt: skip
    parser.add_argument(
        "--skip", type=_share, default=0.0, metavar="SHARE",
        help="let this share of clients still wait when the next change comes, and follow then",
    )  # fmt: skip
    add_seed(parser)


def run(options: argparse.Namespace) -> ModelResult:
    """Run the model."""
    # What computes is loaded only when it is run.
    from spillover.sim.membership.rebalancing import rebalance

    on_circle = options.rule == "consistent-hash"
    if on_circle and options.start is not None:
        raise InputError("--start", "", "expected without consistent-hash: its circle decides")
    if options.virtual_nodes is not None and not on_circle:
        raise InputError("--virtual-nodes", "", "expected only with --rule consistent-hash")
    start, virtual_nodes = options.start or STARTS[0], options.virtual_nodes or 1
    with progress_bar("changes", len(options.then)) as on_progress:
        steps = rebalance(
            options.clients,
            [options.servers, *options.then],
            rule=options.rule,
            start=start,
            virtual_nodes=virtual_nodes,
            skip=options.skip,
            seed=options.seed,
            on_progress=on_progress,
        )
    result = {
        "rule": options.rule,
        "start": "circle" if on_circle else start,
        "virtual_nodes": virtual_nodes if on_circle else None,
        "clients": options.clients,
        "skip": options.skip,
        "seed": options.seed,
        "steps": [step.as_dict() for step in steps],
    }
    return ModelResult(result, partial(_print_steps, result))


def _share(text: str) -> float:
    share = at_least_zero(text)
    if share >= 1:
        raise argparse.ArgumentTypeError(f"expected a share from 0 to below 1, got {text!r}")
    return share


def _server_list(text: str) -> list[str]:
    servers = [name.strip() for name in text.split(",")]
    if not text.strip():
        raise argparse.ArgumentTypeError("expected at least one server, got none")
    if not all(servers):
        raise argparse.ArgumentTypeError(f"expected names with commas between, got {text!r}")
    for name in servers:
        if servers.count(name) > 1:
            raise argparse.ArgumentTypeError(f"expected each server once, got {name!r} twice")
    return servers


def _print_steps(result: dict[str, Any]) -> None:
    figures = ("moved", "at least", "fewest", "most", "fewest/mean", "most/mean")
    title = f"{result['clients']} clients, {result['rule']}"
    table = table_of("servers after the change", figures, title=title)
    for step in result["steps"]:
        counts = step["clients"].values()
        table.add_row(
            f"{len(step['servers'])}: {', '.join(step['servers'])}",
            *(str(n) for n in (step["moved"], step["moved_min"], min(counts), max(counts))),
            f"{step['min_over_mean']:.3f}",
            f"{step['max_over_mean']:.3f}",
        )
    open_console().print(table)
