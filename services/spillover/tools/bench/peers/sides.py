"""Who plays a schedule: a federation of nodes, HAProxy's sites, and the federation in virtual time.

Each is made anew for each schedule, so that none knows anything of the one before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from spillover.model.ids import ClusterId
from spillover.model.request import Answer, Outcome
from spillover.model.schedule import Schedule
from spillover.model.statistics import percentile
from spillover.sim.overflow.run import run_overflow
from spillover.tools.bench.load_process import LoadProcess, Replayed
from spillover.tools.bench.nodes import running_nodes
from spillover.tools.bench.peers.outcome import Done, Fates, fates_of
from spillover.tools.bench.peers.sites import LONG_S, running_sites
from spillover.tools.bench.peers.workloads import Workload
from spillover.tools.bench.usage import CpuUse
from spillover_loadgen.record import Record


@dataclass(frozen=True, slots=True)
class Played:
    """What came of one schedule, and what it took."""

    fates: Fates
    cpu_share: Mapping[str, float]
    """Of one core, by kind of process, over the schedule and until its last answer."""
    lag_ms: float
    """How late the generator sent: p99."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What a side is to play, who asks, and who begins at the same time."""

    workload: Workload
    schedule: Schedule
    seed: int
    load: LoadProcess
    ready: asyncio.Barrier
    """Passed once all processes of all sides run that play together."""


class PlayingSide(Protocol):
    """One of those compared, live."""

    @property
    def name(self) -> str:
        """Returns what it is called."""

    async def play(self, turn: Turn) -> Played:
        """Plays it, from the start of all processes to their end."""


@dataclass(frozen=True, slots=True)
class Federation:
    """Nodes, untuned, with this policy."""

    policy: str

    @property
    def name(self) -> str:
        return self.policy

    async def play(self, turn: Turn) -> Played:
        topology = turn.workload.topology.with_policy(self.policy)
        async with running_nodes(topology, turn.seed) as nodes:
            urls = {ClusterId(cluster): node.url for cluster, node in nodes.items()}
            processes = {"nodes": [node.pid for node in nodes.values()]}
            return await _play(self.name, turn, urls, processes)


@dataclass(frozen=True, slots=True)
class ThresholdSites:
    """HAProxy's sites, which spill where that many wait."""

    threshold: int

    @property
    def name(self) -> str:
        return f"HAProxy, queue {self.threshold}"

    async def play(self, turn: Turn) -> Played:
        workload = turn.workload
        within_s = queue_within_s(workload.deadline_ms)
        async with running_sites(workload.topology, self.threshold, within_s) as sites:
            processes = {"HAProxy": sites.haproxies, "servers and relays": sites.emulation}
            return await _play(self.name, turn, sites.urls, processes)


def queue_within_s(deadline_ms: float | None) -> float:
    """Returns how long HAProxy lets a request wait. Who has waited half the deadline has time for
    nearly every job left: any longer, and where all sites are overloaded every answer would be
    late."""
    return LONG_S if deadline_ms is None else deadline_ms / 2e3


def simulate(workload: Workload, policy: str, schedule: Schedule, seed: int) -> Fates:
    """Returns what becomes of the schedule in virtual time, by the services' own code."""
    fates: list[Done | None] = [None] * len(schedule)

    def answered(number: int, answer: Answer) -> None:
        if answer.outcome is Outcome.DONE:
            fates[number] = Done(answer.total_s * 1e3, len(answer.path) - 1)

    run_overflow(workload.topology.with_policy(policy), schedule, seed, on_answer=answered)
    return fates


async def _play(
    name: str,
    turn: Turn,
    urls: Mapping[ClusterId, str],
    processes: Mapping[str, Sequence[int]],
) -> Played:
    workload, load = turn.workload, turn.load
    job = Replayed(
        targets=urls, schedule=turn.schedule, seed=turn.seed, deadline_ms=workload.deadline_ms
    )
    processes = {**processes, "generator": [load.pid]}
    await turn.ready.wait()
    use = CpuUse(processes)
    records = await load.records(job)
    return played_of(name, workload, records, use.used_s())


def played_of(
    name: str, workload: Workload, records: Sequence[Record], used_s: Mapping[str, float]
) -> Played:
    """Returns what records and CPU times come to. Raises RunError as `fates_of`."""
    ended_s = [r.intended_s + (r.response_time_ms or 0.0) / 1e3 for r in records]
    length_s = max(ended_s)
    lags_ms = sorted(record.sent_lag_s * 1e3 for record in records)
    return Played(
        fates_of(name, workload, records),
        {kind: used / length_s for kind, used in used_s.items()},
        percentile(lags_ms, 0.99),
    )
