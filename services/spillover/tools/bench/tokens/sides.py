"""Who plays a schedule: nodes with the pool, or dispatchers with a rule, in front of servers of
their own.

Each is made anew for each schedule, so that none knows anything of the one before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from spillover.model.errors import RunError
from spillover.model.ids import ClusterId
from spillover.model.request import Answer, Outcome
from spillover.model.schedule import Schedule
from spillover.model.statistics import percentile
from spillover.model.token_orders import LONGEST_AVAILABLE
from spillover.model.topology import Cluster
from spillover.model.unlike_servers import REFUSE, JobType, Server, ServerClass
from spillover.sim.overflow.outcome import REFUSED
from spillover.sim.overflow.run import run_overflow
from spillover.tools.bench import nodes
from spillover.tools.bench import servers as peers
from spillover.tools.bench.load_process import LoadProcess, Replayed
from spillover.tools.bench.tokens import dispatchers, sharing_servers
from spillover.tools.bench.tokens.outcome import Job, jobs_of
from spillover.tools.bench.tokens.rivals import RIVALS
from spillover.tools.bench.tokens.sharing_servers import Served
from spillover.tools.bench.tokens.workloads import Phase, Workload
from spillover.tools.bench.usage import CpuUse
from spillover.tools.processes.child import Child

TOKENS, LEAST = "tokens", "tokens, least loaded"
"""In the order of the paper, which theory is exact about, and in ours."""


@dataclass(frozen=True, slots=True)
class Run:
    """What all sides play at the same time."""

    workload: Workload
    replicas: Sequence[ClusterId]
    phases: Sequence[Phase]
    schedule: Schedule
    seed: int


@dataclass(frozen=True, slots=True)
class Turn:
    """What a side is to play, who asks, and who begins at the same time."""

    run: Run
    load: LoadProcess
    ready: asyncio.Barrier
    """Passed once all processes of all sides run."""
    heard: asyncio.Barrier
    """Passed once all sides have taken in what they were told of so many jobs: for seconds in which
    nobody else hears anything."""
    began: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class Played:
    """What came of one schedule, and what it took."""

    jobs: Sequence[Job]
    served: Served
    cpu_share: Mapping[str, float]
    """Of one core, by kind of process, over the schedule and until its last answer."""
    lag_ms: float
    """How late the generator sent: p99."""


class PlayingSide(Protocol):
    """One of those compared."""

    @property
    def name(self) -> str:
        """Returns what it is called."""

    async def play(self, turn: Turn) -> Played:
        """Plays it, from the start of all processes to their end."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Nodes, one for each replica, untuned."""

    name: str = TOKENS
    order: str = LONGEST_AVAILABLE

    async def play(self, turn: Turn) -> Played:
        run = turn.run
        async with _sharing(run) as (sharing, ports):
            clusters = [
                cluster(replica, run.workload, of_servers, order=self.order)
                for replica, of_servers in zip(run.replicas, ports, strict=True)
            ]
            topology = nodes.topology_of(clusters)
            async with nodes.running_nodes(topology, run.seed) as running:
                urls = {ClusterId(name): node.url for name, node in running.items()}
                pids = [node.pid for node in running.values()]
                changing = asyncio.create_task(_change(turn, list(running.values())))
                try:
                    played = await _play(self.name, turn, urls, sharing, {"nodes": pids})
                    await changing
                    for node in running.values():
                        check_tokens(node.url, (await nodes.state_of(node))["tokens"])
                finally:
                    changing.cancel()
                    await asyncio.gather(changing, return_exceptions=True)
                return played


@dataclass(frozen=True, slots=True)
class Dispatched:
    """Dispatchers with one of `rivals.RIVALS`."""

    name: str

    async def play(self, turn: Turn) -> Played:
        run = turn.run
        async with _sharing(run) as (sharing, ports):
            pool = run.workload.pool
            rules = [
                RIVALS[self.name](pool, Random(f"{run.seed}/{self.name}/{replica}"))
                for replica in run.replicas
            ]
            name = f"{self.name}'s dispatchers"
            with Child(name, dispatchers.dispatch, pool, rules, ports) as child:
                own_ports = await child.receive(peers.READY_WITHIN_S)
                urls = {
                    replica: f"http://{peers.HOST}:{port}"
                    for replica, port in zip(run.replicas, own_ports, strict=True)
                }
                return await _play(self.name, turn, urls, sharing, {"dispatchers": [child.pid]})


def check_tokens(url: str, pool: Mapping[str, Any]) -> None:
    """Raises RunError unless a pool without jobs has all its tokens, each once; those that come
    back to the bucket one after another may be out of it still."""
    for each in pool["classes"]:
        if each["held"] or each["available"] + each["out"] != each["limit"]:
            raise RunError(f"{url}: expected all tokens of class {each['id']} back, got {each}")
    if pool["unaccounted"]:
        raise RunError(f"{url}: {pool['unaccounted']} tokens are nowhere, or in two places")


