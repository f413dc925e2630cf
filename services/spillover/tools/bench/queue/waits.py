"""The cases of `closed`: 20 producers and 20 consumers at four loads, beside the same system in the
full simulator and beside the document's model. What messages take is seen in the same runs, at
producers that only `legs` uses; the simulator has each of them, the model is given those that our
wire adds.

The simulator plays each case twice: by itself, as long as it takes to be sure, and at the very
instants of the live runs, where chance is the same on both sides and little of it is left between
them.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean

from spillover.model.errors import RunError
from spillover.sim.queue import wires as kinds
from spillover.sim.queue.full import simulate
from spillover.sim.queue.replay import Came, replay
from spillover.sim.theory.queue.chain import solve
from spillover.sim.theory.queue.system import ProbingFigures, ProbingSystem, alike
from spillover.testbed.producers import ProducerBed
from spillover.tools.bench.model import Row, Stage
from spillover.tools.bench.queue.closed import ClosedLoad, Seen, play
from spillover.tools.bench.queue.estimates import Estimate, estimate
from spillover.tools.bench.queue.legs import Legs
from spillover.tools.bench.queue.makers import Makers
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
WATCHED = 12
"""More producers, on which `legs` looks."""
PRODUCTION_PER_S = 5.0
"""Of each: so slow that no process waits for the processor."""
PLACES = 2
EXPIRY_S = 5.0
"""As producers have it unless told otherwise."""
WARM_UP_S, MEASURED_S = (3.0, 0.5), (12.0, 1.5)
OBJECTS = (20_000, 1_000)
"""Simulated without a live run, in full and quick."""
GRACE_S = 0.1

PAIRED, SIMULATED, MODEL = (
    "itself, simulated at the same instants", "itself, simulated", "the document's model, our legs",
)  # fmt: skip


LEGS = {
    "take, and object": (kinds.TAKE, kinds.OBJECT),
    "probe sent on": (kinds.PROBE,),
    "offer, pointer and fetch, which our wire adds": (kinds.OFFER, kinds.POINTER, kinds.FETCH),
}

BY_PROBES = (("by one probe", 1, 1), ("by two probes", 2, 2), ("by three or more", 3, math.inf))
"""What is told apart, from fewest to most."""
SEEN_MIN = 30

AT_DOOR = "take, and object, with a client at the door"


@dataclass(frozen=True)
class _Played:
    """All runs of one case; `load` is that of the first."""

    case: str
    load: ClosedLoad
    seen: list[Seen]
    legs: Legs

    @property
    def system(self) -> ProbingSystem:
        """Returns what the document calls it."""
        return ProbingSystem(
            kinds=alike(PRODUCERS, self.load.production_rate),
            consumers=self.load.consumers,
            consumption_rate=self.load.consumption_rate,
            message_time=self.legs.means_s()[kinds.TAKE],
            buffers=PLACES,
            max_hops=self.load.max_hops,
        )

    def replayed(self) -> list[list[Came]]:
        """Returns what the simulator sees at the same instants, run by run."""
        system, legs = self.system, self.legs.means_s()
        return [
            replay(
                *(system, seen.instants, self.load.ends_s, self.load.seed + run),
                probe_expiry_s=EXPIRY_S,
                legs=legs,
            )
            for run, seen in enumerate(self.seen)
        ]

    def counted(self, run: Sequence[Came]) -> list[Came]:
        """Returns those of a run that count."""
        return [came for came in run if self.load.warm_up_s <= came.at_s < self.load.ends_s]

    def estimate(self, runs: Sequence[Sequence[Came]], value: Callable[[Came], float]) -> Estimate:
        return estimate(runs, self.load.warm_up_s, self.load.ends_s, value)


async def _all_waits(session: Session) -> None:
    producers = PRODUCERS + WATCHED
    async with ProducerBed(producers, buffers=PLACES - 1, drain_timeout_s=GRACE_S) as bed:
        for case in CASES:
            if session.wants(case):
                with Makers() as makers:
                    played = await _play(case, bed.urls, makers, session)
                await asyncio.to_thread(_note, played, session)
    session.note(
        "waits: all runs count together. The document has (h + 1) r and B, and r is half of what a "
        "take takes that finds an object at once; our wire adds offer, pointer and fetch"
    )
    session.note(
        f"waits: beside {PAIRED!r} the half-width is that of the difference, and has in it how far "
        "it is known what messages take"
    )


async def _play(case: str, urls: Mapping[str, str], makers: Makers, session: Session) -> _Played:
    share, hops = CASES[case]
    plan = session.plan
    load = ClosedLoad(
        consumers=CONSUMERS,
        production_rate=PRODUCTION_PER_S,
        consumption_rate=PRODUCTION_PER_S * share / 100 * PRODUCERS / CONSUMERS,
        max_hops=hops,
        warm_up_s=plan.of(*WARM_UP_S),
        measured_s=plan.of(*MEASURED_S),
        seed=plan.seed,
    )
    names = list(urls)
    used, watched = names[:PRODUCERS], names[PRODUCERS:]
    played = _Played(case, load, [], Legs())
    for run in range(plan.runs):
        session.say_run(case, run)
        watch = partial(
            played.legs.watch,
            {name: urls[name] for name in watched},
            plan.seed + run,
            named=used[WATCHED:],
        )
        used_urls = {name: urls[name] for name in used}
        seen = await play(used_urls, replace(load, seed=plan.seed + run), makers, watch)
        check_statuses(case, seen)
        played.seen.append(seen)
    return played


def check_statuses(case: str, seen: Seen) -> None:
    """Raises RunError unless each take got its object, here or where it was fetched."""
    if set(seen.statuses) - {200, 303}:
        raise RunError(f"{case}: expected objects, got by status {dict(seen.statuses)}")


def _note(played: _Played, session: Session) -> None:
    """Simulate the same, and note the rows."""
    plan, system, legs = session.plan, played.system, played.legs.means_s()
    ours, twins = [seen.came for seen in played.seen], played.replayed()
    alone = simulate(system, int(plan.of(*OBJECTS)), plan.seed, probe_expiry_s=EXPIRY_S, legs=legs)
    model = solve(system)
    model_wait_s = model.wait_mean + _beyond_model_s(system, model, legs)
    probes = [came.probes for run in ours for came in played.counted(run)]
    for what, unit, scale, value, field, of_model, error in (
        ("wait for an object", "ms", 1e3, _wait_of, "wait_mean", model_wait_s,
         played.legs.half_width_s(probes)),
        ("probes of a request", "each", 1.0, _probes_of, "probes_mean", model.probes_mean, 0.0),
    ):  # fmt: skip
        live, twin = played.estimate(ours, value), played.estimate(twins, value)
        session.add(_beside_twin(f"{played.case}: {what}", unit, scale, live, twin, error))
        for peer, peer_value, peer_half_width in (
            (SIMULATED, getattr(alone.figures, field), getattr(alone.ci95, field)),
            (MODEL, of_model, 0.0),
        ):
            session.add(
                Row(
                    case=f"{played.case}: {what}",
                    unit=unit,
                    values=(live.mean * scale,),
                    half_width=live.half_width * scale,
                    peer=peer,
                    peer_values=(peer_value * scale,),
                    peer_half_width=peer_half_width * scale,
                )
            )
    told = _note_by_probes(played, ours, twins, session)
    for what, parts in LEGS.items():
        took_s = sum(legs[part] for part in parts)
        session.add(Row(case=f"{played.case}: {what}", unit="ms", values=(took_s * 1e3,)))
    at_door_s = fmean(played.legs.at_door_s)
    session.add(Row(case=f"{played.case}: {AT_DOOR}", unit="ms", values=(at_door_s * 1e3,)))
    session.note(f"{played.case}: {len(probes)} objects{told}")


def _note_by_probes(
    played: _Played, ours: list[list[Came]], twins: list[list[Came]], session: Session
) -> str:
    """Where waits differ: note them by how many probes they took. Returns how many objects that
    were, live and simulated. Of a kind that is rare nothing is said."""
    if played.load.max_hops == 1:
        return ""
    counts = []
    for what, fewest, most in BY_PROBES:
        of_kind = [
            [[came for came in run if fewest <= came.probes <= most] for run in runs]
            for runs in (ours, twins)
        ]
        seen = [[came.probes for run in runs for came in played.counted(run)] for runs in of_kind]
        counts.append(f"{len(seen[0])} and {len(seen[1])} {what}")
        if min(len(found) for found in seen) >= SEEN_MIN:
            live, twin = (played.estimate(runs, _wait_of) for runs in of_kind)
            error = played.legs.half_width_s(seen[0])
            case = f"{played.case}: wait for an object, {what}"
            session.add(_beside_twin(case, "ms", 1e3, live, twin, error))
    return f"; live and simulated, {', '.join(counts)}"


def _beside_twin(
    case: str, unit: str, scale: float, live: Estimate, twin: Estimate, error: float
) -> Row:
    """`error` is how far it is known what messages take."""
    return Row(
        case=case,
        unit=unit,
        values=(live.mean * scale,),
        half_width=math.hypot(live.half_width_beside(twin), error) * scale,
        peer=PAIRED,
        peer_values=(twin.mean * scale,),
        peer_half_width=twin.half_width * scale,
    )


def _wait_of(came: Came) -> float:
    return came.wait_s


def _probes_of(came: Came) -> float:
    return came.probes


def _beyond_model_s(
    system: ProbingSystem, model: ProbingFigures, legs: Mapping[str, float]
) -> float:
    """Returns what the legs of a wait take beyond (h + 1) r. A probe that a producer sends to
    itself, or finds an object with there, is no message."""
    elsewhere = 1.0 - 1.0 / system.producers
    sent_on = (model.probes_mean - 1.0) * (elsewhere * legs[kinds.PROBE] - system.message_time)
    found_elsewhere = model.empty_probability * elsewhere if system.max_hops > 1 else 0.0
    return sent_on + found_elsewhere * sum(
        legs[kind] for kind in (kinds.OFFER, kinds.POINTER, kinds.FETCH)
    )


STAGES = (Stage(tuple(CASES), _all_waits),)
