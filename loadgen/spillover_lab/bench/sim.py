"""`spillover bench sim`: how fast the engines of the simulator are.

A run is timed from the topology and the schedule to the result; what is compiled is compiled
before. Both engines get the same schedule, the compiled one as arrays. What is large runs in a
process of its own, whose memory is then that of the run.
"""

from __future__ import annotations

import gc
import resource
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from multiprocessing.connection import Connection
from typing import TypeAlias

from spillover.inputs.topology_file import load_topology
from spillover.model.errors import RunError
from spillover.model.ids import ClusterId
from spillover.model.schedule import Schedule
from spillover.model.topology import Cluster, Link, Topology
from spillover.sim.overflow.run import run_overflow
from spillover.workloads.generated import bursts, bursts_duration_s
from spillover_lab.bench.session import Figure, Session, Side, Stage
from spillover_lab.processes.child import Child

Run: TypeAlias = Callable[[Session], Awaitable[None]]

UNIT = "requests/s"
FAST_CHORD20, FAST_RING5 = "fast engine, chord20", "fast engine, ring5"
FULL_RING5 = "full engine, ring5"
FAST_FOR_S = 0.5
"""A run of the compiled engine takes milliseconds: so long it is repeated for one value."""

LARGE, LARGE_QUICK = 10**7, 2 * 10**5
CLUSTERS = 1000
WALL, MEMORY = "large run, 1 000 clusters: time", "large run, 1 000 clusters: memory"
LIMITS = {WALL: 120.0, MEMORY: 2000.0}
"""What the project has asked of itself, in s and MB."""
RATE_PER_S = 100.0
"""Requests that come to each cluster: 80 % of what its servers can do."""
LARGE_WITHIN_S = 600.0


async def _measure_chord20(session: Session) -> None:
    """Measures the compiled engine beside the same rules not compiled."""
    topology, schedule = _paper(session, "chord20")
    fast = _fast(topology, schedule, session.plan.seed)
    full = _full(topology, schedule, session.plan.seed)
    await session.compare([Figure(FAST_CHORD20, UNIT)], fast, full)


async def _measure_ring5(session: Session) -> None:
    topology, schedule = _paper(session, "ring5")
    for case, engine in ((FAST_RING5, _fast), (FULL_RING5, _full)):
        if session.wants(case):
            ours = engine(topology, schedule, session.plan.seed)
            await session.compare([Figure(case, UNIT)], ours)


def _paper(session: Session, name: str) -> tuple[Topology, Schedule]:
    """Returns a built-in federation and the paper's workload for it, cut short for quick runs."""
    topology = load_topology(name)
    duration_s = session.plan.of(bursts_duration_s(len(topology.clusters)), 8.0)
    return topology, bursts(topology.cluster_ids, duration_s=duration_s, seed=session.plan.seed)


def _fast(topology: Topology, schedule: Schedule, seed: int) -> Side:
    # The extra `sim` may be missing, which is told only to who asks for this.
    from spillover.sim.fast.overflow.arrivals import arrays_of  # noqa: PLC0415
    from spillover.sim.fast.overflow.run import run_fast  # noqa: PLC0415

    arrivals = arrays_of(schedule, topology)
    run_fast(topology, arrays_of([], topology), seed)

    async def measure() -> Sequence[float]:
        gc.collect()
        runs, started_s, passed_s = 0, time.perf_counter(), 0.0
        while passed_s < FAST_FOR_S:
            run_fast(topology, arrivals, seed)
            runs += 1
            passed_s = time.perf_counter() - started_s
        return (runs * len(arrivals) / passed_s,)

    return Side("fast engine", measure)


def _full(topology: Topology, schedule: Schedule, seed: int) -> Side:
    async def measure() -> Sequence[float]:
        gc.collect()
        started_s = time.perf_counter()
        run_overflow(topology, schedule, seed)
        return (len(schedule) / (time.perf_counter() - started_s),)

    return Side("full engine", measure)


async def _measure_large(session: Session) -> None:
    """Measures from the topology to the summary, drawing the requests included."""
    plan, runs = session.plan, []
    requests = int(plan.of(LARGE, LARGE_QUICK))
    for _ in session.seeds(WALL):
        with Child("the large run", run_large, requests, plan.seed) as child:
            runs.append(await child.receive(LARGE_WITHIN_S))
    session.note(f"large run: {requests} requests; the limits are those of {LARGE}")
    walls_s, peaks_mb = zip(*runs, strict=True)
    for case, unit, values in ((WALL, "s", walls_s), (MEMORY, "MB", peaks_mb)):
        limit = {} if plan.quick else {"limit": [LIMITS[case]]}
        session.add_beside(case, unit, {"": values, **limit})


async def run_large(requests: int, seed: int, connection: Connection) -> None:
    """Runs in a process of its own: tells the wall time in s and the peak of its memory in MB."""
    from spillover.sim.fast.overflow.arrivals import arrays_of, poisson_arrays  # noqa: PLC0415
    from spillover.sim.fast.overflow.run import run_fast  # noqa: PLC0415

    small = _circle(5)
    run_fast(small, arrays_of([], small), seed)
    started_s = time.perf_counter()
    topology = _circle(CLUSTERS)
    arrivals = poisson_arrays(topology, rate_per_s=RATE_PER_S, requests=requests, seed=seed)
    told = run_fast(topology, arrivals, seed).as_dict()
    wall_s = time.perf_counter() - started_s
    if told["requests"] != requests:
        raise RunError(f"{requests - told['requests']} requests came to no outcome")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    connection.send((wall_s, peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6))


def _circle(clusters: int) -> Topology:
    """Returns clusters in a circle, each linked to the next two; the paper's values otherwise."""
    ids = [ClusterId(f"c{number}") for number in range(clusters)]
    return Topology(
        name=f"circle of {clusters}",
        policy="paper",
        clusters=tuple(Cluster(id=i, servers=5, service_ms=40.0, delivery_ms=6.0) for i in ids),
        links=tuple(
            Link(between=(ids[x], ids[(x + step) % clusters]), delay_ms=35.0)
            for step in ((1, 2) if clusters > 5 else (1,))
            for x in range(clusters)
        ),
    )


def _interruptible(
    run: Callable[[Session], Awaitable[None]],
) -> Callable[[Session], Awaitable[None]]:
    """Returns the same, ended by Ctrl-C at once. asyncio cancels its task on the first one, which a
    task that computes and never waits hears at its end."""

    async def run_interruptibly(session: Session) -> None:
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            await run(session)
        finally:
            signal.signal(signal.SIGINT, before)

    return run_interruptibly


STAGES = (
    Stage((FAST_CHORD20,), _interruptible(_measure_chord20)),
    Stage((FAST_RING5, FULL_RING5), _interruptible(_measure_ring5)),
    Stage((WALL, MEMORY), _interruptible(_measure_large)),
)
