"""The load generator in a process of its own, so that drawing tables never makes it late."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import uvloop

from spillover.live.process.parent_death import end_with_parent
from spillover.model.errors import RunError
from spillover.model.ids import ClusterId
from spillover.model.schedule import Schedule
from spillover_loadgen import driver, results

END_WITHIN_S = 5.0


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
    """Send the plan; the load generator's object (contract, section 3).

    Raises RunError if the generator's process dies. Cancelling ends the process.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_generate, args=(plan, there), daemon=True)
    process.start()
    there.close()
    loop = asyncio.get_running_loop()
    messages: asyncio.Queue[Progress | dict[str, Any] | None] = asyncio.Queue()

    def on_readable() -> None:
        try:
            messages.put_nowait(here.recv())
        except EOFError:
            loop.remove_reader(here.fileno())
            messages.put_nowait(None)

    loop.add_reader(here.fileno(), on_readable)
    try:
        while True:
            message = await messages.get()
            if message is None:
                raise RunError("the load generator died")
            if isinstance(message, dict):
                return message
            on_progress(message)
    finally:
        loop.remove_reader(here.fileno())
        here.close()
        process.terminate()
        process.join(END_WITHIN_S)
        if process.is_alive():
            process.kill()


def _generate(plan: LoadPlan, connection: Connection) -> None:
    """What the process does, until it is done or the demo has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()

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
