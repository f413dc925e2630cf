"""`spillover up`: a whole topology as processes on this machine, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys

from spillover.cli.parsing import add_allow_origin
from spillover.inputs.topology_file import load_topology
from spillover.model.errors import RunError
from spillover.model.topology import POLICY_NAMES, Topology
from spillover.testbed.supervisor import NodeProcess, Testbed
from spillover_loadgen.option_types import at_least_zero, whole_number


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "topology", nargs="?", default="ring5", metavar="TOPOLOGY",
        help="a YAML file, or a built-in name (default ring5)",
    )  # fmt: skip
    parser.add_argument("--policy", choices=POLICY_NAMES, help="instead of the topology's own")
    parser.add_argument(
        "--seed", type=whole_number, help="make the nodes' random choices repeatable"
    )
    parser.add_argument("--json", action="store_true", help="one JSON line once all are ready")
    parser.add_argument(
        "--drain-timeout-s", type=at_least_zero, default=30.0, metavar="S",
        help="how long the end waits for what is under way (default 30)",
    )  # fmt: skip
    parser.add_argument(
        "--results-timeout-s", type=at_least_zero, default=5.0, metavar="S",
        help="how long of that it waits for asynchronous results to be fetched (default 5)",
    )  # fmt: skip
    add_allow_origin(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command; its exit status."""
    topology = load_topology(options.topology)
    if options.policy is not None:
        topology = topology.with_policy(options.policy)
    return asyncio.run(_up(topology, options))


async def _up(topology: Topology, options: argparse.Namespace) -> int:
    bed = Testbed(
        topology,
        source=options.topology,
        seed=options.seed,
        drain_timeout_s=options.drain_timeout_s,
        results_timeout_s=options.results_timeout_s,
        allowed_origins=options.allow_origin,
        on_death=lambda node: _tell_death(bed, node),
        on_ending=_tell_ending,
    )
    stop = asyncio.Event()
    _on_signals(stop, bed)
    starting = asyncio.create_task(bed.start())
    stopping = asyncio.create_task(stop.wait())
    dying = asyncio.create_task(bed.all_dead())
    try:
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            _tell_ready(bed, as_json=options.json)
            await asyncio.wait((stopping, dying), return_when=asyncio.FIRST_COMPLETED)
        if dying.done():
            raise RunError("no node is left")
    finally:
        for task in (starting, stopping, dying):
            task.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await bed.stop(options.drain_timeout_s if starting.done() and stop.is_set() else 0.5)
    return 0


def _on_signals(stop: asyncio.Event, bed: Testbed) -> None:
    """The first signal drains and ends; the second ends at once."""

    def on_signal() -> None:
        if stop.is_set():
            bed.kill()
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, on_signal)


def _tell_ready(bed: Testbed, *, as_json: bool) -> None:
    first = next(iter(bed.urls.values()))
    if as_json:
        console = f"{first}/console"
        ready = {"ready": True, "clusters": bed.urls, "redis": None, "console": console}
        print(json.dumps(ready), flush=True)
        return
    for cluster, url in bed.urls.items():
        print(f"cluster {cluster}  {url}", file=sys.stderr)
    print(f"their logs, until the end if that is clean: {bed.directory}", file=sys.stderr)
    print(f"{len(bed.urls)} clusters are up; Ctrl-C ends them. Try:", file=sys.stderr)
    print(f"  {first}/console  in a browser, live", file=sys.stderr)
    print(f"  spillover status {first}", file=sys.stderr)
    print(f"  curl {first}/requests -d '{{\"payload\": {{}}}}'", file=sys.stderr)


def _tell_ending(node: NodeProcess, words: str) -> None:
    print(f"spillover: cluster {node.cluster} is ending: {words}", file=sys.stderr)


def _tell_death(bed: Testbed, node: NodeProcess) -> None:
    line = f"cluster {node.cluster} is gone ({node.end_of_life()})"
    if any(other.process.returncode is None for other in bed.nodes.values()):
        line += "; the others go on"
    if not node.was_killed:
        line += f". Its last words: {node.last_words()} (log {node.log})"
    print(f"spillover: {line}", file=sys.stderr)
