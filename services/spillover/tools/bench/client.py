"""`spillover bench client`: requests per CPU-second of whoever asks, through the client library,
beside the load generator's own client and httpx, at the same node.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from spillover.tools.bench.asking import Asked, AskingProcess, Library
from spillover.tools.bench.model import Figure, Side, Stage
from spillover.tools.bench.nodes import cluster, running_nodes, topology_of
from spillover.tools.bench.usage import cpu_s

if TYPE_CHECKING:
    from spillover.tools.bench.session import Session

UNIT = "requests/CPU-s"
USERS = 12
FREE_SERVERS = 256
TURNS = 4
PEERS: tuple[Library, ...] = ("load generator", "httpx")
SIZES = {"1 KiB": 1024, "64 KiB": 64 * 1024}
CASES: dict[str, tuple[Library, int]] = {
    **{f"AsyncSpillover.run, {name}": ("AsyncSpillover", size) for name, size in SIZES.items()},
    "Spillover.run, threads, 1 KiB": ("Spillover", 1024),
}


async def measure(session: Session) -> None:
    """Each library in a process of its own, all at one node whose servers are always free."""
    topology = topology_of([cluster("a", servers=FREE_SERVERS, queue_limit=10_000)])
    async with AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(running_nodes(topology, session.plan.seed))
        processes: dict[Library, AskingProcess] = {}

        async def side(library: Library, size_bytes: int) -> Side:
            if library not in processes:
                processes[library] = stack.enter_context(AskingProcess())
            process, plan = processes[library], session.plan
            payload = {"service_ms": 0, "pad": "x" * size_bytes}

            async def ask(duration_s: float) -> int:
                return await process.count(
                    Asked(
                        url=nodes["a"].url,
                        library=library,
                        payload=payload,
                        users=USERS,
                        duration_s=duration_s,
                    )
                )

            async def turn() -> tuple[tuple[float, float]]:
                before_s = cpu_s(process.pid)
                done = await ask(plan.of(1.2, 0.6) / TURNS)
                return ((done, cpu_s(process.pid) - before_s),)

            await ask(plan.of(0.4, 0.2))
            return Side(library, turn)

        for case, (library, size_bytes) in CASES.items():
            if session.wants(case):
                peers = [await side(peer, size_bytes) for peer in PEERS]
                ours = await side(library, size_bytes)
                await session.compare([Figure(case, UNIT)], ours, *peers, turns=TURNS)


STAGES = (Stage(tuple(CASES), measure),)
