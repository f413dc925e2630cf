"""`spillover sim overflow`: a schedule through the clusters of a topology, in virtual time."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from spillover.inputs.topology_file import load_topology
from spillover.model.statistics import SUMMARY_FIELDS
from spillover.model.topology import POLICY_NAMES
from spillover.sim.overflow import run_overflow
from spillover_loadgen.schedule_options import add_schedule_options, read_schedule


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--topology", required=True, metavar="T", help="a file or built-in name")
    parser.add_argument("--policy", choices=POLICY_NAMES, help="instead of the topology's own")
    parser.add_argument("--engine", choices=("full",), default="full")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    add_schedule_options(parser)


def run(options: argparse.Namespace) -> int:
    """Run the model; the exit status."""
    topology = load_topology(options.topology)
    if options.policy is not None:
        topology = topology.with_policy(options.policy)
    schedule, _ = read_schedule(options, topology.cluster_ids)
    with _progress_bar(len(schedule)) as on_progress:
        result = run_overflow(topology, schedule, options.seed, on_progress).as_dict()
    if options.json:
        json.dump(result, sys.stdout)
        print()
    else:
        _print_overflow(result)
    return 0


@contextmanager
def _progress_bar(total: int) -> Iterator[Callable[[int], None] | None]:
    """A bar on stderr, only where that is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("requests", total=total)

        def on_progress(done: int) -> None:
            progress.update(task, completed=done)

        yield on_progress


def _print_overflow(result: dict[str, Any]) -> None:
    table = Table(title=f"system time in ms: {result['topology']}, {result['policy']}")
    table.add_column("home")
    for field in SUMMARY_FIELDS:
        table.add_column(field, justify="right")
    rows = {c: figures["system_time_ms"] for c, figures in result["per_cluster"].items()}
    for name, times in {**rows, "all": result["system_time_ms"]}.items():
        cells = ("-" if times[f] is None else f"{times[f]:.1f}" for f in SUMMARY_FIELDS)
        table.add_row(name, *cells)
    console = Console(stderr=True)
    console.print(table)
    console.print(
        f"{result['requests']} requests, {result['forwarded_share']:.1%} forwarded, "
        f"hops {result['hops']}, longest queue {result['queue_length_max']}, "
        f"{result['requests_per_s']:.0f} requests/s simulated",
        highlight=False,
    )
