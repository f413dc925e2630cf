"""`spillover up`: run a whole topology as processes on this machine, until Ctrl-C or SIGTERM. Lines
on stderr tell of nodes that end and come back; stdout has the one line of --json, and nothing else.
With --queue it runs producers of the distributed queue (`up_queue`)."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from spillover.cli import up_queue
from spillover.cli.parsing import (
    add_allow_origin,
    add_config_redis,
    add_end_options,
    add_otel,
    add_tokens,
    check_otel,
    config_redis,
    whole_number_in,
)
from spillover.cli.typed_lines import typed_lines
from spillover.cli.up_told import commands, curl, invitation
from spillover.commandline.option_types import whole_number
from spillover.commandline.output import tell
from spillover.commandline.parsing import add_json
from spillover.inputs.api_tokens import load_api_tokens
from spillover.inputs.topology_file import load_topology
from spillover.inputs.yaml_file import shown_path
from spillover.model.errors import InputError, RunError
from spillover.model.extras import check_extra
from spillover.model.ids import ClusterId
from spillover.model.topology import Topology, urls_of
from spillover.model.unlike_servers import DEFAULT_TYPE
from spillover.policy.overflow.choosers import POLICY_NAMES
from spillover.testbed.following import ConfigurationFollower
from spillover.testbed.node_process import NodeProcess
from spillover.testbed.ports import FIRST_PORT, LAST_PORT, passed_over
from spillover.testbed.revival import DELAYS_S
from spillover.testbed.supervisor import Testbed

REVIVE = "r"
"""A user types this to start dead nodes again."""

PORTS_NAMED = 3

PRODUCERS_MAX = 100
"""One machine runs at most so many producers of the queue."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "topology", nargs="?", default="ring5", metavar="TOPOLOGY",
        help="the topology to run: a YAML file, or a built-in name",
    )  # fmt: skip
    parser.add_argument(
        "--policy", choices=POLICY_NAMES,
        help="decide by this policy instead of the topology's own",
    )  # fmt: skip
    parser.add_argument(
        "--shadow", choices=POLICY_NAMES,
        help="ask this policy along, without following it: the console and metrics show how "
        "often it differs, and what it would gain",
    )  # fmt: skip
    parser.add_argument(
        "--port", type=whole_number_in(1, LAST_PORT), metavar="PORT",
        help="let the first cluster that has no url listen at this port, and the others at "
        f"those after it, apart from ports in use (default {FIRST_PORT})",
    )  # fmt: skip
    parser.add_argument(
        "--no-restart", action="store_true",
        help="leave a node that ends down; without this, one that nobody has drained is started "
        f"again, up to {len(DELAYS_S)} times in a row, after {DELAYS_S[0]:g} to {DELAYS_S[-1]:g} "
        "s",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=whole_number, metavar="N", help="make the nodes' random choices repeatable"
    )
    add_json(parser, "print one JSON line on stdout once all are ready")
    add_end_options(parser)
    parser.add_argument(
        "--tls", action="store_true",
        help="speak https between nodes and to clients, with certificates made for this testbed "
        "alone",
    )  # fmt: skip
    add_config_redis(parser)
    add_otel(parser)
    parser.add_argument(
        "--queue", type=whole_number_in(1, PRODUCERS_MAX), metavar="N",
        help="run N producers of the distributed queue that know each other, in place of clusters",
    )  # fmt: skip
    parser.add_argument(
        "--store",
        metavar="DIR",
        help="with --queue: keep objects in this directory (default: in memory only)",
    )
    add_allow_origin(parser)
    add_tokens(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command; its exit status."""
    load_api_tokens(options.tokens)  # what is wrong is said here, and not by each process
    if options.queue is not None:
        if options.tls:
            check_extra("--tls", "tls", "cryptography")
        return up_queue.run(options, _certify if options.tls else None)
    if options.store is not None:
        raise InputError("--store", "", "expected --queue N beside it: clusters have no store")
    return asyncio.run(_up(_topology_of(options), options))


def _topology_of(options: argparse.Namespace) -> Topology:
    """Returns the topology to run. Raises InputError if it cannot run with these options."""
    topology = load_topology(options.topology)
    if options.policy is not None:
        topology = topology.with_policy(options.policy)
    if options.shadow is not None:
        topology = replace(topology, shadow=options.shadow)
    _check_tls(topology, options)
    if options.otel:
        check_otel()
    if options.port is not None and all(cluster.url is not None for cluster in topology.clusters):
        expected = f"expected a topology that leaves ports open, {shown_path(options.topology)} has"
        raise InputError("--port", "", f"{expected} a url for every cluster")
    return topology


def _check_tls(topology: Topology, options: argparse.Namespace) -> None:
    """Raise InputError where urls do not agree with --tls, or there can be no certificates."""
    source = shown_path(options.topology)
    expected = "expected http:// or none without --tls"
    if options.tls:
        expected = "expected https:// or none with --tls"
    for index, cluster in enumerate(topology.clusters):
        for place, name, url in urls_of(cluster):
            if url.startswith("https:") != options.tls:
                field = f"clusters[{index}].{place}{name}"
                raise InputError(source, field, f"{expected}, got {url}")
    if options.tls:
        check_extra("--tls", "tls", "cryptography")
        from spillover.certificates.names import check_topology

        check_topology(topology, source)


def _certify(directory: Path, topology: Topology, cluster: ClusterId) -> Path:
    """Make a certificate, as `testbed.certified.Certify` asks."""
    from spillover.certificates.directory import certify

    return certify(directory, topology, cluster)


def _bed_of(topology: Topology, options: argparse.Namespace) -> Testbed:
    bed = Testbed(
        topology,
        source=options.topology,
        seed=options.seed,
        drain_timeout_s=options.drain_timeout_s,
        results_timeout_s=options.results_timeout_s,
        allowed_origins=options.allow_origin,
        on_death=lambda node: _tell_death(bed, node),
        on_ending=_tell_ending,
        restart=not options.no_restart,
        on_return=_tell_return,
        first_port=options.port or FIRST_PORT,
        config_redis=config_redis(options),
        certify=_certify if options.tls else None,
        tokens=options.tokens,
        otel=options.otel,
    )
    return bed


async def _up(topology: Topology, options: argparse.Namespace) -> int:
    bed = _bed_of(topology, options)
    stop = up_queue.stop_by_signals(bed.kill, _rereads(options, bed))
    starting = asyncio.create_task(bed.start())
    stopping = asyncio.create_task(stop.wait())
    dying = asyncio.create_task(bed.all_dead())
    try:
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            with typed_lines(lambda line: _on_line(bed, line)) as at_terminal:
                _tell_start(topology, bed, options, at_terminal=at_terminal)
                following = asyncio.create_task(ConfigurationFollower(bed, tell).run())
                ends = (stopping, dying, following)
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                following.cancel()
                with suppress(asyncio.CancelledError):
                    await following
        if dying.done():
            raise RunError("no node is left")
    finally:
        for task in (starting, stopping, dying):
            task.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await bed.stop(options.drain_timeout_s if starting.done() and stop.is_set() else 0.5)
    return 0


def _rereads(options: argparse.Namespace, bed: Testbed) -> list[Callable[[], None]]:
    """Returns the actions of SIGHUP: nodes that have files read them again."""
    if options.tls or options.tokens:
        return [bed.reread]
    return [lambda: tell("SIGHUP changes nothing: nodes have no files to read again")]


def _on_line(bed: Testbed, line: str) -> None:
    """Obey a line that a user has typed."""
    if line != REVIVE:
        tell(f"expected {REVIVE} and Enter, to start dead nodes again, or Ctrl-C, to end")
        return
    dead = bed.revive()
    tell(f"starting {', '.join(dead)} again" if dead else "all nodes run, none is started")


def _tell_start(
    wanted: Topology, bed: Testbed, options: argparse.Namespace, *, at_terminal: bool
) -> None:
    # Who reads JSON and wants no particular port finds the urls there.
    if options.port is not None or not options.json:
        _tell_shift(wanted, bed, options.port or FIRST_PORT)
    if options.json:
        _print_ready(bed)
    else:
        _tell_ready(bed, at_terminal=at_terminal, has_tokens=bool(options.tokens))


def _tell_shift(wanted: Topology, bed: Testbed, first_port: int) -> None:
    """Say that clusters are not at the expected ports, since others are there."""
    ports = passed_over(wanted, bed.topology, first_port)
    if ports:
        known = [bed.urls.get(cluster.id) for cluster in wanted.clusters if cluster.url is None]
        urls = [url for url in known if url is not None]
        chosen = _named([url.rpartition(":")[2] for url in urls])
        word = "port" if len(ports) == 1 else "ports"
        tell(f"{word} {_named(list(map(str, ports)))} not free; shifted to {chosen}")


def _named(ports: Sequence[str]) -> str:
    more = len(ports) - PORTS_NAMED
    return ", ".join(ports[:PORTS_NAMED]) + (f" and {more} more" if more > 0 else "")


def _print_ready(bed: Testbed) -> None:
    console = f"{next(iter(bed.urls.values()))}/console"
    ready = {"ready": True, "clusters": bed.urls, "redis": None, "console": console}
    secure = {} if bed.certified.ca_file is None else {"ca_file": str(bed.certified.ca_file)}
    doors = {"proxies": _doors(bed.topology)} if _doors(bed.topology) else {}
    logs = {cluster: str(node.log) for cluster, node in bed.nodes.items()}
    print(json.dumps({**ready, **secure, **doors, "logs": logs}), flush=True)


def _tell_ready(bed: Testbed, *, at_terminal: bool, has_tokens: bool) -> None:
    first, ca_file = next(iter(bed.urls.values())), bed.certified.ca_file
    lines = [f"cluster {cluster}  {url}" for cluster, url in bed.urls.items()]
    lines += [f"service {cluster}  {url}" for cluster, url in _doors(bed.topology).items()]
    lines.append("their logs, until the end if that is clean:")
    lines += [f"log of {cluster}  {node.log}" for cluster, node in bed.nodes.items()]
    revive = f"; {REVIVE} and Enter starts dead ones again" if at_terminal else ""
    words = invitation(has_tokens=has_tokens)
    lines.append(f"{len(bed.topology.clusters)} clusters are up; Ctrl-C ends them{revive}. {words}")
    lines.append(f"  {first}/console  in a browser, live")
    lines += commands(first, ca_file)
    door = next(iter(_doors(bed.topology).values()), None)
    if door is None:
        asked = f"{first}/requests -d '{json.dumps(_example(bed.topology))}'"
        lines.append(curl(asked, ca_file, has_tokens=has_tokens))
    else:
        lines.append(curl(door, ca_file, has_tokens=has_tokens, header="Proxy-Authorization"))
    print("\n".join(lines), file=sys.stderr)


def _doors(topology: Topology) -> dict[str, str]:
    """Returns the addresses for clients of clusters that pass requests to a service."""
    doors = {
        c.id if c.node_count == 1 else f"{c.id}/{number}": c.at(number).proxy_url
        for c in topology.clusters
        for number in range(1, c.node_count + 1)
    }
    return {name: url for name, url in doors.items() if url is not None}


def _example(topology: Topology) -> dict[str, Any]:
    """Returns a request that the first cluster serves."""
    pool = topology.clusters[0].pool
    types = [DEFAULT_TYPE] if pool is None else [kind.id for kind in pool.types]
    named = {} if DEFAULT_TYPE in types else {"type": types[0]}
    return {**named, "payload": {}}


def _tell_ending(node: NodeProcess, words: str) -> None:
    tell(f"cluster {node.cluster} is ending: {words}")


def _tell_death(bed: Testbed, node: NodeProcess) -> None:
    """Print one line: how the node died, its last words if they have to do with it, and what
    happens now."""
    parts = [f"cluster {node.cluster} is gone ({node.end_of_life()})"]
    if any(other.process.returncode is None for other in bed.nodes.values()):
        parts.append("the others go on")
    if node.starts_again_in_s is not None:
        parts.append(f"it starts again in {node.starts_again_in_s:g} s")
    elif bed.restarts and node.was_drained:
        parts.append("it stays down: it was drained before")
    elif bed.restarts:
        parts.append(f"it stays down, after {len(DELAYS_S)} starts that came to nothing")
    if not node.was_killed:
        parts.append(f"its last words: {node.last_words()}")
    tell(f"{'; '.join(parts)} (log {node.log})")


def _tell_return(node: NodeProcess) -> None:
    tell(f"cluster {node.cluster} is back at {node.url} (log {node.log})")
