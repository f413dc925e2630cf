"""What a link costs a node that has nothing to do: reports sent and received every period."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from spillover.bench.model import Row, Stage
from spillover.bench.nodes import cluster, running_nodes, topology_of
from spillover.bench.usage import cpu_s

if TYPE_CHECKING:
    from spillover.bench.session import Session

CASE = "idle CPU per link"
LINKS = 4
PEER = "idle node without links"


async def measure_gossip(session: Session) -> None:
    """The CPU time of a node with links, less that of one without in the same seconds, for each
    link. The peer's value is all that the one without takes."""
    leaves = [f"leaf{number}" for number in range(LINKS)]
    names = ("hub", "alone", *leaves)
    topology = topology_of(
        [cluster(name, servers=1, queue_limit=0) for name in names],
        [("hub", leaf) for leaf in leaves],
    )
    run_s = session.plan.of(5.0, 2.0)
    per_link, without = [], []
    async with running_nodes(topology, session.plan.seed) as nodes:
        hub, alone = nodes["hub"].pid, nodes["alone"].pid
        for run in range(session.plan.runs):
            session.say_run(CASE, run)
            hub_s, alone_s = cpu_s(hub), cpu_s(alone)
            await asyncio.sleep(run_s)
            hub_s, alone_s = cpu_s(hub) - hub_s, cpu_s(alone) - alone_s
            per_link.append((hub_s - alone_s) / run_s / LINKS * 1e3)
            without.append(alone_s / run_s * 1e3)
    session.add(
        Row(
            case=CASE,
            unit="CPU-ms/s",
            values=tuple(per_link),
            peer=PEER,
            peer_values=tuple(without),
        )
    )


STAGE = Stage((CASE,), measure_gossip)
