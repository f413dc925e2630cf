"""The options of `spillover-loadgen queue`, and what it prints."""

from __future__ import annotations

import argparse
from typing import Any

from spillover.commandline.option_types import above_zero, at_least_zero, whole_number
from spillover.commandline.parsing import add_json, add_seed
from spillover.commandline.terminal import listed, open_console, say, show_table, table_of
from spillover.model.errors import InputError
from spillover_loadgen.queue_driver import QueueLoad
from spillover_loadgen.queue_record import OBJECT_BYTES_MIN
from spillover_loadgen.targets import producer

SUMMARY = "put objects into a queue, and take them, at given rates"
DESCRIPTION = """\
Put objects into a queue in open loop, have consumers take and acknowledge them, and check that each
comes once and in order.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--target", type=producer, action="append", required=True, metavar="PRODUCER=URL",
        help="a producer of the queue; repeat it for each of them",
    )  # fmt: skip
    parser.add_argument(
        "--produce-rate", type=at_least_zero, required=True, metavar="R",
        help="put so many objects per second at each producer, at exponential intervals",
    )  # fmt: skip
    parser.add_argument(
        "--consumers", type=whole_number, required=True, metavar="N",
        help="the number of consumers; each holds one object at a time",
    )  # fmt: skip
    parser.add_argument(
        "--consume-ms", type=at_least_zero, default=0.0, metavar="MS",
        help="the mean of the exponential time for which an object keeps a consumer busy",
    )  # fmt: skip
    parser.add_argument(
        "--object-bytes", type=whole_number, default=1024, metavar="BYTES",
        help="the size of an object",
    )  # fmt: skip
    parser.add_argument(
        "--duration-s", type=above_zero, required=True, metavar="D",
        help="the time for which objects are produced; what is in the queue then is still consumed",
    )  # fmt: skip
    parser.add_argument(
        "--max-hops", type=whole_number, default=3, metavar="N",
        help="let one probe visit so many producers",
    )  # fmt: skip
    parser.add_argument(
        "--deadline-ms", type=above_zero, default=30_000.0, metavar="MS",
        help="the time for which an object waits for a place",
    )  # fmt: skip
    add_seed(parser, "all times")
    add_json(parser, "print the result as one JSON object")


def load_of(options: argparse.Namespace) -> QueueLoad:
    """Returns what the options ask for. Raises InputError naming the option."""
    least = {"consumers": 0, "object_bytes": OBJECT_BYTES_MIN, "max_hops": 1}
    for name, value in least.items():
        if getattr(options, name) < value:
            option, got = f"--{name.replace('_', '-')}", getattr(options, name)
            raise InputError(option, "", f"expected a number of at least {value}, got {got}")
    return QueueLoad(
        produce_rate_per_s=options.produce_rate,
        consumers=options.consumers,
        consume_s=options.consume_ms / 1e3,
        object_bytes=options.object_bytes,
        duration_s=options.duration_s,
        max_hops=options.max_hops,
        deadline_s=options.deadline_ms / 1e3,
        seed=options.seed,
    )


def print_summary(result: dict[str, Any]) -> None:
    """The result as a table, on stderr."""
    console = open_console()
    table = table_of("times in ms", ("mean", "p50", "p99", "max"), title=f"seed {result['seed']}")
    for name, words in (("put_ms", "until an object is kept"), ("wait_ms", "until one is taken")):
        figures = (result[name][one] for one in ("mean", "p50", "p99", "max"))
        table.add_row(words, *("-" if one is None else f"{one:.1f}" for one in figures))
    show_table(console, table)
    counts = ("offered", "produced", "acknowledged", "missing", "duplicates", "redelivered")
    say(console, listed({name: result[name] for name in (*counts, "out_of_order")}))
    probes = result["probes_mean"]
    shown = "-" if probes is None else f"{probes:.2f}"
    say(console, f"{result['throughput_per_s']:.1f} objects/s, {shown} probes for each")
    for reason, count in result["reasons"].items():
        say(console, f"{count} times {reason}")
