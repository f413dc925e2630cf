"""Johnson, "Designing a Distributed Queue": figures 2 to 9.

What is measured: the model (`sim.theory.queue.chain`) and the simulation (`sim.queue.compiled`) at
the same points. What the document says of it is in `probing_claims`, drawing in `probing_drawing`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from spillover.sim.theory.queue.chain import solve
from spillover.sim.theory.queue.system import ProbingSystem, alike, fast_and_slow
from spillover.tools.reproduce import probing_claims as claims
from spillover.tools.reproduce import probing_drawing as drawing
from spillover.tools.reproduce.figure import Effort, Figure, OnProgress

PRODUCERS = 100
RATE = 0.01
LOADS = {"load 50 %": 50, "load 100 %": 100, "load 150 %": 150, "load 200 %": 200}
"""Consumers at each load, for 100 producers and consumers of the same rate."""
HOPS = tuple(range(1, 11))
BUFFERS = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20)

OBJECTS = 150_000
OBJECTS_FULL = 1_000_000
MANY_OBJECTS = 20
"""Times as many objects for the question of how many producers there are."""
MANY_PRODUCERS = (100, 300, 1000)

UNIFORM_MEAN = 75.0
UNIFORM_SPREAD = 1.0 / 3.0
"""Production times uniform in [50, 100]."""

UNBALANCED = {
    "67 % of objects from 50 % of producers": (0.5, 2.0),
    "50 % of objects from 10 % of producers": (0.1, 9.0),
}
ACCESS = tuple(k / 20 for k in range(1, 20))
RESTRICTED_HOPS = {"h_max 1": 1, "h_max 3": 3, "h_max 5": 5, "h_max 10": 10}
RESTRICTED = (1, 2, 3, 4, 5, 6, 8, 11, 15, 20, 50, 100)

Sweep: TypeAlias = Mapping[str, Mapping[float, ProbingSystem]]
"""Systems by curve, and along it by what the figure's axis shows."""


def _paper(consumers: int = PRODUCERS, **changes: Any) -> ProbingSystem:
    """Section 4.1.1: lambda = mu = 0.01, messages of one tick, five buffers, h_max as told."""
    system = ProbingSystem(
        kinds=alike(PRODUCERS, RATE),
        consumers=consumers,
        consumption_rate=RATE,
        message_time=1.0,
        buffers=5,
        max_hops=3,
    )
    return replace(system, **changes)


def by_hops() -> Sweep:
    """Returns the systems of figures 2 to 4: four loads, one to ten probes."""
    return {
        name: {hops: _paper(consumers, max_hops=hops) for hops in HOPS}
        for name, consumers in LOADS.items()
    }


def by_producers() -> Sweep:
    """Returns those of figure 3's right side: load 100 % with more and more producers."""
    return {
        f"h_max {hops}": {
            count: _paper(count, kinds=alike(count, RATE), max_hops=hops)
            for count in MANY_PRODUCERS
        }
        for hops in (5, 10)
    }


def by_buffers() -> Sweep:
    """Returns those of figure 5: one to twenty buffers, h_max = 5."""
    return {
        name: {buffers: _paper(consumers, max_hops=5, buffers=buffers) for buffers in BUFFERS}
        for name, consumers in LOADS.items()
    }


def by_hops_steadier() -> Sweep:
    """Returns those of figure 6: an object takes `UNIFORM_MEAN` to make on average, and there are
    as many consumers as make the load."""
    kinds = alike(PRODUCERS, 1.0 / UNIFORM_MEAN)
    capacity = PRODUCERS / UNIFORM_MEAN
    return {
        name: {
            hops: _paper(round(load / 100 * capacity / RATE), kinds=kinds, max_hops=hops)
            for hops in HOPS
        }
        for name, load in LOADS.items()
    }


def _unbalanced(share: float, factor: float, access: float | None, hops: int) -> ProbingSystem:
    """Fast and slow producers that together make as much as 100 of figure 2, at load 100 %."""
    slow = RATE / (1.0 + share * (factor - 1.0))
    kinds = fast_and_slow(PRODUCERS, slow, share=share, factor=factor, access=access)
    return _paper(kinds=kinds, max_hops=hops)


def unlike_by_hops() -> Sweep:
    """Returns those of figure 7: each producer is probed as often as any other."""
    return {
        name: {hops: _unbalanced(share, factor, None, hops) for hops in HOPS}
        for name, (share, factor) in UNBALANCED.items()
    }


