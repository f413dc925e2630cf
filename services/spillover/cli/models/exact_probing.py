"""`spillover exact probing`: Johnson's model of the distributed queue. The options that describe
a system of producers and consumers are here, for `sim probing` too."""

from __future__ import annotations

import argparse
from functools import partial

from rich.table import Table

from spillover.cli.models import Answer
from spillover.model.errors import InputError
from spillover.sim.theory.queue.system import ProbingSystem, alike, fast_and_slow
from spillover_loadgen.option_types import above_zero, at_least_zero, whole_number
from spillover_loadgen.terminal import open_console

LABELS = {
    "probes_mean": "probes of a request",
    "wait_mean": "wait for an object",
    "empty_probability": "probes that find nothing",
    "producer_utilization": "production capacity in use",
    "consumer_utilization": "consumers' time in use",
    "throughput": "objects per unit of time",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_system_options(parser)
    parser.add_argument(
        "--seed", type=whole_number, default=1, metavar="N", help="taken; nothing is random here"
    )


def run(options: argparse.Namespace) -> Answer:
    """Solve the model."""
    from spillover.sim.theory.queue.chain import solve

    figures = solve(read_system(options)).as_dict()
    return Answer(figures, partial(_print, figures))


def _print(figures: dict[str, float]) -> None:
    table = Table("figure", "model")
    for name, value in figures.items():
        table.add_row(LABELS[name], f"{value:.6g}")
    open_console().print(table)


def add_system_options(parser: argparse.ArgumentParser) -> None:
    """Producers, consumers, messages and the protocol; all times in one unit of one's choice."""
    add = parser.add_argument
    add("--producers", required=True, type=whole_number, metavar="N", help="how many")
    add("--consumers", required=True, type=whole_number, metavar="M", help="how many")
    add("--production-rate", required=True, type=above_zero, metavar="L", help="of a slow producer")
    add("--consumption-rate", required=True, type=above_zero, metavar="U", help="of one consumer")
    add("--message-time", required=True, type=at_least_zero, metavar="R", help="mean, one way")
    add("--buffers", required=True, type=whole_number, metavar="F", help="objects a producer holds")
    add("--max-hops", required=True, type=whole_number, metavar="H", help="probes before parking")
    add("--fast-share", type=at_least_zero, metavar="S", help="share of producers that are fast")
    add("--fast-factor", type=above_zero, metavar="X", help="a fast one makes X L objects")
    add("--fast-access", type=at_least_zero, metavar="S", help="share of probes to fast ones")
    add("--producers-per-consumer", type=whole_number, metavar="K", help="that it may probe")


def read_system(options: argparse.Namespace) -> ProbingSystem:
    """Returns the system described; InputError names the option that is wrong."""
    try:
        return _system(options)
    except InputError as error:
        option = f"--{error.field.replace('_', '-')}"
        raise InputError(option, "", error.expected) from None


def _system(options: argparse.Namespace) -> ProbingSystem:
    producers, rate = options.producers, options.production_rate
    if options.fast_share is None:
        for field in ("fast_factor", "fast_access"):
            if getattr(options, field) is not None:
                raise InputError("", field, "expected along with --fast-share")
        kinds = alike(producers, rate)
    elif options.fast_factor is None:
        raise InputError("", "fast_factor", "expected along with --fast-share")
    else:
        share, factor = options.fast_share, options.fast_factor
        kinds = fast_and_slow(
            producers, rate, share=share, factor=factor, access=options.fast_access
        )
    return ProbingSystem(
        kinds=kinds,
        consumers=options.consumers,
        consumption_rate=options.consumption_rate,
        message_time=options.message_time,
        buffers=options.buffers,
        max_hops=options.max_hops,
        producers_per_consumer=options.producers_per_consumer,
    )
