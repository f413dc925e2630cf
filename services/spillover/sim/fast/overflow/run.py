"""`sim overflow --engine fast`: a schedule through a federation in a compiled kernel.

On the same schedule and seed every request has the same outcome, hops and system time as in
`sim.overflow.run`, to the last bit. Modeled as there: servers, queues and their limits, delivery,
links, reports with their phases, the hop budget, no second visit to a cluster, refusals that come
back and are decided again, limits of what is away, the running mean of service times, admission
by deadline, and deadlines themselves. Draws come from the same streams, and what falls on the same
instant happens in the order made, with one exception: a deadline on the very instant of another
event counts after it.

Not modeled: faults, and answers that begin before they end (decision 0043): the deadline bounds all
of a service here, not its head alone, and every neighbor may be handed a request. `events` counts
less than in the full engine, since most reports are no events here. System times are in order of
arrival, there in order of completion.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spillover.core.overflow.reporting import HEARTBEAT_S
from spillover.model.ids import ClusterId
from spillover.model.request import Outcome
from spillover.model.schedule import Schedule
from spillover.model.statistics import SUMMARY_FIELDS
from spillover.model.topology import Topology
from spillover.sim.fast.overflow.arrivals import ArrivalArrays, arrays_of
from spillover.sim.fast.overflow.kernel import NEEDS_ROOM, OVER, advance, begin
from spillover.sim.fast.overflow.queue import DONE, EXPIRED, REFUSED
from spillover.sim.fast.overflow.state import KernelState, Requests, grown, make_state
from spillover.sim.overflow.alike import check_alike
from spillover.sim.overflow.outcome import run_as_dict
from spillover.sim.overflow.run import check_length
from spillover.sim.overflow.shared import SHARED, merged, server_kinds

EVENTS_AT_ONCE = 500_000
"""The number of events between two calls of `on_progress`."""

_OUTCOMES = {Outcome.DONE: DONE, Outcome.EXPIRED: EXPIRED, "refused": REFUSED}


@dataclass(slots=True)
class FastRun:
    """The outcome of one run: as `sim.overflow.outcome.OverflowRun`, with arrays for lists.

    `requests` has the figures of each request in order of arrival, `policy` may be `shared`.
    """

    topology: Topology
    policy: str
    requests: Requests
    system_time_ms: dict[ClusterId, NDArray[np.float64]]
    hops: dict[ClusterId, Counter[int]]
    outcomes: Counter[str]
    ended: int
    queue_length_max: int
    reports: int
    events: int
    wall_s: float
    faults: int = 0
    """None are modeled."""

    def as_dict(self) -> dict[str, Any]:
        """Returns the object that `sim overflow --json` prints."""
        every_ms = np.concatenate(list(self.system_time_ms.values()))
        per_cluster = {c: summarize_array(times_ms) for c, times_ms in self.system_time_ms.items()}
        return run_as_dict(self, "fast", self.policy, summarize_array(every_ms), per_cluster)


def run_fast(
    topology: Topology,
    schedule: Schedule | ArrivalArrays,
    seed: int,
    on_progress: Callable[[int], None] | None = None,
    *,
    shared: bool = False,
) -> FastRun:
    """Send the schedule into the federation and wait until every request has its answer.

    `shared`: instead of the topology's policy, one queue for all (`sim.overflow.shared`).
    InputError where the schedule does not fit the topology or is too long for it
    (`sim.overflow.run.check_length`), or servers are unlike (`alike`). `wall_s` is the kernel's own
    time: not that of compiling it, or of loading what is compiled.
    """
    check_alike(topology)
    arrivals = schedule if isinstance(schedule, ArrivalArrays) else arrays_of(schedule, topology)
    arrivals.check(topology)
    check_length(topology, float(arrivals.time_s[-1]) if len(arrivals) else 0.0)
    requests = _empty_requests(arrivals)
    state = _first_state(topology, requests, seed, shared=shared)
    # The first call of a kernel compiles or loads it: a call for nothing keeps that off the clock.
    begin(state)
    advance(state, 0)
    started_s = time.perf_counter()
    state = _run(state, on_progress)
    wall_s = time.perf_counter() - started_s
    run = state.run[0]
    times_ms, hops = _by_home(topology, arrivals, requests)
    codes = Counter(dict(enumerate(np.bincount(requests.outcome, minlength=4).tolist())))
    return FastRun(
        topology=topology,
        policy=SHARED if shared else topology.policy,
        requests=requests._replace(home=arrivals.cluster),
        system_time_ms=times_ms,
        hops=hops,
        outcomes=Counter({name: codes[code] for name, code in _OUTCOMES.items() if codes[code]}),
        ended=int(run["ended"]),
        queue_length_max=int(state.clusters["longest"].max()),
        reports=int(run["reports"]) + _beats(state),
        events=int(run["events"]),
        wall_s=wall_s,
    )


def summarize_array(values: NDArray[np.float64]) -> dict[str, float | None]:
    """`model.statistics.summarize` of very many values, without a list of them."""
    count = len(values)
    if not count:
        return dict.fromkeys(SUMMARY_FIELDS)
    ordered = np.sort(values)
    mean = math.fsum(ordered.data) / count
    ranks = {name: max(1, math.ceil(share * count)) for name, share in _PERCENTILES.items()}
    squares = (ordered - mean) ** 2
    return {
        "mean": mean,
        **{name: float(ordered[rank - 1]) for name, rank in ranks.items()},
        "max": float(ordered[-1]),
        "min": float(ordered[0]),
        "std": math.sqrt(math.fsum(squares.data) / count),
    }


_PERCENTILES = {"p50": 0.50, "p99": 0.99}


def _empty_requests(arrivals: ArrivalArrays) -> Requests:
    count = len(arrivals)
    work_ms = np.empty(0) if arrivals.service_ms is None else arrivals.service_ms
    return Requests(
        time_s=np.ascontiguousarray(arrivals.time_s, np.float64),
        home=np.ascontiguousarray(arrivals.cluster, np.int32),
        work_s=np.ascontiguousarray(work_ms, np.float64) / 1e3,
        slot=np.zeros(count, np.int32),
        outcome=np.zeros(count, np.int8),
        system_time_ms=np.full(count, np.nan),
        hops=np.zeros(count, np.int16),
    )


def _first_state(topology: Topology, requests: Requests, seed: int, *, shared: bool) -> KernelState:
    if not shared:
        return make_state(topology, requests, seed)
    kinds = server_kinds(topology)
    nowhere = requests._replace(home=np.zeros(len(requests.home), np.int32))
    return make_state(merged(topology), nowhere, seed)._replace(
        kind_s=np.array([kind.service_s for kind in kinds]),
        kind_free=np.array([kind.servers for kind in kinds], np.int64),
    )


def _run(state: KernelState, on_progress: Callable[[int], None] | None) -> KernelState:
    while True:
        status = advance(state, EVENTS_AT_ONCE)
        if on_progress is not None:
            on_progress(int(state.run["ended"][0]))
        if status == OVER:
            return state
        if status == NEEDS_ROOM:
            state = grown(state)


def _beats(state: KernelState) -> int:
    """Signs of life between reports, which tell nothing here but are counted with them."""
    run = state.run[0]
    if run["period_s"] <= HEARTBEAT_S:
        return 0
    return int(run["end_s"] / HEARTBEAT_S) * len(state.links)


def _by_home(
    topology: Topology, arrivals: ArrivalArrays, requests: Requests
) -> tuple[dict[ClusterId, NDArray[np.float64]], dict[ClusterId, Counter[int]]]:
    """System times of what was done, and hops, by home; requests in order of arrival."""
    clusters = len(topology.clusters)
    is_done = requests.outcome == DONE
    home, times_ms, hops = arrivals.cluster, requests.system_time_ms, requests.hops
    if not is_done.all():
        home, times_ms, hops = home[is_done], times_ms[is_done], hops[is_done]
    # A stable order of 16-bit numbers is found without comparing.
    short = home.astype(np.uint16) if clusters < 2**16 else home
    ordered_ms = times_ms[np.argsort(short, kind="stable")]
    width = int(hops.max(initial=0)) + 1
    counts = np.bincount(home * np.int64(width) + hops, minlength=clusters * width)
    by_home: dict[ClusterId, NDArray[np.float64]] = {}
    counters: dict[ClusterId, Counter[int]] = {}
    start = 0
    for cluster, row in zip(topology.cluster_ids, counts.reshape(-1, width).tolist(), strict=True):
        stop = start + sum(row)
        by_home[cluster] = ordered_ms[start:stop]
        counters[cluster] = Counter({hop: n for hop, n in enumerate(row) if n})
        start = stop
    return by_home, counters
