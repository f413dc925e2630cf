"""What is played: the pools of Comte's figures 8 and 11, each as several replicas that know nothing
of each other, and Poisson arrivals of exponential jobs by seed.

Replicas shorten a run: what counts is how many jobs come in all, and how often a pool has had time
to forget where it was. Time is as it is: a job of mean size takes at least 250 ms alone on the
fastest servers. Who plays is not known here.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import attrgetter

from spillover.inputs.builtin_pools import BUILTIN_POOLS
from spillover.model.errors import InputError
from spillover.model.ids import ClusterId
from spillover.model.pool import Pool
from spillover.model.schedule import Schedule
from spillover.model.token_orders import ORDERS
from spillover.tools.bench.model import BenchPlan
from spillover_loadgen import workloads

SETTLED_S = 60.0
"""Jobs count from then on: pools begin empty, and forget that with a time constant of 15 s at load
1, where it is longest."""
CPU_S_OF_A_JOB = 7.0e-3
"""What one takes in all processes of all sides together, two of nodes and five of dispatchers, as
this benchmark tells it on a slow day (AMD EPYC; 4.5 ms on a good one). Too little, and all sides
are late."""
CPU_S_OF_A_JOB_ALONE = 1.1e-3
"""With the one side of nodes that plays a pool which changes."""
CPU_SHARE = 0.7
"""Of all cores: with more, all would be late."""
DISPATCHES_OF = {order: f"dispatch, {order}" for order in ORDERS}
"""Cases without jobs that take time (`dispatch`), by the pool's order."""
REPLICAS_MAX = 32
REPLICAS_QUICK = 2
QUICK_S = 3.0


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a schedule in which the servers are the same."""

    name: str
    pool: Pool
    """With those servers only."""
    begin_s: float
    from_s: float
    """Jobs count from then on."""
    until_s: float
    order: Mapping[str, str]
    """What is to become of servers as it begins, as `PUT /admin/tokens` takes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A pool at a load."""

    name: str
    pool: Pool
    """Its types' rates are in jobs per `job_ms`."""
    job_ms: float
    """Mean size of a job: what it takes alone on a server of rate 1."""
    jobs: int
    """That are to count, in each phase, when the run is a full one."""
    out: str | None = None
    """The server that is taken out after the first third, and put back after the second."""

    def replicas(self, plan: BenchPlan) -> tuple[ClusterId, ...]:
        """Returns the names of the replicas: as many as were asked for, else as keep CPU_SHARE of
        the cores busy."""
        count = plan.replicas or REPLICAS_QUICK
        if plan.replicas is None and not plan.quick:
            cpu_s = CPU_S_OF_A_JOB if self.out is None else CPU_S_OF_A_JOB_ALONE
            fit = CPU_SHARE * (os.cpu_count() or 1) / (cpu_s * self.rate_per_s)
            count = max(REPLICAS_QUICK, min(REPLICAS_MAX, int(fit)))
        return tuple(ClusterId(f"r{number}") for number in range(1, count + 1))

    @property
    def rate_per_s(self) -> float:
        """Returns how many jobs come to each replica."""
        return sum(kind.rate for kind in self.pool.types) / (self.job_ms / 1e3)

    def duration_s(self, plan: BenchPlan) -> float:
        """Returns how long a schedule is."""
        if plan.duration_s is not None:
            return plan.duration_s
        full_s = SETTLED_S + self.jobs / (self.rate_per_s * len(self.replicas(plan)))
        return plan.of(full_s, QUICK_S) * (1 if self.out is None else 3)

    def phases(self, plan: BenchPlan) -> tuple[Phase, ...]:
        """Returns the parts of a schedule; in each, jobs count once the pool has settled."""
        end_s = self.duration_s(plan)
        if self.out is None:
            return (_phase("", self.pool, 0.0, end_s),)
        third_s = end_s / 3
        without = _without(self.pool, self.out)
        return (
            _phase("all", self.pool, 0.0, third_s),
            _phase(f"{self.out} out", without, third_s, 2 * third_s, {self.out: "out"}),
            _phase(f"{self.out} back", self.pool, 2 * third_s, end_s, {self.out: "in"}),
        )

    def schedule(self, plan: BenchPlan, seed: int) -> Schedule:
        """Returns the jobs of one seed, for as long as the plan says. Raises InputError if that is
        too short for any to come."""
        schedule: Schedule = []
        for kind in self.pool.types:
            drawn = workloads.poisson(
                self.replicas(plan),
                rate_per_s=kind.rate / (self.job_ms / 1e3),
                duration_s=self.duration_s(plan),
                seed=_seed(seed, self.name, kind.id),
            )
            sizes = random.Random(f"{seed}/{self.name}/sizes/{kind.id}")
            schedule += [
                replace(
                    arrival,
                    type=kind.id,
                    service_ms=round(sizes.expovariate(1 / self.job_ms), 6),
                )
                for arrival in drawn
            ]
        if not schedule:
            raise InputError("--duration-s", "", f"expected longer: no job of {self.name} comes")
        return sorted(schedule, key=attrgetter("time_s"))


def _seed(seed: int, *names: str) -> int:
    """Of a stream of its own."""
    return random.Random("/".join((str(seed), *names))).getrandbits(63)


def _phase(
    name: str, pool: Pool, begin_s: float, until_s: float, order: Mapping[str, str] | None = None
) -> Phase:
    from_s = begin_s + min(SETTLED_S, (until_s - begin_s) / 2)
    return Phase(name, pool, begin_s, from_s, until_s, order or {})


def _without(pool: Pool, server: str) -> Pool:
    """The pool with that server gone, which is a class by itself."""
    classes = tuple(each for each in pool.classes if each.servers != (server,))
    left = {each.id for each in classes}
    return replace(
        pool,
        servers=tuple(each for each in pool.servers if each.id != server),
        classes=classes,
        types=tuple(
            replace(kind, classes=tuple(name for name in kind.classes if name in left))
            for kind in pool.types
        ),
    )


def _workload(pool_name: str, load: float, job_ms: float, jobs: int) -> Workload:
    return Workload(
        name=f"{pool_name} at {load}",
        pool=BUILTIN_POOLS[pool_name]().at_load(load),
        job_ms=job_ms,
        jobs=jobs,
    )


def _changing(load: float) -> Workload:
    return replace(
        _workload("comte8", load, COMTE8_MS, 62_000),
        name="changing comte8",
        out="s10",
    )


COMTE8_MS, COMTE11_MS = 1000.0, 250.0
"""Figure 8's fast servers have rate 4, figure 11's servers all have rate 1."""

WORKLOADS = (
    _workload("comte8", 0.8, COMTE8_MS, 62_000),
    # At the critical load the number of jobs wanders: 350 000 give an interval of +-8 %.
    _workload("comte8", 1.0, COMTE8_MS, 500_000),
    _workload("comte8", 1.2, COMTE8_MS, 100_000),
    _workload("comte11", 0.8, COMTE11_MS, 62_000),
    _workload("comte11", 1.0, COMTE11_MS, 62_000),
    _workload("comte11", 1.2, COMTE11_MS, 62_000),
    _changing(1.0),
)
