"""`spillover plan`: find how many servers each site needs, alone and networked."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from spillover.commandline.option_types import above_zero
from spillover.commandline.parsing import add_json
from spillover.commandline.terminal import open_console, say, table_of
from spillover.inputs.topology_file import load_topology
from spillover.model.schedule import Schedule
from spillover.model.topology import DEFAULT_POLICY, Topology
from spillover.policy.overflow.choosers import POLICY_NAMES
from spillover.sim.overflow.alike import check_alike
from spillover.sim.overflow.plan import Judge, Planner, Servers
from spillover.workloads.options import add_schedule_options, read_schedule, stretched

NO_DEADLINE_MS = 1e12
"""No deadline is as long as this: a request that takes too long shall count as slow, not as
refused."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        f"{parser.description}; with the limits of queues and deadlines lifted, so that what waits "
        "too long counts as slow, not as refused"
    )
    parser.epilog = "spillover plan tokens --help: limits of tokens for a pool of unlike servers"
    parser.add_argument(
        "--topology", required=True, metavar="T",
        help="the topology: a YAML file, or a built-in name",
    )  # fmt: skip
    networked = [name for name in POLICY_NAMES if name != "isolated"]
    parser.add_argument(
        "--policy",
        choices=networked,
        help="let the networked side decide by this policy instead of the topology's own",
    )
    parser.add_argument(
        "--p99-ms", type=above_zero, required=True, metavar="X",
        help="the time that 99 of 100 requests of every site shall take at most",
    )  # fmt: skip
    add_json(parser)
    add_schedule_options(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command; its exit status."""
    topology = load_topology(options.topology)
    check_alike(topology)
    if options.policy is not None:
        topology = topology.with_policy(options.policy)
    elif topology.policy == "isolated":
        topology = topology.with_policy(DEFAULT_POLICY)
    schedule, _ = read_schedule(options, topology.cluster_ids)
    topology = stretched(topology, options.time_scale)
    judge = _judge(topology, schedule, options.seed)
    with _saying() as say:
        plan = Planner(topology, schedule, options.p99_ms, judge, say).plan()
    result = {"topology": topology.name, "policy": topology.policy, "p99_ms": options.p99_ms}
    result |= plan.as_dict()
    if options.json:
        json.dump(result, sys.stdout)
        print()
    else:
        _print(result)
    return 0


def _judge(topology: Topology, schedule: Schedule, seed: int) -> Judge:
    """Returns the function that judges a number of servers with the fast engine."""
    # First what says in one line that the extra is missing; numpy is missing then too.
    from spillover.sim.fast.overflow.run import run_fast  # isort: skip
    from spillover.sim.fast.overflow.arrivals import arrays_of  # isort: skip
    import numpy as np

    arrivals = arrays_of(schedule, topology)
    homes = [np.flatnonzero(arrivals.cluster == k) for k in range(len(topology.clusters))]
    unbounded = replace(
        topology,
        default_deadline_ms=NO_DEADLINE_MS,
        clusters=tuple(
            replace(c, queue_limit=len(schedule) + 1, nodes=1) for c in topology.clusters
        ),
    )

    def judge(servers: Servers, networked: bool) -> Sequence[float]:  # noqa: FBT001
        clusters = tuple(
            replace(cluster, servers=m)
            for cluster, m in zip(unbounded.clusters, servers, strict=True)
        )
        policy = topology.policy if networked else "isolated"
        asked = replace(unbounded, clusters=clusters, policy=policy)
        times_ms = run_fast(asked, arrivals, seed).requests.system_time_ms
        times_ms = np.where(np.isnan(times_ms), np.inf, times_ms)
        return [
            float(np.quantile(times_ms[own], 0.99, method="inverted_cdf")) if len(own) else 0.0
            for own in homes
        ]

    return judge


@contextmanager
def _saying() -> Iterator[Callable[[str], None] | None]:
    """Show how far the search is in one line, only where stderr is a terminal."""
    console = open_console()
    if not console.is_terminal:
        yield None
        return
    with console.status("planning") as status:
        yield status.update


def _print(result: dict[str, Any]) -> None:
    isolated, networked = result["isolated"], result["networked"]
    title = f"servers for p99 <= {result['p99_ms']:g} ms: {result['topology']}"
    table = table_of("site", ("alone", "p99, ms", result["policy"], "p99, ms"), title=title)
    for cluster, servers in isolated["servers"].items():
        table.add_row(
            cluster,
            str(servers),
            _shown(isolated["p99_ms"][cluster]),
            str(networked["servers"][cluster]),
            _shown(networked["p99_ms"][cluster]),
        )
    table.add_row("all", str(isolated["total"]), "", str(networked["total"]), "")
    console = open_console()
    console.print(table)
    saved = result["saved_share"]
    verb, what = ("saves", "of the servers") if saved >= 0 else ("takes", "more servers")
    say(console, f"networking {verb} {abs(saved):.0%} {what}")


def _shown(p99_ms: float | None) -> str:
    return "-" if p99_ms is None else f"{p99_ms:.0f}"
