"""What certificates between nodes cost: a forward, at both ends, beside one without; what does not
go from node to node; and memory of connections that wait for the next request.

Both federations run at the same time, and differ in nothing else. Clients are not encrypted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from spillover.model.errors import RunError
from spillover.model.topology import Topology
from spillover.testbed.ports import free_urls
from spillover.tools.bench.load_process import Held, LoadProcess
from spillover.tools.bench.model import Figure, Row, Stage
from spillover.tools.bench.node.paths import (
    BUSY_SERVERS,
    KIB,
    TURNS,
    UNIT,
    Asker,
    job_of,
)
from spillover.tools.bench.nodes import (
    FOREVER_MS,
    cluster,
    request_body,
    running_nodes,
    topology_of,
    until_state,
)
from spillover.tools.bench.servers import Server
from spillover.tools.bench.usage import connection_count, resident_bytes

if TYPE_CHECKING:
    from spillover.tools.bench.session import Session

FORWARDED = "forwarded with TLS, 1 KiB"
RECEIVED = "received with TLS, 1 KiB"
LARGE = "forwarded with TLS, 64 KiB"
LARGE_RECEIVED = "received with TLS, 64 KiB"
PATHS = {KIB: (FORWARDED, RECEIVED), 64 * KIB: (LARGE, LARGE_RECEIVED)}
LOCAL = "local with TLS between nodes, 1 KiB"
IDLE = "memory per idle connection with TLS, both ends"

FIRST_PORT = 8401
FREE_SERVERS = 1024
AT_ONCE = 100
"""Requests under way, each on a connection between the nodes; then three times as many."""
AT_ONCE_MS = 500.0

Pair = Mapping[str, Server]


async def measure_encrypted(session: Session) -> None:
    """Measures two nodes with certificates beside two without. The servers of the first of each are
    taken for good, so that the other one gets its requests."""
    async with AsyncExitStack() as stack:
        plain, secure = await _pairs(session, stack, BUSY_SERVERS)
        asker = Asker(session, stack.enter_context(LoadProcess()))
        for size_bytes, cases in PATHS.items():
            if session.wants(*cases):
                sides = [
                    await asker.side(name, pair["a"], job_of(size_bytes), pair["b"])
                    for name, pair in (("with TLS", secure), ("without TLS", plain))
                ]
                figures = [Figure(case, UNIT) for case in cases]
                await session.compare(figures, *sides, turns=TURNS)
        if session.wants(LOCAL):
            sides = [
                await asker.side(name, pair["b"], job_of(KIB))
                for name, pair in (("with TLS", secure), ("without TLS", plain))
            ]
            await session.compare([Figure(LOCAL, UNIT)], *sides, turns=TURNS)


async def measure_idle(session: Session) -> None:
    """Measures by how much both nodes grow with each connection between them that has carried
    requests, those of clients included; new nodes for each run."""
    values: list[list[float]] = [[], []]
    for run in range(session.plan.runs):
        session.say_run(IDLE, run)
        async with AsyncExitStack() as stack:
            for pair, found in zip(await _pairs(session, stack, 4 * AT_ONCE), values, strict=True):
                load = stack.enter_context(LoadProcess())
                found.append(await _growth_bytes(load, pair))
    session.add(idle_row(*values))


def idle_row(plain: Sequence[float], secure: Sequence[float]) -> Row:
    """Returns the row of what a connection takes without certificates and with them, by run."""
    return Row(
        case=IDLE,
        unit="bytes",
        values=tuple(secure),
        peer="without TLS",
        peer_values=tuple(plain),
    )


async def _growth_bytes(load: LoadProcess, pair: Pair) -> float:
    job = replace(job_of(KIB), url=pair["a"].url, body=request_body(AT_ONCE_MS, KIB))
    opened, taken = [], []
    for connections in (AT_ONCE, 3 * AT_ONCE):
        await load.count(replace(job, connections=connections, duration_s=AT_ONCE_MS / 1e3))
        opened.append(connection_count(pair["a"].pid, to=pair["b"].pid))
        taken.append(sum(resident_bytes(server.pid) for server in pair.values()))
    return bytes_each(opened, taken)


def bytes_each(opened: Sequence[int], taken: Sequence[int]) -> float:
    """Returns what each connection takes, by how many there were first and then, and the memory at
    both times. Raises RunError if hardly any came between."""
    if opened[1] - opened[0] < AT_ONCE:
        raise RunError(f"expected {AT_ONCE} connections more between nodes, got {list(opened)}")
    return (taken[1] - taken[0]) / (opened[1] - opened[0])


async def _pairs(session: Session, stack: AsyncExitStack, busy: int) -> list[Pair]:
    """Without certificates, and with them; so many servers of each first node are taken."""
    from spillover.tools.certificates.directory import certify  # noqa: PLC0415 - needs `tls`

    pairs = []
    for scheme, certified in (("http", None), ("https", certify)):
        nodes = running_nodes(_topology(scheme, busy), session.plan.seed, certified)
        pair = await stack.enter_async_context(nodes)
        occupier = stack.enter_context(LoadProcess())
        body = request_body(FOREVER_MS, 256)
        await occupier.count(Held(url=pair["a"].url, body=body, requests=busy))
        await until_state(pair["a"], busy=busy)
        pairs.append(pair)
    return pairs


def _topology(scheme: str, busy: int) -> Topology:
    """Of two clusters whose doors for neighbors have this scheme."""
    topology = topology_of(
        [
            cluster("a", servers=busy, queue_limit=0),
            cluster("b", servers=FREE_SERVERS, queue_limit=0),
        ],
        [("a", "b")],
    )
    urls = iter(free_urls(4, FIRST_PORT))
    clusters = (
        replace(one, url=next(urls), peer_url=next(urls).replace("http", scheme))
        for one in topology.clusters
    )
    return replace(topology, clusters=tuple(clusters))


STAGES = (
    Stage((FORWARDED, RECEIVED, LARGE, LARGE_RECEIVED, LOCAL), measure_encrypted),
    Stage((IDLE,), measure_idle),
)
