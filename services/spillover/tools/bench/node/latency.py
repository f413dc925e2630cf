"""Added latency at half load: what a request takes beyond waiting and being served.

The exact waiting time comes from the recursion of a FIFO with m servers on the intended schedule.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import count
from typing import TYPE_CHECKING

from spillover.model.ids import ClusterId
from spillover.model.schedule import Schedule
from spillover.model.statistics import percentile
from spillover.tools.bench.load_process import LoadProcess, Scheduled
from spillover.tools.bench.model import Figure, Side, Stage
from spillover.tools.bench.node.paths import BARE_APP
from spillover.tools.bench.nodes import answer_of, cluster, request_body, running_nodes, topology_of
from spillover.tools.bench.servers import Bare, Server, running
from spillover_loadgen import workloads

if TYPE_CHECKING:
    from spillover.tools.bench.session import Session

SERVERS = 5
SERVICE_MS = 4.0
RATE_PER_S = 625.0
"""Half of what the servers can do."""
SHARES = {"p50": 0.50, "p99": 0.99}
TITLE = "added latency at half load"
CASES = tuple(f"{TITLE}, {name}" for name in SHARES)


def ideal_system_times_ms(
    arrivals_s: Sequence[float], *, servers: int, service_ms: float
) -> list[float]:
    """Returns wait and service of each arrival, in ascending order of time, at a FIFO with equal
    servers and constant service."""
    free_at_ms = [0.0] * servers
    times_ms = []
    for arrival_s in arrivals_s:
        arrival_ms = arrival_s * 1e3
        end_ms = max(arrival_ms, free_at_ms[0]) + service_ms
        heapq.heapreplace(free_at_ms, end_ms)
        times_ms.append(end_ms - arrival_ms)
    return times_ms


def added(response_ms: Sequence[float], ideal_ms: Sequence[float]) -> tuple[float, ...]:
    """Returns the percentiles of `SHARES` of what came on top, in ms."""
    extra = sorted(r - i for r, i in zip(response_ms, ideal_ms, strict=True))
    return tuple(percentile(extra, share) for share in SHARES.values())


def lag_note(lags_ms: Sequence[float]) -> str:
    """Returns how much of what came on top was the generator's."""
    in_order = sorted(lags_ms)
    lag = ", ".join(f"{n} {percentile(in_order, s):.2f} ms" for n, s in SHARES.items())
    return f"{TITLE}: of it, on both sides, requests left late by {lag}"


async def measure_latency(session: Session) -> None:
    """Measures one cluster beside a bare app that sleeps as long as one service takes."""
    duration_s = session.plan.of(3.0, 1.0)
    seeds = count(session.plan.seed)
    topology = topology_of(
        [cluster("a", servers=SERVERS, queue_limit=10_000, service_ms=SERVICE_MS)]
    )
    async with AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(running_nodes(topology, session.plan.seed))
        answer = await answer_of(nodes["a"], request_body(SERVICE_MS, 64))
        peer = Bare(answer=answer, sleep_s=SERVICE_MS / 1e3)
        bare = await stack.enter_async_context(running(peer))
        load = stack.enter_context(LoadProcess())

        lags_ms: list[float] = []

        async def respond(server: Server) -> tuple[Schedule, list[float]]:
            seed = next(seeds)
            schedule = workloads.poisson(
                [ClusterId("a")], rate_per_s=RATE_PER_S, duration_s=duration_s, seed=seed
            )
            job = Scheduled(url=server.url, schedule=schedule, seed=seed)
            times = await load.times(job)
            lags_ms.extend(times.lag_ms)
            return schedule, times.response_ms

        async def ours() -> tuple[float, ...]:
            schedule, response_ms = await respond(nodes["a"])
            arrivals_s = [arrival.time_s for arrival in schedule]
            ideal_ms = ideal_system_times_ms(arrivals_s, servers=SERVERS, service_ms=SERVICE_MS)
            return added(response_ms, ideal_ms)

        async def peers() -> tuple[float, ...]:
            schedule, response_ms = await respond(bare)
            return added(response_ms, [SERVICE_MS] * len(schedule))

        figures = [Figure(case, "ms") for case in CASES]
        name = f"{BARE_APP} that sleeps"
        await session.compare(figures, Side("node", ours), Side(name, peers))
        session.note(lag_note(lags_ms))


STAGE = Stage(CASES, measure_latency)