def unlike_by_access() -> Sweep:
    """Returns those of figure 8: from one probe in twenty to nineteen in twenty that go to a fast
    producer."""
    return {
        name: {access: _unbalanced(share, factor, access, 3) for access in ACCESS}
        for name, (share, factor) in UNBALANCED.items()
    }


def made_by_fast() -> dict[str, float]:
    """Returns the fast producers' share of all objects."""
    return {
        name: share * factor / (1.0 + share * (factor - 1.0))
        for name, (share, factor) in UNBALANCED.items()
    }


def by_width() -> Sweep:
    """Returns those of figure 9: each consumer may probe one producer, two, ... or all."""
    return {
        name: {width: _paper(max_hops=hops, producers_per_consumer=width) for width in RESTRICTED}
        for name, hops in RESTRICTED_HOPS.items()
    }


def measure(
    systems: Sweep, objects: int | None, seed: int, on_progress: OnProgress, **options: Any
) -> dict[str, list[dict[str, Any]]]:
    """Computes model and simulation of `objects` at each point of each curve; without, the model
    alone."""
    total = sum(map(len, systems.values()))
    done = 0
    curves: dict[str, list[dict[str, Any]]] = {}
    for name, along in systems.items():
        curves[name] = []
        for x, system in along.items():
            point: dict[str, Any] = {"x": x, "model": solve(system).as_dict()}
            if objects is not None:
                from spillover.sim.queue.compiled import simulate  # noqa: PLC0415 - needs numba

                # Seeds of their own: with one for all, the points would be wrong together.
                run = simulate(system, objects, seed * 1000 + done, **options)
                point |= {"simulated": run.figures.as_dict(), "ci95": run.ci95.as_dict()}
            curves[name].append(point)
            done += 1
            on_progress(done / total)
    return curves


def _objects(effort: Effort) -> int:
    return OBJECTS_FULL if effort.full else OBJECTS


def _computed(
    systems: Sweep, effort: Effort, seed: int, on_progress: OnProgress, **options: Any
) -> dict[str, Any]:
    objects = _objects(effort)
    curves = measure(systems, objects, seed, on_progress, **options)
    return {"objects": objects, "curves": curves}


def compute_2(effort: Effort, seed: int, on_progress: OnProgress) -> dict[str, Any]:
    """Computes `by_hops`."""
    return _computed(by_hops(), effort, seed, on_progress)


def compute_3(effort: Effort, seed: int, on_progress: OnProgress) -> dict[str, Any]:
    """Computes `by_hops`, and then `by_producers` with more objects."""
    found = _computed(by_hops(), effort, seed, lambda share: on_progress(share / 2))
    many = measure(
        by_producers(),
        MANY_OBJECTS * _objects(effort),
        seed + 1,
        lambda share: on_progress((1 + share) / 2),
    )
    return {**found, "many_producers": many}


def compute_4(effort: Effort, seed: int, on_progress: OnProgress) -> dict[str, Any]:
    """Computes the model of `by_hops` alone, as in the document."""
    del effort
    return {"curves": measure(by_hops(), None, seed, on_progress)}


def compute_5(effort: Effort, seed: int, on_progress: OnProgress) -> dict[str, Any]:
    """Computes `by_buffers`."""
    return _computed(by_buffers(), effort, seed, on_progress)


def compute_6(effort: Effort, seed: int, on_progress: OnProgress) -> dict[str, Any]:
    """Computes `by_hops_steadier`: production times are uniform in the simulation, exponential of
    the same mean in the model."""
    return _computed(
        by_hops_steadier(), effort, seed, on_progress, production_spread=UNIFORM_SPREAD
    )


def compute_7(effort: Effort, seed: int, on_progress: OnProgress) -> dict[str, Any]:
    """Computes `unlike_by_hops`."""
    return _computed(unlike_by_hops(), effort, seed, on_progress)


def compute_8(effort: Effort, seed: int, on_progress: OnProgress) -> dict[str, Any]:
    """Computes `unlike_by_access`."""
    found = _computed(unlike_by_access(), effort, seed, on_progress)
    return {**found, "made_by_fast": made_by_fast()}


