"""The cases of `closed`: 20 producers and 20 consumers at four loads, beside the same system in the
full simulator, with the messages that our wire adds, and beside the document's model, without.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from statistics import fmean

from spillover.model.errors import RunError
from spillover.sim.queue.full import OF_WIRE, simulate
from spillover.sim.queue.wires import IN_PAPER
from spillover.sim.theory.queue.chain import solve
from spillover.sim.theory.queue.system import ProbingSystem, alike
from spillover.testbed.producers import ProducerBed
from spillover.tools.bench.model import Row, Stage
from spillover.tools.bench.queue.closed import BATCHES, ClosedLoad, Seen, half_width, play
from spillover.tools.bench.session import Session

LOADS = (50, 100, 150, 200)
"""What consumers want, in percent of what can be made."""
HOPS = (1, 3, 5, 10)
CASES = {
    f"load {load} %, {f'at most {hops} probes' if hops > 1 else 'one probe'}": (load, hops)
    for load in LOADS
    for hops in HOPS
}
PRODUCERS = CONSUMERS = 20
PRODUCTION_PER_S = 5.0
"""Of each: so slow that no process waits for the processor."""
PLACES = 2
EXPIRY_S = 5.0
"""As producers have it unless told otherwise."""
WARM_UP_S, MEASURED_S = (3.0, 0.5), (12.0, 1.5)
OBJECTS = (20_000, 1_000)
"""Simulated, in full and quick."""
GRACE_S = 0.1

SIMULATED, MODEL = "itself, simulated", "the document's model"


async def _all_waits(session: Session) -> None:
    async with ProducerBed(PRODUCERS, buffers=PLACES - 1, drain_timeout_s=GRACE_S) as bed:
        for case in CASES:
            if session.wants(case):
                await _waits(case, bed.urls, session)
    more = ", ".join(sorted(OF_WIRE - IN_PAPER))
    session.note(
        f"waits: the document has (h + 1) r and B; our wire adds, also simulated: {more}; all runs "
        "count together"
    )


async def _waits(case: str, urls: Mapping[str, str], session: Session) -> None:
    load, hops = CASES[case]
    plan = session.plan
    consumption_per_s = PRODUCTION_PER_S * load / 100 * PRODUCERS / CONSUMERS
    seen = await _play(case, urls, consumption_per_s, hops, session)
    message_s = fmean(seen.messages_s)
    system = ProbingSystem(
        kinds=alike(PRODUCERS, PRODUCTION_PER_S),
        consumers=CONSUMERS,
        consumption_rate=consumption_per_s,
        message_time=message_s,
        buffers=PLACES,
        max_hops=hops,
    )
    objects = int(plan.of(*OBJECTS))
    own = await asyncio.to_thread(
        partial(simulate, system, objects, plan.seed, probe_expiry_s=EXPIRY_S, wire=OF_WIRE)
    )
    paper = solve(system)
    for what, unit, field, scale, ours in (
        ("wait for an object", "ms", "wait_mean", 1e3, seen.waits_s),
        ("probes of a request", "each", "probes_mean", 1.0, seen.probes),
    ):
        for peer, value, width in (
            (SIMULATED, getattr(own.figures, field), getattr(own.ci95, field)),
            (MODEL, getattr(paper, field), 0.0),
        ):
            session.add(
                Row(
                    case=f"{case}: {what}",
                    unit=unit,
                    values=(fmean(ours) * scale,),
                    half_width=half_width(ours) * scale,
                    peer=peer,
                    peer_values=(value * scale,),
                    peer_half_width=width * scale,
                )
            )
    session.note(f"{case}: {len(seen.waits_s)} objects, a message takes {message_s * 1e3:.2f} ms")


async def _play(
    case: str, urls: Mapping[str, str], consumption_per_s: float, hops: int, session: Session
) -> Seen:
    """All runs together."""
    plan, seen = session.plan, Seen()
    for run in range(plan.runs):
        session.say_run(case, run)
        load = ClosedLoad(
            consumers=CONSUMERS,
            production_rate=PRODUCTION_PER_S,
            consumption_rate=consumption_per_s,
            max_hops=hops,
            warm_up_s=plan.of(*WARM_UP_S),
            measured_s=plan.of(*MEASURED_S),
            seed=plan.seed + run,
        )
        found = await play(urls, load)
        seen.waits_s += found.waits_s
        seen.probes += found.probes
        seen.statuses += found.statuses
        seen.messages_s += found.messages_s
    if set(seen.statuses) - {200, 303} or len(seen.waits_s) < BATCHES:
        told = dict(seen.statuses)
        raise RunError(f"{case}: expected objects, got {len(seen.waits_s)}, by status {told}")
    return seen


STAGES = (Stage(tuple(CASES), _all_waits),)
