"""`spillover sim probing`: simulate producers and consumers of the distributed queue."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

from rich.table import Table

from spillover.cli.models import ModelResult
from spillover.cli.models.progress import progress_bar
from spillover.commandline.option_types import above_zero, at_least_zero, whole_number
from spillover.commandline.parsing import add_seed
from spillover.commandline.terminal import open_console, say
from spillover.model.errors import InputError
from spillover.sim.queue.measuring import ProbingRun
from spillover.sim.queue.system import ProbingSystem, alike, fast_and_slow

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
        "--objects", type=whole_number, default=100_000, metavar="K",
        help="simulate until so many are consumed",
    )  # fmt: skip
    parser.add_argument(
        "--avoid-visited", action="store_true", help="probe no producer twice for one object"
    )
    parser.add_argument(
        "--engine", choices=("full", "fast"), default="fast",
        help="run Johnson's pseudo-code, compiled (fast), or the machines of the service (full)",
    )  # fmt: skip
    add_seed(parser)


def run(options: argparse.Namespace) -> ModelResult:
    """Run the model."""
    system = read_system(options)
    simulate = _engine(options.engine)
    avoid_visited = options.avoid_visited
    with progress_bar("objects", options.objects) as on_progress:
        try:
            measured = simulate(
                system, options.objects, options.seed, on_progress, avoid_visited=avoid_visited
            )
        except InputError as error:
            option = f"--{error.field.replace('_', '-')}"
            raise InputError(option, "", error.expected) from None
    result = measured.as_dict()
    return ModelResult(result, partial(_print, result))


def _engine(name: str) -> Callable[..., ProbingRun]:
    if name == "fast":
        from spillover.sim.queue.compiled import simulate as fast

        return fast
    from spillover.sim.queue.full import simulate as full

    return full


def _print(result: dict[str, Any]) -> None:
    table = Table("figure", "measured", "± (95 %)")
    for name, label in LABELS.items():
        table.add_row(label, f"{result[name]:.6g}", f"{result['ci95'][name]:.2g}")
    console = open_console()
    console.print(table)
    say(console, f"{result['objects']} objects")


def add_system_options(parser: argparse.ArgumentParser) -> None:
    """Declare producers, consumers, messages and the protocol; times are in any one unit."""
    for option, read, metavar, text in (
        ("--producers", whole_number, "N", "the number of producers"),
        ("--consumers", whole_number, "M", "the number of consumers"),
        ("--production-rate", above_zero, "L", "the objects per time of a slow producer"),
        ("--consumption-rate", above_zero, "U", "the objects per time of one consumer"),
        ("--message-time", at_least_zero, "R", "the mean time of a message, one way"),
        ("--buffers", whole_number, "F", "the objects that a producer can hold"),
        ("--max-hops", whole_number, "H", "the hops of a request for an object before it parks"),
    ):
        parser.add_argument(option, required=True, type=read, metavar=metavar, help=text)
    for option, read, metavar, text in (
        ("--fast-share", at_least_zero, "S", "the share of producers that are fast (default: 0)"),
        ("--fast-factor", above_zero, "X", "the rate of a fast producer, in those of a slow one"),
        ("--fast-access", at_least_zero, "S", "the share of probes that go to fast producers"),
        ("--producers-per-consumer", whole_number, "K", "the producers that a consumer may probe"),
    ):
        parser.add_argument(option, type=read, metavar=metavar, help=text)


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
