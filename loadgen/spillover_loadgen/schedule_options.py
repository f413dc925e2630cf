"""The options that describe a schedule, and the schedule that they describe.

Shared by everything that takes one: the load generator sends it, the simulator replays it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from spillover.model.errors import InputError
from spillover.model.ids import ClusterId
from spillover.model.schedule import Schedule
from spillover_loadgen import traces, workloads
from spillover_loadgen.option_types import above_zero, at_least_zero, whole_number


def add_schedule_options(parser: argparse.ArgumentParser) -> None:
    """Declare everything that says which requests there are: workload or trace, and the seed."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--workload",
        choices=("bursts", "poisson"),
        help="bursts: the users of Lai & Polak, a burst at one cluster after the other",
    )
    source.add_argument("--trace", metavar="FILE", help="CSV of requests, or Azure's LLM format")
    parser.add_argument(
        "--rate",
        type=above_zero,
        metavar="R",
        help="requests per second at each cluster, for poisson",
    )
    parser.add_argument(
        "--duration-s",
        type=above_zero,
        metavar="D",
        help="length of the schedule; for bursts 5 s per cluster and 20 s if not given",
    )
    _add_azure_options(parser)
    parser.add_argument(
        "--time-scale",
        type=above_zero,
        default=1.0,
        metavar="X",
        help="multiply the schedule's times and service times; 2 is twice as slow",
    )
    parser.add_argument(
        "--seed", type=whole_number, default=1, help="of the workload (default %(default)s)"
    )


def _add_azure_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--context-token-ms",
        type=at_least_zero,
        default=0.25,
        metavar="MS",
        help="service time per context token of an Azure trace (default %(default)s)",
    )
    parser.add_argument(
        "--generated-token-ms",
        type=at_least_zero,
        default=30.0,
        metavar="MS",
        help="service time per generated token of an Azure trace (default %(default)s)",
    )
    parser.add_argument(
        "--assign",
        default=traces.ROUND_ROBIN,
        metavar="CLUSTER",
        help="the home of an Azure trace's requests, or staggered: everybody's, each at another "
        "time of the day (default %(default)s)",
    )


def read_schedule(
    options: argparse.Namespace, cluster_ids: Sequence[ClusterId]
) -> tuple[Schedule, float]:
    """The schedule that the options describe, and its length in seconds once stretched.

    Raises InputError naming the option or the trace's line.
    """
    if options.rate is not None and options.workload != "poisson":
        raise InputError("--rate", "", "expected only with --workload poisson")
    if options.trace:
        schedule, duration_s = _trace(options, cluster_ids)
    elif options.workload == "bursts":
        duration_s = options.duration_s or workloads.bursts_duration_s(len(cluster_ids))
        schedule = workloads.bursts(cluster_ids, duration_s=duration_s, seed=options.seed)
    else:
        duration_s = _required("--duration-s", options.duration_s)
        rate_per_s = _required("--rate", options.rate)
        schedule = workloads.poisson(
            cluster_ids, rate_per_s=rate_per_s, duration_s=duration_s, seed=options.seed
        )
    return workloads.stretch(schedule, options.time_scale), duration_s * options.time_scale


def _trace(options: argparse.Namespace, cluster_ids: Sequence[ClusterId]) -> tuple[Schedule, float]:
    """The trace as far as the duration goes, where one is given."""
    schedule = traces.read_trace(
        options.trace,
        cluster_ids=cluster_ids,
        context_token_ms=options.context_token_ms,
        generated_token_ms=options.generated_token_ms,
        assign=options.assign,
    )
    duration_s: float | None = options.duration_s
    if duration_s is None:
        return schedule, schedule[-1].time_s
    return [arrival for arrival in schedule if arrival.time_s < duration_s], duration_s


def _required(option: str, value: float | None) -> float:
    if value is None:
        raise InputError(option, "", "expected with --workload poisson, got none")
    return value
