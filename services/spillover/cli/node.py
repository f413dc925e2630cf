"""`spillover node`: run one cluster node, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Coroutine
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import uvloop

from spillover.apps.http.token_files import TokenFiles
from spillover.apps.node.processes import OwnProcess, own_process
from spillover.apps.node.server import serve_node
from spillover.cli.parsing import (
    add_allow_origin,
    add_config_redis,
    add_end_options,
    add_log_format,
    add_otel,
    add_tokens,
    address,
    check_otel,
    config_redis,
    whole_number_in,
)
from spillover.cli.tls_options import (
    CA,
    CERT,
    KEY,
    VARIABLES,
    add_tls_options,
    given_files,
    tls_files,
)
from spillover.commandline.option_types import at_least_zero, whole_number
from spillover.inputs.topology_file import load_topology
from spillover.live.membership.store import ConfigurationStore
from spillover.live.overflow.shell import NodeShell
from spillover.live.process.logs import configure_logs
from spillover.live.process.stopping import has_returned
from spillover.model.certified_names import certified_name
from spillover.model.errors import InputError, blamed_on
from spillover.model.extras import check_extra
from spillover.model.nearest import did_you_mean
from spillover.model.topology import NODES_MAX, Cluster, Topology

if TYPE_CHECKING:
    from spillover.live.overflow.tracing.watching import Tracing
    from spillover.live.tls.rotation import Credentials


LAME_DUCK_S = 7.0

PEERS, OPERATORS = "peers", "operators"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--topology", required=True, metavar="T",
        help="the topology: a YAML file with the url of this cluster and of its neighbors",
    )  # fmt: skip
    parser.add_argument(
        "--cluster", required=True, metavar="ID",
        help="the cluster of the topology that this node is",
    )  # fmt: skip
    parser.add_argument(
        "--node", type=_node_number, metavar="N",
        help="which node of the cluster this is, counted from 1, where the topology has a list of "
        "several; or the name of a pod of a StatefulSet, which counts from 0",
    )  # fmt: skip
    parser.add_argument(
        "--processes", type=whole_number_in(1, NODES_MAX), default=1, metavar="N",
        help="serve the cluster with N processes of this machine that share its servers and the "
        "address of its clients (default 1)",
    )  # fmt: skip
    _add_addresses(parser)
    parser.add_argument(
        "--seed", type=whole_number, help="make the node's own random choices repeatable"
    )
    add_tls_options(
        parser,
        "the node's certificate in PEM, where urls are https",
        "certificates of the CAs that vouch for neighbors",
    )
    _add_end_options(parser)
    add_allow_origin(parser)
    add_tokens(parser)
    add_log_format(parser)
    parser.add_argument(
        "--log-requests", action="store_true", help="log a line for each request that has ended"
    )
    add_config_redis(parser)
    add_otel(parser)
    parser.add_argument(
        "--config-from", choices=(PEERS, OPERATORS), default=PEERS,
        help="take changes of the configuration from any node that has taken them (peers, "
        "default), or only from operators at this node or in --config-redis (operators)",
    )  # fmt: skip
    parser.add_argument(
        "--testbed", action="store_true", help="let operators delay, lose and cut what links carry"
    )
    parser.add_argument(
        "--end-with-stdin",
        action="store_true",
        help="end at once when standard input ends: whoever started the node has died",
    )


def _node_number(text: str) -> int:
    """Returns the number of a node, that of a pod's name one more."""
    name, dash, ordinal = text.rpartition("-")
    if name and dash and ordinal.isdecimal() and ordinal.isascii() and len(ordinal) < 4:
        text = str(int(ordinal) + 1)
    return whole_number_in(1, NODES_MAX)(text)


def _add_addresses(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--bind", type=address, metavar="HOST:PORT",
        help="serve clients at this address; [::]:PORT is all addresses, those of IPv4 too "
        "(default: as in the cluster's url)",
    )  # fmt: skip
    parser.add_argument(
        "--peer-bind", type=address, metavar="HOST:PORT",
        help="serve neighbors at this address and only there (default: at the same address as "
        "clients)",
    )  # fmt: skip
    parser.add_argument(
        "--proxy-bind", type=address, metavar="HOST:PORT",
        help="with a proxy: handler, serve its clients at this address (default: as in the "
        "cluster's proxy_url)",
    )  # fmt: skip


