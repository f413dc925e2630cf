"""Requests a second of each engine on the paper's workload, beside SimPy and Ciw.

A run is timed from the topology and the schedule to the result; what is compiled is compiled
before. All sides get the same schedule, ours as arrays where it takes them.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from spillover.inputs.topology_file import load_topology
from spillover.model.schedule import Schedule
from spillover.model.topology import Topology
from spillover.sim.overflow.run import run_overflow
from spillover.tools.bench.model import Figure, Side, Stage
from spillover_loadgen.workloads import bursts, bursts_duration_s

if TYPE_CHECKING:
    from spillover.tools.bench.session import Session

UNIT = "requests/s"
FAST_CHORD20 = "fast engine, chord20"
FAST_RING5 = "fast engine, ring5"
FULL_RING5 = "full engine, ring5"

FULL = "full engine"
SIMPY = "SimPy"
CIW = "Ciw"

FAST_FOR_S = 0.5
"""A run of the compiled engine takes milliseconds: so long it is repeated for one value."""


async def measure_chord20(session: Session) -> None:
    """Measures the compiled engine beside the same rules not compiled."""
    topology, schedule = _paper(session, "chord20")
    await session.compare(
        [Figure(FAST_CHORD20, UNIT)],
        _fast(topology, schedule, session.plan.seed),
        _full(topology, schedule, session.plan.seed),
    )


async def measure_ring5(session: Session) -> None:
    """Measures both engines beside models written with libraries."""
    topology, schedule = _paper(session, "ring5")
    peers = _libraries(session, topology, schedule)
    if session.wants(FAST_RING5):
        fast = _fast(topology, schedule, session.plan.seed)
        await session.compare([Figure(FAST_RING5, UNIT)], fast, *peers)
    if session.wants(FULL_RING5):
        full = _full(topology, schedule, session.plan.seed)
        await session.compare([Figure(FULL_RING5, UNIT)], full, *peers[:1])


def _paper(session: Session, name: str) -> tuple[Topology, Schedule]:
    """A built-in federation and the paper's workload for it, cut short for quick runs."""
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
    return _timed(FULL, len(schedule), lambda: run_overflow(topology, schedule, seed))


def _libraries(session: Session, topology: Topology, schedule: Schedule) -> list[Side]:
    """Those that are installed, SimPy first."""
    sides = []
    seed, count = session.plan.seed, len(schedule)
    if find_spec("simpy"):
        from spillover.tools.bench.sim.simpy_model import run_simpy  # noqa: PLC0415

        sides.append(_timed(SIMPY, count, lambda: run_simpy(topology, schedule, seed)))
    else:
        session.note("SimPy is not installed: no row beside it")
    if find_spec("ciw"):
        from spillover.tools.bench.sim.ciw_model import run_ciw  # noqa: PLC0415

        sides.append(_timed(CIW, count, lambda: run_ciw(topology, schedule, seed)))
    else:
        session.note("Ciw is not installed: no row beside it")
    return sides


def _timed(name: str, requests: int, run: Callable[[], object]) -> Side:
    async def measure() -> Sequence[float]:
        gc.collect()
        started_s = time.perf_counter()
        run()
        return (requests / (time.perf_counter() - started_s),)

    return Side(name, measure)


STAGES = (
    Stage((FAST_CHORD20,), measure_chord20),
    Stage((FAST_RING5, FULL_RING5), measure_ring5),
)