def simulate(run: Run, order: str = LONGEST_AVAILABLE) -> list[Job]:
    """Returns what becomes of the jobs in virtual time, by the nodes' own code; the pool must not
    change meanwhile."""
    times_ms: list[float | None] = [None] * len(run.schedule)

    def answered(number: int, answer: Answer) -> None:
        times_ms[number] = answer.total_s * 1e3

    topology = nodes.topology_of(
        cluster(replica, run.workload, order=order) for replica in run.replicas
    )
    ended = run_overflow(topology, run.schedule, run.seed, on_answer=answered).outcomes
    check_ended(f"{run.workload.name}, simulated", ended)
    return [
        Job(arrival.time_s, arrival.cluster, arrival.type, time_ms)
        for arrival, time_ms in zip(run.schedule, times_ms, strict=True)
    ]


def check_ended(name: str, ended: Mapping[str, int]) -> None:
    """Raises RunError unless all jobs were done or blocked: figures of what is left would
    flatter."""
    if ended.keys() - {Outcome.DONE, REFUSED}:
        raise RunError(f"{name}: {dict(ended)}")


def cluster(
    name: ClusterId,
    workload: Workload,
    ports: Sequence[int] | None = None,
    order: str = LONGEST_AVAILABLE,
) -> Cluster:
    """Returns a cluster with the pool, whose servers listen on those ports; without ports, whose
    servers sleep."""
    pool = workload.pool
    handlers: list[str | None] = [None] * len(pool.servers)
    if ports is not None:
        handlers = [f"http:http://{peers.HOST}:{port}/" for port in ports]
    return Cluster(
        id=name,
        servers=tuple(
            Server(id=server.id, rate=server.rate, handler=handler)
            for server, handler in zip(pool.servers, handlers, strict=True)
        ),
        classes=tuple(
            ServerClass(id=each.id, servers=each.servers, tokens=each.tokens)
            for each in pool.classes
        ),
        types=tuple(JobType(id=each.id, classes=each.classes) for each in pool.types),
        on_block=REFUSE,
        order=order,
        service_ms=workload.job_ms,
    )


@asynccontextmanager
async def _sharing(run: Run) -> AsyncIterator[tuple[Child, list[list[int]]]]:
    """The servers of all replicas, and their ports."""
    pool = run.workload.pool
    with Child("the sharing servers", sharing_servers.serve, pool, len(run.replicas)) as child:
        yield child, await child.receive(peers.READY_WITHIN_S)


async def _change(turn: Turn, running: Sequence[peers.Server]) -> None:
    """Tells all nodes what becomes of their servers as each phase begins. A little late, since the
    load begins when its process is ready; pools settle before jobs count."""
    await turn.began.wait()
    began_s = time.monotonic()
    for phase in turn.run.phases:
        if phase.order:
            await asyncio.sleep(began_s + phase.begin_s - time.monotonic())
            for node in running:
                await nodes.change_tokens(node, servers=phase.order)


async def _play(
    name: str,
    turn: Turn,
    urls: Mapping[ClusterId, str],
    sharing: Child,
    processes: Mapping[str, Sequence[int]],
) -> Played:
    run, load = turn.run, turn.load
    job = Replayed(targets=urls, schedule=run.schedule, seed=run.seed, deadline_ms=None)
    processes = {**processes, "servers": [sharing.pid], "generator": [load.pid]}
    await turn.ready.wait()
    turn.began.set()
    use = CpuUse(processes)
    fates = await load.fates(job)
    used_s = use.used_s()
    jobs = jobs_of(f"{run.workload.name}, {name}", run.schedule, fates)
    await turn.heard.wait()
    sharing.send("what have you done?")
    served: Served = await sharing.receive(peers.READY_WITHIN_S)
    played = played_of(name, jobs, served, used_s, fates.lag_ms)
    await turn.heard.wait()
    return played


def played_of(
    name: str,
    jobs: Sequence[Job],
    served: Served,
    used_s: Mapping[str, float],
    lags_ms: Sequence[float],
) -> Played:
    """Returns what all that was told comes to. Raises RunError unless the servers have done what
    clients had answers to."""
    done = sum(job.time_ms is not None for job in jobs)
    if served.jobs != done:
        raise RunError(f"{name}: {done} jobs were done, and the servers did {served.jobs}")
    length_s = max(job.at_s + (job.time_ms or 0.0) / 1e3 for job in jobs)
    return Played(
        jobs=jobs,
        served=served,
        cpu_share={kind: used / length_s for kind, used in used_s.items()},
        lag_ms=percentile(sorted(lags_ms), 0.99),
    )
