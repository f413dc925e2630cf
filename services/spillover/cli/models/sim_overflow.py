"""`spillover sim overflow`: simulate a schedule through the clusters of a topology; several
policies side by side on the same schedule, and with faults."""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rich.console import Console

from spillover.cli.models import ModelResult
from spillover.cli.models.progress import OnProgress, progress_bars
from spillover.cli.parsing import some_of
from spillover.commandline.option_types import above_zero, at_least_zero
from spillover.commandline.terminal import listed, open_console, say, table_of
from spillover.inputs.topology_file import load_topology
from spillover.model.errors import InputError
from spillover.model.schedule import Schedule
from spillover.model.statistics import SUMMARY_FIELDS
from spillover.model.topology import Topology
from spillover.policy.overflow.choosers import POLICY_NAMES
from spillover.sim.overflow.shared import SHARED
from spillover.workloads.generated import sized
from spillover.workloads.options import add_schedule_options, read_schedule, stretched

POLICIES = (*POLICY_NAMES, SHARED)

TYPE_FIELDS = ("mean", "p50", "p99", "max")
"""The columns of system times by type: as many as fit beside how many were blocked."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--topology", required=True, metavar="T",
        help="the topology: a YAML file, or a built-in name",
    )  # fmt: skip
    parser.add_argument(
        "--policy", choices=POLICIES,
        help="decide by this policy instead of the topology's own",
    )  # fmt: skip
    parser.add_argument(
        "--compare", type=some_of(POLICIES), metavar="P,P,...",
        help=f"run these policies side by side on the same schedule: {', '.join(POLICIES)}",
    )  # fmt: skip
    parser.add_argument(
        "--shadow", choices=POLICY_NAMES,
        help="ask this policy along, without following it: how often it differs, and what it "
        "would gain (with --engine full)",
    )  # fmt: skip
    parser.add_argument(
        "--engine", choices=("full", "fast"), default="full",
        help="simulate with the services' own code (full, default), or with the same rules, "
        "compiled, which knows no faults (fast)",
    )  # fmt: skip
    parser.add_argument(
        "--faults",
        metavar="F",
        help="let go wrong what this file says and when it says it, or random:SEED",
    )
    parser.add_argument(
        "--bears", type=_bears, metavar="N[,S:N...]",
        help="have each cluster's service bear so many requests at a time, and other numbers "
        "from later seconds on (4,60:32): more of them slow each other down",
    )  # fmt: skip
    parser.add_argument(
        "--sizes", type=above_zero, metavar="C2",
        help="draw services that differ: lognormal, with the mean of their cluster and this "
        "squared coefficient of variation",
    )  # fmt: skip
    parser.add_argument(
        "--says", type=at_least_zero, metavar="OFF",
        help="have requests say how large they are, and clusters count work: off by so much, the "
        "standard deviation of a logarithm (0: exact)",
    )  # fmt: skip
    parser.add_argument(
        "--no-keys", action="store_true",
        help="send requests without keys: none is run again whose outcome is unknown",
    )  # fmt: skip
    parser.add_argument(
        "--plot", metavar="FILE",
        help="draw the system times to this file: .png, .svg or .pdf",
    )  # fmt: skip
    add_schedule_options(parser)


def _bears(text: str) -> list[tuple[float, int]]:
    """Returns the instants in seconds, and what services bear from then on."""
    found: list[tuple[float, int]] = []
    for place, part in enumerate(text.split(",")):
        since, _, number = part.rpartition(":")
        try:
            since_s, bears = float(since or "0"), int(number)
        except ValueError:
            since_s, bears = -1.0, 0
        is_first = place == 0 and since_s == 0.0
        is_later = place > 0 and bool(since) and found[-1][0] < since_s < math.inf
        if bears < 1 or not (is_first or is_later):
            expected = "expected a number above 0, then SECONDS:NUMBER with later times"
            raise argparse.ArgumentTypeError(f"{expected}, got {text!r}")
        found.append((since_s, bears))
    return found


def run(options: argparse.Namespace) -> ModelResult:
    """Run the model."""
    if options.compare and options.policy:
        raise InputError("--compare", "", "expected without --policy")
    topology = load_topology(options.topology)
    if options.shadow is not None:
        _check_shadow(options)
        topology = replace(topology, shadow=options.shadow)
    if options.bears is not None:
        _check_bears(options)
    if options.says is not None:
        _check_says(options)
    plot = _plotter(options.plot)
    policies: Sequence[str] = options.compare or [options.policy or topology.policy]
    schedule, duration_s = read_schedule(options, topology.cluster_ids)
    if options.sizes is not None:
        schedule = _sized(options, schedule, topology)
    if options.says is not None and all(one.service_ms is None for one in schedule):
        expected = "expected with --sizes or a trace with service_ms: others say nothing"
        raise InputError("--says", "", expected)
    # Clusters, links and deadlines with the requests: else 2 would be half the load.
    topology = stretched(topology, options.time_scale)
    simulate = _engine(options, topology, duration_s)
    try:
        with progress_bars(policies, len(schedule)) as on_progress:
            runs = {policy: simulate(policy, schedule, on_progress(policy)) for policy in policies}
    except InputError as error:
        if (error.source, error.field) != ("schedule", "type") or options.trace:
            raise
        raise InputError("--type", "", error.expected) from None
    results = {policy: run.as_dict() for policy, run in runs.items()}
    if plot is not None:
        plot(runs)
    one = _as_one(topology, results, compared=bool(options.compare))
    return ModelResult(one, partial(_print, results))


def _check_shadow(options: argparse.Namespace) -> None:
    if options.engine == "fast":
        raise InputError("--shadow", "", "expected with --engine full: the fast one asks nobody")
    if SHARED in (options.compare or [options.policy]):
        raise InputError("--shadow", "", f"expected without {SHARED}, which decides nothing")


def _check_bears(options: argparse.Namespace) -> None:
    if options.engine == "fast":
        raise InputError("--bears", "", "expected with --engine full: the fast one has no services")
    if options.faults is not None or SHARED in (options.compare or [options.policy]):
        raise InputError("--bears", "", f"expected without --faults and without {SHARED}")


def _check_says(options: argparse.Namespace) -> None:
    if options.engine == "fast":
        raise InputError("--says", "", "expected with --engine full: the fast one counts requests")
    if options.faults is not None or SHARED in (options.compare or [options.policy]):
        raise InputError("--says", "", f"expected without --faults and without {SHARED}")


def _sized(options: argparse.Namespace, schedule: Schedule, topology: Topology) -> Schedule:
    if options.trace:
        raise InputError("--sizes", "", "expected only with --workload: a trace has its own")
    means_ms = {one.id: one.service_ms * options.time_scale for one in topology.clusters}
    return sized(schedule, options.sizes, means_ms, seed=options.seed)


def _engine(
    options: argparse.Namespace, topology: Topology, duration_s: float
) -> Callable[[str, Schedule, OnProgress], Any]:
    """Returns simulate(policy, schedule, on_progress), which returns the run as the options have
    it."""
    seed = options.seed
    if options.faults is not None and options.engine == "fast":
        raise InputError("--faults", "", "expected with --engine full: the fast one has none")
    if options.engine == "fast":
        from spillover.sim.fast.overflow.run import run_fast

        def fast(policy: str, schedule: Schedule, on_progress: OnProgress) -> Any:
            if policy == SHARED:
                return run_fast(topology, schedule, seed, on_progress, shared=True)
            return run_fast(topology.with_policy(policy), schedule, seed, on_progress)

        return fast
    faults = None
    if options.faults is not None:
        from spillover.inputs.fault_file import load_faults

        if SHARED in (options.compare or [options.policy]):
            raise InputError("--faults", "", f"expected without {SHARED}, which has no clusters")
        faults = load_faults(options.faults, topology, duration_s)

    def full(policy: str, schedule: Schedule, on_progress: OnProgress) -> Any:
        from spillover.sim.overflow.run import run_overflow
        from spillover.sim.overflow.shared import run_shared

        if policy == SHARED:
            return run_shared(topology, schedule, seed, on_progress)
        return run_overflow(
            topology.with_policy(policy),
            schedule,
            seed,
            on_progress,
            faults=faults,
            keyed=not options.no_keys,
            replay=shlex.join(["spillover", *sys.argv[1:]]),
            bears=options.bears or (),
            says_off=options.says,
        )

    return full


def _plotter(file: str | None) -> Callable[[Any], None] | None:
    """Returns the function that draws the runs; the file is checked before they take their time."""
    if file is None:
        return None
    from spillover.cli.models.overflow_plot import check_plot_file, draw_runs

    path = check_plot_file(file)
    return lambda runs: draw_runs(runs, path)


def _as_one(
    topology: Topology, results: dict[str, dict[str, Any]], *, compared: bool
) -> dict[str, Any]:
    first = next(iter(results.values()))
    if not compared:
        return first
    return {
        "engine": first["engine"],
        "topology": topology.name,
        "requests": first["requests"],
        "policies": results,
    }


def _print(results: dict[str, dict[str, Any]]) -> None:
    console = open_console()
    if len(results) == 1:
        (result,) = results.values()
        rows = {c: figures["system_time_ms"] for c, figures in result["per_cluster"].items()}
        rows["all"] = result["system_time_ms"]
        _print_times(console, f"{result['topology']}, {result['policy']}", "home", rows)
        _print_types(console, "type", result.get("per_type", {}))
    else:
        rows = {policy: result["system_time_ms"] for policy, result in results.items()}
        topology = next(iter(results.values()))["topology"]
        _print_times(console, topology, "policy", rows)
        types = {
            f"{policy}, {kind}": told
            for policy, result in results.items()
            for kind, told in result.get("per_type", {}).items()
        }
        _print_types(console, "policy, type", types)
    for policy, result in results.items():
        lead = "" if len(results) == 1 else f"{policy}: "
        others = listed({k: n for k, n in result["outcomes"].items() if k != "done"})
        say(
            console,
            f"{lead}{result['requests']} requests, {result['forwarded_share']:.1%} forwarded, "
            f"hops {listed(result['hops']) or 'none'}, longest queue {result['queue_length_max']}, "
            + (f"not done ({others}), " if others else "")
            + (f"{result['faults']} faults, " if result.get("faults") else "")
            + f"{result['requests_per_s']:.0f} requests/s simulated",
        )
        for site in result.get("sites", {}).values():
            say(console, lead + _site_words(site))
        if shadow := result.get("shadow"):
            say(console, lead + _shadow_words(shadow))


def _site_words(told: dict[str, Any]) -> str:
    """Returns a sentence on the nodes of a cluster, and what became of those that died."""
    nodes = told["nodes"].items()
    shares = listed({name: node["share"] for name, node in nodes})
    lost = listed({name: node["lost"] for name, node in nodes if node["lost"]})
    words = f"servers {shares}; lost with nodes: {lost or 'none'}"
    if took_s := told["taken_over_s"]:
        words += f"; servers of the dead in use again after {max(took_s):.2f} s at most"
    return words


def _shadow_words(told: dict[str, Any]) -> str:
    """Returns a sentence on how a policy would have decided that was asked along."""
    asked = told["same"] + told["other"]
    share = told["other"] / asked if asked else 0.0
    return (
        f"{told['policy']}, asked along, differs in {share:.1%} of {asked} decisions: "
        f"{told['saved_ms'] / 1e3:.1f} s sooner in all, {told['lost_ms'] / 1e3:.1f} s later, by "
        "estimate"
    )


def _print_types(console: Console, column: str, types: dict[str, Any]) -> None:
    if not types:
        return
    table = table_of(column, ("requests", "blocked", *TYPE_FIELDS), title="system time in ms")
    for name, told in types.items():
        times = told["system_time_ms"]
        cells = _cells(times, TYPE_FIELDS)
        table.add_row(name, str(told["requests"]), f"{told['blocked']:.4f}", *cells)
    console.print(table)


def _print_times(console: Console, what: str, column: str, rows: dict[str, Any]) -> None:
    table = table_of(column, SUMMARY_FIELDS, title=f"system time in ms: {what}")
    for name, times in rows.items():
        table.add_row(name, *_cells(times, SUMMARY_FIELDS))
    console.print(table)


def _cells(times: dict[str, float | None], fields: Sequence[str]) -> list[str]:
    figures = [times[field] for field in fields]
    return ["-" if figure is None else f"{figure:.1f}" for figure in figures]
