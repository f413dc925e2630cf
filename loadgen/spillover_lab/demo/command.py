"""`spillover demo`: five clusters on this machine, the paper's bursts twice, shown live; and
`spillover demo streams`: three sites in front of services that stream, one of which dies.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
from pathlib import Path
from typing import Any

from spillover.commandline.option_types import above_zero
from spillover.commandline.parsing import add_json, add_seed
from spillover.commandline.terminal import listed
from spillover.inputs.topology_file import load_topology
from spillover.model.errors import InputError
from spillover.model.topology import DEFAULT_POLICY
from spillover.policy.overflow.choosers import POLICY_NAMES
from spillover.workloads.generated import bursts_duration_s
from spillover_lab.demo.display import Display, closing_table
from spillover_lab.demo.report import report_page
from spillover_lab.demo.result import DemoResult, speedups
from spillover_lab.demo.run import DemoPlan, run_demo
from spillover_lab.report.formats import milliseconds
from spillover_lab.report.page import check_report, write_report

QUICK_DURATION_S = 7.0
"""One burst, at the first cluster, and time enough for its queue to come down again."""

NETWORKED_POLICIES = tuple(name for name in POLICY_NAMES if name != "isolated")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "show", nargs="?", choices=("bursts", "streams"), default="bursts",
        help="show bursts (default), or streams: a site dies in mid-stream, which takes 10 s "
        "and heeds only --seed and --json",
    )  # fmt: skip
    parser.add_argument(
        "--topology", default="ring5", metavar="T",
        help="the topology of the bursts: a YAML file, or a built-in name",
    )  # fmt: skip
    parser.add_argument(
        "--policy", choices=NETWORKED_POLICIES, default="paper",
        help="let the networked run decide by this policy",
    )  # fmt: skip
    add_seed(parser, "the workload")
    parser.add_argument("--quick", action="store_true", help="run one burst only, under 30 s")
    parser.add_argument(
        "--time-scale", type=above_zero, default=1.0, metavar="X",
        help="stretch time, for slow machines: 2 is twice as slow",
    )  # fmt: skip
    parser.add_argument(
        "--report", type=Path, default=Path("spillover-demo.html"), metavar="FILE",
        help="write the HTML report to this file",
    )  # fmt: skip
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command; its exit status."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if options.show == "streams":
        return _run_streams(options)
    plan = _plan_of(options)
    check_report(options.report)
    display = Display()
    return _end(run_demo(plan, display), options, display)


def _plan_of(options: argparse.Namespace) -> DemoPlan:
    topology = load_topology(options.topology)
    duration_s = QUICK_DURATION_S if options.quick else bursts_duration_s(len(topology.clusters))
    return DemoPlan(
        topology=topology,
        source=options.topology,
        policy=options.policy,
        seed=options.seed,
        duration_s=duration_s,
        time_scale=options.time_scale,
    )


def _end(result: DemoResult, options: argparse.Namespace, display: Display) -> int:
    """Tell what came of it, and write the report; the exit status."""
    if options.json:
        print(json.dumps(_as_json(result, options.report)), flush=True)
    else:
        display.console.print(closing_table(result))
    write_report(report_page(result), options.report)
    _tell_end(result, options.report, display)
    return 0 if result.ledgers_balanced else 1


def _run_streams(options: argparse.Namespace) -> int:
    from spillover_lab.demo.streams.show import run_streams_demo

    _check_no_others(options)
    display = Display()
    result = asyncio.run(run_streams_demo(options.seed, display.say))
    if options.json:
        print(json.dumps(result.as_json()), flush=True)
    else:
        display.console.print(result.strips())
    problems = result.problems()
    for line in problems:
        display.say(line)
    return 1 if problems else 0


def _check_no_others(options: argparse.Namespace) -> None:
    """What is for bursts alone would be ignored."""
    parser = argparse.ArgumentParser()
    configure(parser)
    for name in ("topology", "policy", "quick", "time_scale", "report"):
        if getattr(options, name) != parser.get_default(name):
            option = f"--{name.replace('_', '-')}"
            raise InputError(option, "", "expected none with streams: it is for bursts")


def _as_json(result: DemoResult, report: Path) -> dict[str, Any]:
    isolated, networked = result.isolated.load, result.networked.load
    simulated = result.simulated
    simulated_speedup = speedups(
        simulated["isolated"]["system_time_ms"], simulated["networked"]["system_time_ms"]
    )
    return {
        "isolated": isolated,
        "networked": networked,
        "speedup": speedups(isolated["system_time_ms"], networked["system_time_ms"]),
        "simulated": {**simulated, "speedup": simulated_speedup},
        "ledgers_balanced": result.ledgers_balanced,
        "report": str(report),
        "topology": result.topology.name,
        "policy": result.networked.policy,
        "seed": result.seed,
        "time_scale": result.time_scale,
    }


def _tell_end(result: DemoResult, report: Path, display: Display) -> None:
    for run_result in (result.isolated, result.networked):
        if not run_result.load["kept_up"]:
            lag_ms = run_result.load["schedule_lag_ms"]["p99"]
            display.say(
                f"The machine was too busy: requests left up to {lag_ms:.0f} ms late (p99). "
                "Trust the figures less, or stretch time with --time-scale 2."
            )
        left = run_result.load["sent"] - run_result.load["outcomes"]["ok"]
        if left:
            outcomes = {k: n for k, n in run_result.load["outcomes"].items() if n and k != "ok"}
            display.say(f"{run_result.policy}: {left} requests did not end ok: {listed(outcomes)}")
    if DEFAULT_POLICY in result.simulated:
        times = result.simulated[DEFAULT_POLICY]["system_time_ms"]
        mean, p99 = (milliseconds(times[field]) for field in ("mean", "p99"))
        display.say(
            f"The default policy, {DEFAULT_POLICY}, would have a mean of {mean} ms and a p99 of "
            f"{p99} ms on the same requests, as simulated."
        )
    balanced = (
        "every ledger balanced throughout"
        if result.ledgers_balanced
        else ("A LEDGER DID NOT BALANCE: this is a bug in Spillover")
    )
    display.say(f"{balanced}. Open the report in a browser: {report.resolve().as_uri()}")