def _add_end_options(parser: argparse.ArgumentParser) -> None:
    add_end_options(parser)
    parser.add_argument(
        "--lame-duck-s", type=at_least_zero, metavar="S",
        help="before that, and before a drain, serve clients as ever for so many seconds "
        "although the node is not ready any more, so that balancers notice (default "
        f"{LAME_DUCK_S:g}, in a testbed 0)",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Run the command; its exit status."""
    process = own_process(os.environ) if options.processes > 1 else None
    read = load_topology if process is None else process.topology
    topology = read(options.topology)
    if options.cluster not in topology.cluster_ids:
        known = topology.cluster_ids
        hint = did_you_mean(options.cluster, known)
        expected = f"expected one of {', '.join(known)}, got {options.cluster!r}{hint}"
        raise InputError("--cluster", "", expected)
    number = _number_of(options, topology) if process is None else process.number
    is_one_of_several = options.node is not None or process is not None
    configure_logs(
        f"{options.cluster}/{number}" if is_one_of_several else options.cluster,
        as_json=options.log_format == "json",
        log_requests=options.log_requests,
    )
    cluster = topology.cluster(options.cluster).at(number)
    bind = _bind_of(options, cluster)
    if options.processes > 1 and process is None:
        return _run_processes(options, topology, cluster, bind)
    tracing = _tracing(topology, cluster) if options.otel else None
    serving = _serving(topology, cluster, process or number, bind, options, tracing)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serving)
        has_returned(0)
    if tracing is not None:
        tracing.close()
    return 0


def _number_of(options: argparse.Namespace, topology: Topology) -> int:
    """Returns which node of its cluster this is. Raises InputError where it is none."""
    cluster = topology.cluster(options.cluster)
    if options.node is None and cluster.node_count == 1:
        return 1
    if cluster.node_count > 1 and not isinstance(cluster.nodes, tuple):
        field = f"clusters[{topology.cluster_ids.index(cluster.id)}].nodes"
        expected = f"expected a list of urls; a number ({cluster.nodes}) is for `spillover up`"
        raise InputError(options.topology, field, f"{expected} and for simulations")
    if options.node is None or not 1 <= options.node <= cluster.node_count:
        got = "none" if options.node is None else str(options.node)
        expected = f"expected a node of cluster {cluster.id}, 1 to {cluster.node_count}, got {got}"
        raise InputError("--node", "", expected)
    return int(options.node)


def _bind_of(options: argparse.Namespace, cluster: Cluster) -> tuple[str, int]:
    """Returns the address at which clients are served. Raises InputError without one, and for a
    proxy's address without a proxy: handler."""
    bind = options.bind or _address_of(cluster.url)
    if bind is None:
        expected = f"expected HOST:PORT, since cluster {cluster.id} has no url"
        raise InputError("--bind", "", expected)
    if options.proxy_bind is not None and not cluster.passes:
        expected = f"expected a proxy: handler, cluster {cluster.id} has {cluster.handler}"
        raise InputError("--proxy-bind", "", expected)
    return bind


def _run_processes(
    options: argparse.Namespace, topology: Topology, cluster: Cluster, bind: tuple[str, int]
) -> int:
    from spillover.testbed.processes import Addresses, Processes, check_processes

    unfit = {
        "--node": options.node,
        "--testbed": options.testbed or None,
        "--config-redis": options.config_redis,
        "--redis-url-file": options.redis_url_file,
    }
    given = [option for option, value in unfit.items() if value is not None]
    check_processes(given, topology, cluster, options.processes, options.topology)
    _credentials(options, topology, cluster)
    peer = options.peer_bind or _address_of(cluster.peer_url)
    addresses = Addresses(bind, peer, options.proxy_bind or _address_of(cluster.proxy_url))
    limit_s = options.drain_timeout_s + _lame_duck_s(options)

    async def run_all() -> int:
        with ExitStack() as sockets:
            told = options.processes, addresses, sockets
            processes = Processes(*told, topology=topology, limit_s=limit_s)
            return await processes.run(end_with_stdin=options.end_with_stdin)

    return asyncio.run(run_all())


def _serving(
    topology: Topology,
    cluster: Cluster,
    node: int | OwnProcess,
    bind: tuple[str, int],
    options: argparse.Namespace,
    tracing: Tracing | None,
) -> Coroutine[Any, Any, None]:
    return serve_node(
        topology,
        cluster.id,
        node=node if isinstance(node, int) else 1,
        process=node if isinstance(node, OwnProcess) else None,
        bind=bind,
        peer_bind=options.peer_bind or _address_of(cluster.peer_url),
        proxy_bind=options.proxy_bind or _address_of(cluster.proxy_url),
        seed=options.seed,
        source=options.topology,
        drain_timeout_s=options.drain_timeout_s,
        results_timeout_s=options.results_timeout_s,
        lame_duck_s=_lame_duck_s(options),
        testbed=options.testbed,
        end_with_stdin=options.end_with_stdin or isinstance(node, OwnProcess),
        allowed_origins=frozenset(options.allow_origin),
        store=_store(config_redis(options), topology),
        config_from_peers=options.config_from == PEERS,
        credentials=_credentials(options, topology, cluster),
        token_files=TokenFiles(options.tokens) if options.tokens else None,
        make_shell=NodeShell if tracing is None else tracing.make_shell,
    )


def _lame_duck_s(options: argparse.Namespace) -> float:
    """Returns for how long the node is a lame duck; no balancer stands in front of a testbed."""
    usual_s = 0.0 if options.testbed else LAME_DUCK_S
    return usual_s if options.lame_duck_s is None else float(options.lame_duck_s)


def _store(url: str | Path | None, topology: Topology) -> ConfigurationStore | None:
    if url is None:
        return None
    if not topology.is_named:
        expected = "expected a topology with a name: the configuration is kept under it"
        raise InputError("--config-redis", "", expected)
    check_extra("--config-redis", "leases", "redis")
    with blamed_on("--config-redis"):
        return ConfigurationStore(url, topology.name)


def _credentials(
    options: argparse.Namespace, topology: Topology, cluster: Cluster
) -> Credentials | None:
    """Returns the node's certificate and the CAs that it believes; None where its urls and its
    neighbors' are http."""
    given = given_files(options)
    of_clients = (cluster.url, cluster.proxy_url)
    is_public_secure = any((url or "").startswith("https:") for url in of_clients)
    wanted = [CERT, KEY] if topology.is_secure or is_public_secure else []
    wanted += [CA] if topology.is_secure else []
    for option, file in given.items():
        if file is None and option in wanted:
            expected = f"expected a file (or {VARIABLES[option]}), since urls in "
            raise InputError(option, "", f"{expected}{options.topology} are https://")
        if file is not None and option not in wanted:
            where = "between nodes" if wanted else f"of cluster {cluster.id}"
            expected = f"expected it along with https:// urls {where}, those in {options.topology}"
            raise InputError(option, "", f"{expected} are http://")
    if not wanted:
        return None
    files = tls_files(options)
    from spillover.live.tls.rotation import Credentials

    assert files is not None  # noqa: S101 - what is wanted was given
    name = certified_name(cluster.id, topology.name) if topology.is_secure else None
    return Credentials(files, name)


def _tracing(topology: Topology, cluster: Cluster) -> Tracing | None:
    check_otel()
    from spillover.apps.node.answers import status_of
    from spillover.live.overflow.tracing.telemetry import make_tracing

    try:
        return make_tracing(topology.name, cluster, status_of)
    except ValueError as error:
        raise InputError("--otel", "", str(error)) from None


def _address_of(url: str | None) -> tuple[str, int] | None:
    if url is None:
        return None
    parts = urlsplit(url)
    return parts.hostname or "127.0.0.1", parts.port or (443 if parts.scheme == "https" else 80)
