"""How the compiled engine scales: with clusters and requests, and with neighbors.

What is large runs in a process of its own, whose memory is then that of the run. Beside the figures
stand the limits that the project has set itself.
"""

from __future__ import annotations

import gc
import resource
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from spillover.model.errors import RunError, SpilloverError
from spillover.model.ids import ClusterId
from spillover.model.topology import Cluster, Link, Topology
from spillover.tools.bench.model import Row, Stage
from spillover.tools.processes.child import Child

if TYPE_CHECKING:
    from spillover.tools.bench.session import Session

CLUSTERS = 1000
REQUESTS = 1e7
REQUESTS_QUICK = 2e5
WALL = "10^7 requests, 1 000 clusters: time"
MEMORY = "10^7 requests, 1 000 clusters: memory"
QUICK = {
    WALL: "200 000 requests, 1 000 clusters: time",
    MEMORY: "200 000 requests, 1 000 clusters: memory",
}
"""What the rows of a quick run are called: without the limits, which are those of the large one."""
LIMIT = "limit"
WALL_S_MAX = 120.0
MEMORY_MB_MAX = 2000.0
RATE_PER_S = 100.0
"""At each cluster: 80 % of what its servers can do."""
CHILD_WITHIN_S = 600.0

REACHES = (1, 2, 4, 8)
"""Each cluster has twice as many neighbors."""
NEIGHBORS = {f"cost of a request, {2 * reach} neighbors": reach for reach in REACHES}
NEIGHBORS_PEER = f"{2 * REACHES[0]} neighbors"
BUSY_RATE_PER_S = 118.0
"""So near to what the servers can do that most requests are decided about."""
RING = 60


def circulant(clusters: int, reach: int) -> Topology:
    """Returns clusters in a circle, each linked to the next `reach`; the paper's values
    otherwise."""
    ids = [ClusterId(f"c{number}") for number in range(clusters)]
    return Topology(
        name=f"circle of {clusters}",
        policy="paper",
        clusters=tuple(Cluster(id=i, servers=5, service_ms=40.0, delivery_ms=6.0) for i in ids),
        links=tuple(
            Link(between=(ids[x], ids[(x + step) % clusters]), delay_ms=35.0)
            for step in range(1, reach + 1)
            for x in range(clusters)
        ),
    )


async def measure_large(session: Session) -> None:
    """Measures from the topology to the summary, drawing the requests included; compiled before."""
    quick = session.plan.quick
    requests = int(session.plan.of(REQUESTS, REQUESTS_QUICK))
    walls_s, peaks_mb = [], []
    for run in range(session.plan.runs):
        session.say_run(QUICK[WALL] if quick else WALL, run)
        with Child("the large run", run_large, requests, session.plan.seed) as child:
            wall_s, peak_mb = await child.receive(CHILD_WITHIN_S)
        walls_s.append(wall_s)
        peaks_mb.append(peak_mb)
    for case, row in large_rows(walls_s, peaks_mb, quick=quick):
        if session.wants(case):
            session.add(row)


def large_rows(
    walls_s: Sequence[float], peaks_mb: Sequence[float], *, quick: bool
) -> Iterator[tuple[str, Row]]:
    """Returns the case that is asked for, and its row: times beside their limit, and peaks of
    memory."""
    for case, unit, values, limit in (
        (WALL, "s", walls_s, WALL_S_MAX),
        (MEMORY, "MB", peaks_mb, MEMORY_MB_MAX),
    ):
        if quick:
            yield case, Row(case=QUICK[case], unit=unit, values=tuple(values))
            continue
        row = Row(case=case, unit=unit, values=tuple(values), peer=LIMIT, peer_values=(limit,))
        yield case, row


def run_large(requests: int, seed: int, connection: Connection) -> None:
    """Runs in a process of its own: tells the wall time in s and the peak of its memory in MB."""
    try:
        from spillover.sim.fast.overflow.arrivals import arrays_of, poisson_arrays  # noqa: PLC0415
        from spillover.sim.fast.overflow.run import run_fast  # noqa: PLC0415

        small = circulant(5, 1)
        run_fast(small, arrays_of([], small), seed)
        started_s = time.perf_counter()
        topology = circulant(CLUSTERS, 2)
        arrivals = poisson_arrays(topology, rate_per_s=RATE_PER_S, requests=requests, seed=seed)
        told = run_fast(topology, arrivals, seed).as_dict()
        wall_s = time.perf_counter() - started_s
        if told["requests"] != requests:
            connection.send(RunError(f"{requests - told['requests']} requests came to no outcome"))
        connection.send((wall_s, _peak_mb()))
    except SpilloverError as error:
        connection.send(RunError(str(error)))


def _peak_mb() -> float:
    """In units of 10^6 bytes; the system counts in KiB, on macOS in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


async def measure_neighbors(session: Session) -> None:
    """Measures the engine's own time, in turn for each number of neighbors; ratios are to the
    fewest."""
    from spillover.sim.fast.overflow.arrivals import arrays_of, poisson_arrays  # noqa: PLC0415
    from spillover.sim.fast.overflow.run import run_fast  # noqa: PLC0415

    requests, seed = int(session.plan.of(1e6, 1e5)), session.plan.seed
    topologies = {case: circulant(RING, reach) for case, reach in NEIGHBORS.items()}
    one = next(iter(topologies.values()))
    arrivals = poisson_arrays(one, rate_per_s=BUSY_RATE_PER_S, requests=requests, seed=seed)
    run_fast(one, arrays_of([], one), seed)
    costs_us: dict[str, list[float]] = {case: [] for case in NEIGHBORS}
    for run in range(session.plan.runs):
        session.say_run("cost of a request by neighbors", run)
        for case, topology in topologies.items():
            gc.collect()
            costs_us[case].append(run_fast(topology, arrivals, seed).wall_s / requests * 1e6)
    add_neighbors(session, costs_us)


def add_neighbors(session: Session, costs_us: Mapping[str, Sequence[float]]) -> None:
    """Notes what requests cost with more neighbors, beside the fewest."""
    fewest, *more = NEIGHBORS
    for case in more:
        if session.wants(case):
            row = Row(
                case=case,
                unit="us",
                values=tuple(costs_us[case]),
                peer=NEIGHBORS_PEER,
                peer_values=tuple(costs_us[fewest]),
            )
            session.add(row)


STAGES = (
    Stage((WALL, MEMORY), measure_large),
    Stage(tuple(NEIGHBORS)[1:], measure_neighbors),
)
