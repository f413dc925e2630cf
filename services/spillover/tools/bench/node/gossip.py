"""What a link costs a node: reports sent and received, at rest, where what repeats is rarely said,
and with a little work at all nodes, so that each period's report differs from the one before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from spillover.live.http.client import HttpClient
from spillover.model.errors import PeerError, RunError
from spillover.tools.bench.model import Row, Stage
from spillover.tools.bench.nodes import cluster, request_body, running_nodes, topology_of
from spillover.tools.bench.usage import CpuUse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from spillover.tools.bench.servers import Server
    from spillover.tools.bench.session import Session

IDLE, BUSY = "idle CPU per link", "busy CPU per link"
PEERS = {IDLE: "idle node without links", BUSY: "busy node without links"}
LINKS = 4

PERIOD_S = 0.1
SERVICE_MS = 50.0
"""Of the one request each period: at any report the server may be free or busy, with none left to
hand on."""
BODY_BYTES = 64
ANSWER_WITHIN_S = 5.0


async def measure_gossip(session: Session) -> None:
    """Measures the CPU time of a node with links, less that of one without in the same seconds, for
    each link. The peer's value is all that the one without takes."""
    leaves = [f"leaf{number}" for number in range(LINKS)]
    names = ("hub", "alone", *leaves)
    topology = topology_of(
        [cluster(name, servers=1, queue_limit=0) for name in names],
        [("hub", leaf) for leaf in leaves],
    )
    async with AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(running_nodes(topology, session.plan.seed))
        for case in (IDLE, BUSY):
            if not session.wants(case):
                continue
            if case == BUSY:
                await stack.enter_async_context(_worked(nodes.values()))
            await _measure(session, case, nodes["hub"].pid, nodes["alone"].pid)


async def _measure(session: Session, case: str, hub: int, alone: int) -> None:
    run_s = session.plan.of(5.0, 2.0)
    runs = []
    for run in range(session.plan.runs):
        session.say_run(case, run)
        began_s = time.monotonic()
        use = CpuUse({"hub": [hub], "alone": [alone]})
        await asyncio.sleep(run_s)
        used_s = use.used_s()
        runs.append((time.monotonic() - began_s, used_s["hub"], used_s["alone"]))
    session.add(row_of(case, runs))


def row_of(case: str, runs: Sequence[tuple[float, float, float]]) -> Row:
    """Returns the row of runs, of each of which is known how long it was, and what the node with
    links has used, and the one without, in CPU-s."""
    return Row(
        case=case,
        unit="CPU-ms/s",
        values=tuple((hub_s - alone_s) / took_s / LINKS * 1e3 for took_s, hub_s, alone_s in runs),
        peer=PEERS[case],
        peer_values=tuple(alone_s / took_s * 1e3 for took_s, _, alone_s in runs),
    )


@asynccontextmanager
async def _worked(nodes: Iterable[Server]) -> AsyncIterator[None]:
    """Each node is asked for something all the time, one request after the other. Raises PeerError
    or RunError in the end if one could not be, or did not do it."""
    asking = [asyncio.create_task(_ask_on(node)) for node in nodes]
    try:
        yield
    finally:
        for task in asking:
            task.cancel()
        ends = await asyncio.gather(*asking, return_exceptions=True)
    for end in ends:
        if isinstance(end, (PeerError, RunError)):
            raise end


async def _ask_on(node: Server) -> None:
    client = HttpClient(node.url)
    body = request_body(SERVICE_MS, BODY_BYTES)
    try:
        while True:
            pause = asyncio.create_task(asyncio.sleep(PERIOD_S))
            answer = await client.request("POST", "/requests", body=body, timeout_s=ANSWER_WITHIN_S)
            if answer.status != 200:
                raise RunError(f"{node.url}: expected a result, got {answer.status}")
            await pause
    finally:
        await client.close()


STAGE = Stage((IDLE, BUSY), measure_gossip)
