"""`spillover bench NAME`: what Spillover costs, beside a peer measured in the same run."""

from __future__ import annotations

import argparse
import json
import signal
from types import FrameType

from rich.console import Console
from rich.table import Table

from spillover.cli.parsing import some_of, whole_number_in
from spillover.commandline.parsing import add_json, add_seed
from spillover.commandline.terminal import open_console, say
from spillover.model.topology import DEFAULT_POLICY
from spillover.policy.overflow.choosers import POLICY_NAMES
from spillover_lab.bench.catalog import BENCHES, run_bench
from spillover_lab.bench.session import BenchPlan, BenchResult

RUNS = 5
RUNS_OF = {"affinity": 2, "capacity": 1, "membership": 1, "peers": 6, "tokens": 1}
RUNS_MAX = 1000
DURATION_S_MAX = 3600
REPLICAS_MAX = 100
MISSING = "\N{EN DASH}"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("name", choices=BENCHES, metavar="NAME", help=", ".join(BENCHES))
    add_seed(parser, "the load")
    parser.add_argument(
        "--runs", type=whole_number_in(1, RUNS_MAX), metavar="N",
        help="run each side so often, each time with another seed; medians are shown, for "
        f"tokens all jobs together (default {RUNS}; affinity {RUNS_OF['affinity']}; peers "
        f"{RUNS_OF['peers']}; capacity, membership, tokens and --quick 1)",
    )  # fmt: skip
    parser.add_argument(
        "--case", default="", metavar="SUBSTRING",
        help="run only cases whose name contains this (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--quick", action="store_true",
        help="run shortly, to see that it works: under 40 s; peers, proxy and tokens a minute, "
        "affinity, capacity, membership and queue two",
    )  # fmt: skip
    parser.add_argument(
        "--policy", type=some_of(POLICY_NAMES), metavar="P,P,...",
        help=f"for peers: run these policies of ours, each in turn (default: {DEFAULT_POLICY})",
    )  # fmt: skip
    parser.add_argument(
        "--duration-s", type=whole_number_in(1, DURATION_S_MAX), metavar="S",
        help="for peers and tokens: the length of each schedule (default: what its case needs)",
    )  # fmt: skip
    parser.add_argument(
        "--replicas", type=whole_number_in(1, REPLICAS_MAX), metavar="N",
        help="for tokens: share the jobs over so many copies of the pool side by side (default: "
        "as many as keep 0.7 of all cores busy)",
    )  # fmt: skip
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command; its exit status."""
    signal.signal(signal.SIGTERM, _interrupt)
    console = open_console()
    result = run_bench(options.name, plan_of(options), lambda line: say(console, line, style="dim"))
    _show(console, result)
    if options.json:
        print(json.dumps(result.as_dict()), flush=True)
    return 0


def plan_of(options: argparse.Namespace) -> BenchPlan:
    """Returns what is to be measured."""
    runs_full = RUNS_OF.get(options.name, RUNS)
    return BenchPlan(
        runs=options.runs or (1 if options.quick else runs_full),
        seed=options.seed,
        case=options.case,
        quick=options.quick,
        policies=options.policy and tuple(options.policy),
        duration_s=options.duration_s,
        replicas=options.replicas,
    )


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Ends it as Ctrl-C does, which cancels what runs in good order. Shells have what runs in the
    background ignore that one."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.default_int_handler(number, frame)
    signal.raise_signal(signal.SIGINT)


def _show(console: Console, result: BenchResult) -> None:
    """Print the table, what it was measured on, and the notes."""
    runs, machine = result.plan.runs, result.machine
    what = f"medians of {runs} runs" if runs > 1 else "one run"
    table = Table(title=f"bench {result.name}: {what}", title_justify="left", header_style="bold")
    for title in ("case", "value", "unit", "peer", "its value", "ratio"):
        right = title in ("value", "its value", "ratio")
        table.add_column(title, justify="right" if right else "left", no_wrap=right)
    for row in result.rows:
        ratio = MISSING if row.ratio is None else f"{row.ratio:.2f}"
        value = _with(row.value, row.half_width)
        peer_value = _with(row.peer_value, row.peer_half_width)
        table.add_row(row.case, value, row.unit, row.peer or MISSING, peer_value, ratio)
    console.print(table)
    say(
        console,
        f"On {machine['cpu']}, {machine['cores']} cores, {machine['system']}, "
        f"Python {machine['python']}; load when it began {machine['load_1min']}.",
    )
    for note in result.notes:
        say(console, note)


def _with(value: float | None, half_width: float | None) -> str:
    shown = MISSING if value is None else _number(value)
    return f"{shown} \N{PLUS-MINUS SIGN} {_number(half_width)}" if half_width else shown


def _number(value: float) -> str:
    """Returns it with about three digits, thousands apart."""
    decimals = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{decimals}f}".replace(",", " ")