def compute_9(effort: Effort, seed: int, on_progress: OnProgress) -> dict[str, Any]:
    """Computes `by_width`, and what the equations as printed say of it."""
    systems = by_width()
    found = _computed(systems, effort, seed, on_progress)
    for name, along in systems.items():
        for point, system in zip(found["curves"][name], along.values(), strict=True):
            point["printed"] = solve(system, independent=True).as_dict()
    return found


_MARKS = "Lines: the equations; points: simulated, with 95 % intervals."

FIGURES: tuple[Figure, ...] = (
    Figure(
        name="johnson-2",
        title="Probes for one object, against the most that are allowed",
        explanation=(
            "How many producers a consumer asks, on average, until it gets an object, when it may "
            "ask at most h_max of them. While producers can keep up (load up to 100 %), one or two "
            "are enough, whatever the limit. When they cannot, most buffers are empty, and every "
            f"probe that is allowed is made, mostly in vain. {_MARKS}"
        ),
        compute=compute_2,
        claims=claims.claims_2,
        draw=drawing.draw_2,
    ),
    Figure(
        name="johnson-3",
        title="Waiting for an object, against the most probes allowed",
        explanation=(
            "Left: the time from asking for an object to having it, in message times; making one "
            "takes 100 of these, and so does using one. A second and a third probe save most of "
            "the waiting that can be saved; above 100 % consumers have to wait for production "
            "anyway. Right: at a load of exactly 100 % the simulation lies above the equations, "
            "which are those of infinitely many producers; with more of them the difference goes. "
            f"{_MARKS}"
        ),
        compute=compute_3,
        claims=claims.claims_3,
        draw=drawing.draw_3,
    ),
    Figure(
        name="johnson-4",
        title="Empty and blocked producers, against the most probes allowed",
        explanation=(
            "Left: how likely a probe finds nothing. Right: the share of the time in which a "
            "producer has to stop because its buffer is full. The document's caption names the "
            "one, its text the other, so that both are shown. From the equations alone, as in the "
            "document."
        ),
        compute=compute_4,
        claims=claims.claims_4,
        draw=drawing.draw_4,
    ),
    Figure(
        name="johnson-5",
        title="What buffers are good for",
        explanation=(
            "Left: the share of production that is used, against the number of finished objects "
            "that a producer may keep, with at most five probes. Right: the share of the time in "
            "which it has to stop (what the document's caption names). A few places are worth a "
            f"lot, more of them next to nothing. {_MARKS}"
        ),
        compute=compute_5,
        claims=claims.claims_5,
        draw=drawing.draw_5,
    ),
    Figure(
        name="johnson-6",
        title="Steadier production: waits against the most probes allowed",
        explanation=(
            "The equations assume that the time to make an object varies a lot (exponential). Here "
            "the simulated times are spread evenly between 50 and 100 instead, the equations have "
            "the same mean of 75. The document does not say what its loads mean then: consumers "
            f"are as many as make the load what the legend says. {_MARKS}"
        ),
        compute=compute_6,
        claims=claims.claims_6,
        draw=drawing.draw_6,
    ),
    Figure(
        name="johnson-7",
        title="Unlike producers, all probed alike",
        explanation=(
            "Some producers are faster than others, and consumers do not care: each is probed as "
            "often as any other. Where half of the producers are twice as fast, three probes "
            "still do. Where a tenth of them makes half of all objects, even ten probes often find "
            f"none of these. Load 100 %. {_MARKS}"
        ),
        compute=compute_7,
        claims=claims.claims_7,
        draw=drawing.draw_7,
    ),
    Figure(
        name="johnson-8",
        title="Unlike producers, probed by what they make",
        explanation=(
            "The same producers, at most three probes, against the share of all probes that goes "
            "to the fast ones. Waits are shortest where that is their share of the objects (dotted "
            f"lines). Load 100 %. {_MARKS}"
        ),
        compute=compute_8,
        claims=claims.claims_8,
        draw=drawing.draw_8,
    ),
    Figure(
        name="johnson-9",
        title="Knowing only some of the producers",
        explanation=(
            "Each of 100 consumers may probe only so many of the 100 producers, drawn at random "
            "but so that each producer is known to equally many. A few more than h_max nearly do. "
            "The document's equations (dashed) promise too much on the left: they miss that a "
            "request with few producers to choose from often probes an empty one again. With that "
            "mended they come close (solid lines; points: simulated, with 95 % intervals). "
            "Load 100 %."
        ),
        compute=compute_9,
        claims=claims.claims_9,
        draw=drawing.draw_9,
    ),
)
