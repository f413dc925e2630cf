"""The demo itself: simulate, run isolated, run networked, put it together."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from spillover.model.errors import RunError
from spillover.model.schedule import Schedule
from spillover.model.topology import DEFAULT_POLICY, Topology
from spillover.sim.overflow.run import run_overflow
from spillover.testbed.node_process import NodeProcess
from spillover.testbed.supervisor import Testbed
from spillover.tools.demo.display import Display
from spillover.tools.demo.load_process import LoadPlan, Progress, run_load
from spillover.tools.demo.model import DemoResult, RunResult, Sample
from spillover.tools.demo.sampling import Sampler
from spillover_loadgen import driver, workloads

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


def run_demo(plan: DemoPlan, display: Display) -> DemoResult:
    """Run it all in real time. Raises RunError if a cluster dies on the way."""
    topology = plan.topology.stretched(plan.time_scale)
    drawn = workloads.bursts(topology.cluster_ids, duration_s=plan.duration_s, seed=plan.seed)
    schedule = workloads.stretch(drawn, plan.time_scale)
    display.say(f"{len(schedule)} requests; first what virtual time says of them ...")
    policies = {"isolated": "isolated", "networked": plan.policy}
    if plan.policy != DEFAULT_POLICY:
        policies[DEFAULT_POLICY] = DEFAULT_POLICY
    simulated = {
        name: run_overflow(topology.with_policy(policy), schedule, plan.seed).as_dict()
        for name, policy in policies.items()
    }
    return asyncio.run(_run_live(plan, topology, schedule, simulated, display))


async def _run_live(
    plan: DemoPlan,
    topology: Topology,
    schedule: Schedule,
    simulated: dict[str, dict[str, Any]],
    display: Display,
) -> DemoResult:
    runs = {}
    imbalances = 0
    for name, policy in (("isolated", "isolated"), ("networked", plan.policy)):
        run = _Run(plan, topology.with_policy(policy), schedule, name, display)
        runs[name] = await run.go()
        imbalances += run.imbalances
    return DemoResult(
        topology=topology,
        seed=plan.seed,
        time_scale=plan.time_scale,
        duration_s=plan.duration_s * plan.time_scale,
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
        self._duration_s = plan.duration_s * plan.time_scale
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
            sampler = Sampler(bed.urls)
            try:
                load = await self._load_and_look(bed, sampler)
                await self._wait_until_quiet(sampler)
            finally:
                await sampler.close()
            if self._dead:
                node = self._dead[0]
                raise RunError(f"cluster {node.cluster} died ({node.end_of_life()})")
        self.imbalances = sampler.imbalances
        return RunResult(self._topology.policy, load, self._samples)

    async def _load_and_look(self, bed: Testbed, sampler: Sampler) -> dict[str, Any]:
        plan = LoadPlan(
            schedule=self._schedule,
            targets=bed.urls,
            seed=self._plan.seed,
            duration_s=self._duration_s,
            deadline_ms=self._topology.default_deadline_ms,
        )
        with self._display.run(f"{self._name} queues", self._duration_s) as display:

            def on_look() -> None:
                if self._start_s is not None:
                    time_s = time.monotonic() - self._start_s
                    self._samples.append(sampler.sample(time_s))
                    display.show(time_s, sampler.states)

            period_s = self._duration_s / LOOKS_PER_RUN
            looking = asyncio.create_task(sampler.look_forever(max(0.1, period_s), on_look))
            loading = asyncio.create_task(run_load(plan, self._on_progress))
            try:
                await asyncio.wait((looking, loading), return_when=asyncio.FIRST_COMPLETED)
                if looking.done():
                    looking.result()
                return await loading
            finally:
                for task in (looking, loading):
                    task.cancel()
                await asyncio.gather(looking, loading, return_exceptions=True)

    def _on_progress(self, _: Progress) -> None:
        if self._start_s is None:
            self._start_s = time.monotonic() + driver.LEAD_S

    async def _wait_until_quiet(self, sampler: Sampler) -> None:
        """Until no cluster holds a request: the client's answer can overtake a relay's ledger."""
        limit_s = time.monotonic() + QUIET_WITHIN_S
        await sampler.look()
        while any(map(_holds_requests, sampler.states.values())):
            if time.monotonic() > limit_s:
                raise RunError("clusters still hold requests although all have been answered")
            await asyncio.sleep(0.05)
            await sampler.look()


def _holds_requests(state: dict[str, Any]) -> bool:
    home, foreign = state["ledger"]["home"], state["ledger"]["foreign"]
    held = [home[entry] for entry in ("queued", "running", "away")]
    return any(held) or any(foreign[entry] for entry in ("queued", "running", "handed_on"))


def _user_rates(plan: DemoPlan) -> dict[str, list[tuple[float, float]]]:
    """The users per second of each population, as steps, stretched like everything else."""
    law, scale = workloads.PAPER_BURSTS, plan.time_scale
    rates = {}
    for index, cluster in enumerate(plan.topology.cluster_ids):
        burst_s = law.first_burst_s + law.burst_every_s * index
        steps_s = [0.0, law.start_s, burst_s, burst_s + law.burst_length_s]
        rates[str(cluster)] = [
            (step_s * scale, workloads.burst_user_rate(index, step_s, law=law) / scale)
            for step_s in steps_s
            if step_s < plan.duration_s
        ]
    return rates
