"""The demo itself: simulate, run isolated, run networked, put it together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from typing import Any

from spillover.model.errors import RunError
from spillover.model.ids import ClusterId
from spillover.model.schedule import Schedule
from spillover.model.topology import DEFAULT_POLICY, Topology
from spillover.sim.overflow.run import run_overflow
from spillover.testbed.node_process import NodeProcess
from spillover.testbed.supervisor import Testbed
from spillover.workloads import generated
from spillover_lab.demo.display import Display
from spillover_lab.demo.result import DemoResult, RunResult, Sample
from spillover_lab.demo.sampling import Sampler
from spillover_lab.processes.child import Child
from spillover_loadgen import driver, results

LOOKS_PER_RUN = 450
"""How often each run is sampled: every 0.1 s of 45."""

QUIET_WITHIN_S = 5.0
"""After the last answer, for the ledgers of relays to close."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPlan:
    """What to run. `topology` and `duration_s` are as the paper has them, at time scale 1."""

    topology: Topology
    source: str
    """Where the topology is from, for messages: a file, or a built-in name."""
    policy: str
    seed: int
    duration_s: float
    time_scale: float

    @property
    def stretched_s(self) -> float:
        return self.duration_s * self.time_scale


def run_demo(plan: DemoPlan, display: Display) -> DemoResult:
    """Runs it all in real time. Raises RunError if a cluster dies on the way."""
    topology = plan.topology.stretched(plan.time_scale)
    drawn = generated.bursts(topology.cluster_ids, duration_s=plan.duration_s, seed=plan.seed)
    schedule = generated.stretch(drawn, plan.time_scale)
    display.say(f"{len(schedule)} requests; first what virtual time says of them ...")
    policies = {"isolated": "isolated", "networked": plan.policy}
    if plan.policy != DEFAULT_POLICY:
        policies[DEFAULT_POLICY] = DEFAULT_POLICY
    simulated = {
        name: run_overflow(topology.with_policy(policy), schedule, plan.seed).as_dict()
        for name, policy in policies.items()
    }
    runs, imbalances = {}, 0
    for name in ("isolated", "networked"):
        run = _Run(plan, topology.with_policy(policies[name]), schedule, name, display)
        runs[name] = asyncio.run(run.go())
        imbalances += run.imbalances
    return DemoResult(
        topology=topology,
        seed=plan.seed,
        time_scale=plan.time_scale,
        duration_s=plan.stretched_s,
        isolated=runs["isolated"],
        networked=runs["networked"],
        simulated=simulated,
        ledgers_balanced=imbalances == 0,
        user_rates=_user_rates(plan),
        finished_at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )


class _Run:
    """One live run of the schedule under one policy, on a testbed of its own."""

    def __init__(
        self, plan: DemoPlan, topology: Topology, schedule: Schedule, name: str, display: Display
    ) -> None:
        self._plan = plan
        self._topology = topology
        self._schedule = schedule
        self._name = name
        self._display = display
        self._start_s: float | None = None
        self._samples: list[Sample] = []
        self._dead: list[NodeProcess] = []
        self.imbalances = 0

    async def go(self) -> RunResult:
        count = len(self._topology.clusters)
        self._display.say(f"starting {count} clusters with {self._name} queues ...")
        async with Testbed(
            self._topology,
            seed=self._plan.seed,
            drain_timeout_s=1.0,
            on_death=self._dead.append,
            source=self._plan.source,
        ) as bed:
            self._display.say(f"watch it in a browser: {next(iter(bed.urls.values()))}/console")
            async with Sampler(bed.urls) as sampler:
                load = await self._load_and_look(bed, sampler)
                if not await sampler.quiet(QUIET_WITHIN_S):
                    raise RunError("clusters still hold requests although all have been answered")
            if self._dead:
                node = self._dead[0]
                raise RunError(f"cluster {node.cluster} died ({node.end_of_life()})")
        self.imbalances = sampler.imbalances
        return RunResult(self._topology.policy, load, self._samples)

    async def _load_and_look(self, bed: Testbed, sampler: Sampler) -> dict[str, Any]:
        duration_s = self._plan.stretched_s
        with self._display.run(f"{self._name} queues", duration_s) as display:

            def on_look() -> None:
                if self._start_s is not None:
                    time_s = time.monotonic() - self._start_s
                    self._samples.append(_sample(time_s, sampler.states))
                    display.show(time_s, sampler.states)

            period_s = max(0.1, duration_s / LOOKS_PER_RUN)
            looking = asyncio.create_task(sampler.look_forever(period_s, on_look))
            loading = asyncio.create_task(self._load(bed.urls))
            try:
                await asyncio.wait((looking, loading), return_when=asyncio.FIRST_COMPLETED)
                if looking.done():
                    looking.result()
                return await loading
            finally:
                for task in (looking, loading):
                    task.cancel()
                await asyncio.gather(looking, loading, return_exceptions=True)

    async def _load(self, urls: Mapping[ClusterId, str]) -> dict[str, Any]:
        """Sends the schedule from a process of its own, so that drawing tables never makes it late.
        Returns the object of `spillover-loadgen run --json`."""
        plan = self._plan
        options = (plan.seed, self._topology.default_deadline_ms, plan.stretched_s)
        with Child("the load generator", _generate, self._schedule, urls, *options) as child:
            while True:
                told = await child.receive()
                if isinstance(told, dict):
                    return told
                self._start_s = self._start_s or time.monotonic() + driver.LEAD_S


async def _generate(
    schedule: Schedule,
    targets: Mapping[ClusterId, str],
    seed: int,
    deadline_ms: float,
    duration_s: float,
    connection: Connection,
) -> None:
    """What the load generator's process does, until it is done or the demo has ended. It tells ten
    times a second how much is sent; the first time `driver.LEAD_S` before time 0."""
    records = await driver.run(
        schedule,
        targets,
        seed=seed,
        deadline_ms=deadline_ms,
        progress=lambda *counts: connection.send(counts),
    )
    connection.send(results.summary(records, cluster_ids=targets, seed=seed, duration_s=duration_s))


def _sample(time_s: float, states: Mapping[str, dict[str, Any]]) -> Sample:
    names = ("queue_length", "accept_probability", "neighborhood_accept_probability")
    return Sample(time_s, *({c: state[name] for c, state in states.items()} for name in names))


def _user_rates(plan: DemoPlan) -> dict[str, list[tuple[float, float]]]:
    """The users per second of each population, as steps, stretched like everything else."""
    law, scale = generated.PAPER_BURSTS, plan.time_scale
    rates = {}
    for index, cluster in enumerate(plan.topology.cluster_ids):
        burst_s = law.first_burst_s + law.burst_every_s * index
        steps_s = [0.0, law.start_s, burst_s, burst_s + law.burst_length_s]
        rates[str(cluster)] = [
            (step_s * scale, generated.burst_user_rate(index, step_s, law=law) / scale)
            for step_s in steps_s
            if step_s < plan.duration_s
        ]
    return rates
