"""The load generator in a process of its own, so that drawing tables never makes it late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import uvloop

from spillover.model.ids import ClusterId
from spillover.model.schedule import Schedule
from spillover.tools.processes.child import Child
from spillover_loadgen import driver, results


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What to send where. `duration_s` is the schedule's length, for the record."""

    schedule: Schedule
    targets: Mapping[ClusterId, str]
    seed: int
    duration_s: float
    deadline_ms: float


@dataclass(frozen=True, slots=True)
class Progress:
    """Told ten times a second; the first one comes `driver.LEAD_S` before time 0."""

    sent: int
    done: int
    total: int


async def run_load(plan: LoadPlan, on_progress: Callable[[Progress], None]) -> dict[str, Any]:
    """Sends the plan; returns the load generator's object (contract, section 3).

    Raises RunError if the generator's process dies. Cancelling ends the process.
    """
    with Child("the load generator", _generate, plan) as child:
        while True:
            message = await child.receive()
            if isinstance(message, dict):
                return message
            on_progress(message)


def _generate(plan: LoadPlan, connection: Connection) -> None:
    """What the process does, until it is done or the demo has ended."""

    def tell(sent: int, done: int, total: int) -> None:
        connection.send(Progress(sent, done, total))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sending = driver.run(
            plan.schedule,
            plan.targets,
            seed=plan.seed,
            deadline_ms=plan.deadline_ms,
            progress=tell,
        )
        records = runner.run(sending)
        connection.send(
            results.summary(
                records,
                cluster_ids=plan.targets,
                seed=plan.seed,
                duration_s=plan.duration_s,
            )
        )
