"""The options that describe a schedule, and the schedule that they describe.

Shared by everything that takes one: the load generator sends it, the simulator replays it.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from spillover.commandline.option_types import above_zero, at_least_zero, named
from spillover.commandline.parsing import add_seed
from spillover.model.errors import InputError
from spillover.model.ids import ClusterId
from spillover.model.request import TYPE_LENGTH_MAX, is_name
from spillover.model.schedule import Schedule
from spillover.model.topology import Topology
from spillover.workloads import generated, traces

CONTEXT_TOKEN_MS = 0.25
GENERATED_TOKEN_MS = 30.0

T = TypeVar("T")

_AZURE_COLUMN = "TIMESTAMP"
_AZURE_OPTIONS = ("context_token_ms", "generated_token_ms", "assign")
_OPTIONS = {
    "rate_per_s": "--rate",
    "duration_s": "--duration-s",
    "rate_per_s, duration_s": "--rate, --duration-s",
    "time_scale": "--time-scale",
}
"""Options by the parameters of `generated` that they become."""


def add_schedule_options(parser: argparse.ArgumentParser) -> None:
    """Declare everything that says which requests there are: workload or trace, and the seed."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--workload", choices=("bursts", "poisson"),
        help="draw the requests: bursts (the users of Lai & Polak, a burst at one cluster after "
        "the other) or poisson",
    )  # fmt: skip
    source.add_argument(
        "--trace", metavar="FILE",
        help="read the requests from this file: CSV of requests, or Azure's LLM format",
    )  # fmt: skip
    parser.add_argument(
        "--rate", type=above_zero, metavar="R",
        help="with poisson: so many requests per second at each cluster",
    )  # fmt: skip
    parser.add_argument(
        "--duration-s", type=above_zero, metavar="D",
        help="the length of the schedule (default: a whole trace; for bursts 5 s per cluster "
        "and 20 s)",
    )  # fmt: skip
    parser.add_argument(
        "--type", type=named("TYPE=WEIGHT", above_zero), action="append", metavar="TYPE=WEIGHT",
        help="give a workload's requests this type, drawn by its weight; may be repeated "
        "(default: no type)",
    )  # fmt: skip
    _add_azure_options(parser)
    parser.add_argument(
        "--time-scale", type=above_zero, default=1.0, metavar="X",
        help="multiply the schedule's times and service times, and where clusters are simulated "
        "all of theirs; 2 is twice as slow",
    )  # fmt: skip
    add_seed(parser, "the workload")


def _add_azure_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--context-token-ms", type=at_least_zero, metavar="MS",
        help=f"the service time per context token of an Azure trace (default {CONTEXT_TOKEN_MS})",
    )  # fmt: skip
    parser.add_argument(
        "--generated-token-ms", type=at_least_zero, metavar="MS",
        help="the service time per generated token of an Azure trace (default "
        f"{GENERATED_TOKEN_MS})",
    )  # fmt: skip
    parser.add_argument(
        "--assign", metavar="CLUSTER",
        help="send all requests of an Azure trace to this cluster, or staggered: each cluster "
        f"gets all of them, at another time of the day (default {traces.ROUND_ROBIN})",
    )  # fmt: skip


def read_schedule(
    options: argparse.Namespace, cluster_ids: Sequence[ClusterId]
) -> tuple[Schedule, float]:
    """Returns the schedule that the options describe, and its length in seconds once stretched.

    Raises InputError naming the option or the trace's line.
    """
    if options.rate is not None and options.workload != "poisson":
        raise InputError("--rate", "", "expected only with --workload poisson")
    _check_azure_options(options)
    weights = _type_weights(options)
    try:
        schedule, duration_s = _schedule(options, cluster_ids)
        if weights:
            schedule = generated.typed(schedule, weights, seed=options.seed)
        return generated.stretch(schedule, options.time_scale), duration_s * options.time_scale
    except InputError as error:
        if error.source != "workload" or error.field not in _OPTIONS:
            raise
        raise InputError(_OPTIONS[error.field], "", error.expected) from None


def _type_weights(options: argparse.Namespace) -> dict[str, float]:
    weights: dict[str, float] = {}
    for kind, weight in options.type or ():
        if options.trace:
            raise InputError("--type", "", "expected only with --workload: a trace has its own")
        if not is_name(kind, TYPE_LENGTH_MAX):
            raise InputError("--type", "", f"expected the name of a type, got {kind!r}")
        if kind in weights:
            raise InputError("--type", "", f"expected each type once, got {kind!r} twice")
        weights[kind] = weight
    return weights


def stretched(topology: Topology, time_scale: float) -> Topology:
    """Returns the topology as slow as the schedule is made by --time-scale.

    Raises InputError naming the option where a time of the topology leaves its range.
    """
    try:
        return topology.stretched(time_scale)
    except InputError as error:
        expected = f"{error.field} stretched by it: {error.expected}"
        raise InputError("--time-scale", "", expected) from None


def _schedule(
    options: argparse.Namespace, cluster_ids: Sequence[ClusterId]
) -> tuple[Schedule, float]:
    """Returns the schedule of the options, not stretched yet, and its length."""
    if options.trace:
        return _trace(options, cluster_ids)
    if options.workload == "bursts":
        duration_s = options.duration_s or generated.bursts_duration_s(len(cluster_ids))
        schedule = generated.bursts(cluster_ids, duration_s=duration_s, seed=options.seed)
    else:
        duration_s = _required("--duration-s", options.duration_s)
        rate_per_s = _required("--rate", options.rate)
        schedule = generated.poisson(
            cluster_ids, rate_per_s=rate_per_s, duration_s=duration_s, seed=options.seed
        )
    return schedule, duration_s


def _check_azure_options(options: argparse.Namespace) -> None:
    """Raise InputError where an option could have no effect."""
    given = [name for name in _AZURE_OPTIONS if getattr(options, name) is not None]
    if given and not (options.trace and _may_be_azure(Path(options.trace))):
        option = f"--{given[0].replace('_', '-')}"
        raise InputError(option, "", "expected only with a trace in Azure's format")


def _may_be_azure(trace: Path) -> bool:
    """Returns whether the trace may be Azure's. One that cannot be read, or not twice, may be:
    reading it reports its faults."""
    if not trace.is_file():
        return True
    try:
        with trace.open(encoding="utf-8-sig", newline="") as lines:
            header = next(csv.reader(lines), [])
    except (OSError, ValueError, csv.Error):
        return True
    return not header or _AZURE_COLUMN in [name.strip() for name in header]


def _or_default(value: T | None, default: T) -> T:
    return default if value is None else value


def _trace(options: argparse.Namespace, cluster_ids: Sequence[ClusterId]) -> tuple[Schedule, float]:
    """Returns the trace up to the duration, where one is given, and its length."""
    schedule = traces.read_trace(
        options.trace,
        cluster_ids=cluster_ids,
        context_token_ms=_or_default(options.context_token_ms, CONTEXT_TOKEN_MS),
        generated_token_ms=_or_default(options.generated_token_ms, GENERATED_TOKEN_MS),
        assign=_or_default(options.assign, traces.ROUND_ROBIN),
    )
    duration_s: float | None = options.duration_s
    if duration_s is None:
        return schedule, schedule[-1].time_s
    return [arrival for arrival in schedule if arrival.time_s < duration_s], duration_s


def _required(option: str, value: float | None) -> float:
    if value is None:
        raise InputError(option, "", "expected with --workload poisson, got none")
    return value
