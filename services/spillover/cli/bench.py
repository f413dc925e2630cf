"""`spillover bench NAME`: what Spillover costs, beside a peer measured in the same run."""

from __future__ import annotations

import argparse
import json
import signal
from pathlib import Path
from types import FrameType

from spillover.cli.parsing import some_of, whole_number_in
from spillover.model.topology import DEFAULT_POLICY
from spillover.policy.overflow.choosers import POLICY_NAMES
from spillover.tools.bench.catalog import BENCHES, run_bench
from spillover.tools.bench.display import Display
from spillover.tools.bench.model import BenchPlan
from spillover_loadgen.option_types import whole_number

RUNS = 5
RUNS_OF = {"membership": 1, "peers": 6, "tokens": 1}
RUNS_MAX = 1000
DURATION_S_MAX = 3600
REPLICAS_MAX = 100


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("name", choices=BENCHES, metavar="NAME", help=", ".join(BENCHES))
    parser.add_argument("--seed", type=whole_number, default=1, metavar="N", help="of the load")
    parser.add_argument(
        "--runs", type=whole_number_in(1, RUNS_MAX), metavar="N",
        help="of each side, each with a seed of its own; medians are shown, of tokens all jobs "
        f"together (default {RUNS}, {RUNS_OF['peers']} of peers, 1 of membership, of tokens or "
        "with --quick)",
    )  # fmt: skip
    parser.add_argument(
        "--case", default="", metavar="SUBSTRING", help="only cases whose name contains this"
    )
    parser.add_argument(
        "--quick", action="store_true",
        help="short runs, to see that it works: under 40 s, a minute of peers, of proxy and of "
        "tokens, two of membership and of queue",
    )  # fmt: skip
    parser.add_argument(
        "--policy", type=some_of(POLICY_NAMES), metavar="P,P,...",
        help="of peers: these policies of ours, "
        f"each in turn (default: {DEFAULT_POLICY})",
    )  # fmt: skip
    parser.add_argument(
        "--duration-s", type=whole_number_in(1, DURATION_S_MAX), metavar="S",
        help="of peers and tokens: the length of each schedule (default: what its case needs)",
    )  # fmt: skip
    parser.add_argument(
        "--replicas", type=whole_number_in(1, REPLICAS_MAX), metavar="N",
        help="of tokens: so many copies of the pool side by side share the jobs (default: as many "
        "as keep 0.7 of all cores busy)",
    )  # fmt: skip
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="of membership: an HTML page on it"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def _interrupt(number: int, frame: FrameType | None) -> None:
    """As Ctrl-C, which cancels what runs in good order. Shells have what runs in the background
    ignore that one."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.default_int_handler(number, frame)
    signal.raise_signal(signal.SIGINT)


def run(options: argparse.Namespace) -> int:
    """Run the command; its exit status."""
    signal.signal(signal.SIGTERM, _interrupt)
    display = Display()
    result = run_bench(options.name, plan_of(options), display.say)
    display.show(result)
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
        report=options.report,
    )
