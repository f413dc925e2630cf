"""`spillover sim leases`: simulate partitions that nodes share out, by the blog's rule or the
guarded."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.table import Table

from spillover.cli.models import ModelResult
from spillover.cli.models.progress import progress_bar
from spillover.cli.parsing import add_lease_times, lease_times
from spillover.commandline.option_types import at_least_zero, whole_number
from spillover.commandline.parsing import add_seed
from spillover.commandline.terminal import open_console, say
from spillover.model.errors import InputError
from spillover.model.lease_times import LEASE_BALANCES, LEASE_RULES, LeaseTimes
from spillover.policy.leases import WAIT_READINGS

if TYPE_CHECKING:
    from spillover.sim.leases.run import LeaseScene

Trouble = tuple[str, float]


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    from spillover.sim.leases.run import CHALLENGES, STARTS

    parser.add_argument(
        "--nodes", required=True, type=whole_number, metavar="N",
        help="the number of nodes, called n0, n1, ...",
    )  # fmt: skip
    parser.add_argument(
        "--partitions", required=True, type=whole_number, metavar="P",
        help="the number of partitions to be shared out over them",
    )  # fmt: skip
    parser.add_argument(
        "--periods", required=True, type=whole_number, metavar="T",
        help="the length of the run in normal lease times",
    )  # fmt: skip
    parser.add_argument(
        "--rule", choices=LEASE_RULES, default="guarded",
        help="move partitions by the stored counts (guarded), or to the fastest answer (blog)",
    )  # fmt: skip
    parser.add_argument(
        "--start", choices=STARTS, default="balanced",
        help="let nodes hold partitions like this at the beginning",
    )  # fmt: skip
    _add_loads(parser)
    _add_troubles(parser)
    parser.add_argument(
        "--challenges", choices=CHALLENGES,
        help="with blog: challenge in step 1 each partition that is not one's own, or one of "
        "them a period (default all)",
    )  # fmt: skip
    parser.add_argument(
        "--waits", choices=tuple(WAIT_READINGS),
        help="with blog: wait in step 2 by this one of its formulas (default halves)",
    )  # fmt: skip
    add_lease_times(parser)
    add_seed(parser)


def _add_loads(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--balance", choices=LEASE_BALANCES, default="count",
        help="even out the number of partitions, or how much work they are",
    )  # fmt: skip
    parser.add_argument(
        "--loads", type=_loads, metavar="X,Y,..",
        help="the work of each partition per normal lease time, or `skewed`: the k-th is 1/k of "
        "the first (default: handlers report none, each counts for 1)",
    )  # fmt: skip
    parser.add_argument(
        "--load-noise", type=_share, metavar="SHARE",
        help="let handlers report their work wrong by up to this share, either way (default 0)",
    )  # fmt: skip


def _add_troubles(parser: argparse.ArgumentParser) -> None:
    for option, meaning in (
        ("stall", "add uniform 0..MS to each reaction of the node"),
        ("crash", "let the node die at MS"),
        ("join", "let the node start at MS only"),
    ):
        parser.add_argument(
            f"--{option}", action="append", default=[], type=_trouble, metavar="NODE:MS",
            help=f"{meaning}; may be repeated",
        )  # fmt: skip
    parser.add_argument(
        "--message-loss", type=_share, default=0.0, metavar="SHARE",
        help="lose this share of the channels' messages, 0..1",
    )  # fmt: skip
    parser.add_argument(
        "--handler-stop-ms", type=at_least_zero, default=1_000.0, metavar="MS",
        help="let a handler that is to stop do so within uniform 0..MS",
    )  # fmt: skip


def run(options: argparse.Namespace) -> ModelResult:
    """Run the model."""
    from spillover.sim.leases.run import run_leases

    if options.nodes < 1:
        raise InputError("--nodes", "", f"expected at least 1, got {options.nodes}")
    try:
        scene, times = _scene(options)
    except InputError as error:
        raise _in_options(error) from None
    if scene.rule == "blog" and scene.partitions > times.race_size_max:
        print(
            f"note: the blog's rule is safe up to {times.race_size_max} partitions on a node "
            "(max_shutdown_ms / held_delay_ms); beyond, holders learn too late that they have lost",
            file=sys.stderr,
        )
    with progress_bar("periods", 1.0) as on_progress:
        figures = run_leases(scene, options.seed, on_progress).as_dict()
    named = {"rule": scene.rule, "balance": scene.balance, "start": scene.start}
    result = {**named, "seed": options.seed, **figures}
    return ModelResult(result, partial(_print_leases, result))


def _scene(options: argparse.Namespace) -> tuple[LeaseScene, LeaseTimes]:
    from spillover.sim.leases.loads import SKEWED, skewed_loads
    from spillover.sim.leases.run import LeaseScene
    from spillover.sim.leases.world import Troubles

    times = lease_times(options)
    troubles = Troubles(
        stall_ms=_by_node("--stall", options.stall, options.nodes),
        crash_ms=_by_node("--crash", options.crash, options.nodes),
        join_ms=_by_node("--join", options.join, options.nodes),
        loss=options.message_loss,
        handler_stop_ms=options.handler_stop_ms,
    )
    names = ["nodes", "partitions", "periods", "rule", "start", "balance"]
    for name in ("challenges", "waits"):
        if getattr(options, name) is not None:
            if options.rule != "blog":
                raise InputError(f"--{name}", "", "expected only with --rule blog")
            names.append(name)
    plain = {name: getattr(options, name) for name in names}
    loads = skewed_loads(options.partitions) if options.loads == SKEWED else options.loads
    if options.load_noise is not None and loads is None:
        raise InputError("--load-noise", "", "expected only with --loads")
    noise = options.load_noise or 0.0
    scene = LeaseScene(times=times, troubles=troubles, loads=loads, load_noise=noise, **plain)
    return scene, times


def _in_options(error: InputError) -> InputError:
    """Returns the same error with the names of options in place of those of values."""
    if error.source not in {"leases", "lease times"}:
        return error
    # Troubles are options without the unit, which their values carry after the node.
    field = error.field if error.source == "lease times" else error.field.removesuffix("_ms")
    expected = error.expected
    for name in [each.name for each in fields(LeaseTimes)]:
        expected = expected.replace(name, _option(name))
    return InputError(_option(field), "", expected)


def _option(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def _trouble(text: str) -> Trouble:
    """Returns a node and a time in ms of at least 0, from a text such as `n0:500`."""
    node, colon, number = text.partition(":")
    if not (node and colon):
        raise argparse.ArgumentTypeError(f"expected NODE:MS, such as n0:500, got {text!r}")
    return node, at_least_zero(number)


def _loads(text: str) -> str | list[float]:
    """Returns `skewed`, or one number for each partition; how many there must be is checked
    later."""
    if text == "skewed":
        return text
    return [at_least_zero(part) for part in text.split(",")]


def _share(text: str) -> float:
    share = at_least_zero(text)
    if share > 1:
        raise argparse.ArgumentTypeError(f"expected a share of 0..1, got {text!r}")
    return share


def _by_node(option: str, given: Sequence[Trouble], nodes: int) -> dict[int, float]:
    """Returns the values by index of the node; the nodes are n0, n1, ..."""
    found: dict[int, float] = {}
    for node, value in given:
        digits = node.removeprefix("n")
        index = int(digits) if digits.isascii() and digits.isdecimal() else nodes
        if node != f"n{index}" or index >= nodes:
            raise InputError(option, "", f"expected a node of n0..n{nodes - 1}, got {node!r}")
        if index in found:
            raise InputError(option, "", f"expected each node once, got {node!r} twice")
        found[index] = value
    return found


def _print_leases(result: dict[str, Any]) -> None:
    title = f"partitions by node at the end: {result['rule']}"
    table = Table(title=title, min_width=len(title))
    for node in result["counts"]:
        table.add_column(node, justify="right")
    table.add_row(*(str(count) for count in result["counts"].values()))
    console = open_console()
    console.print(table)
    needed = result["moves_min"]
    least = "" if needed is None else f", at least {needed} were needed"
    say(
        console,
        f"{result['moves']} moves{least}; a partition stood "
        f"still for at most {result['unowned_ms_max']:.0f} ms; run by two nodes at once for "
        f"{result['double_owned_ms']:.0f} ms in all; {result['challenges']} challenges",
    )
    if result["load_over_mean_max"] is not None:
        over = result["load_over_mean_max"]
        say(console, f"the most loaded node has {over:.2f} of the mean load")
