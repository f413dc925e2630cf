"""Johnson, the distributed queue: figures 2 to 9, the model (`theory.chain`) and the
simulation (`sim.queue.compiled`) at the same points.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import correlation
from typing import Any, TypeAlias

from spillover.sim.queue.system import ProbingSystem, alike, fast_and_slow
from spillover_lab.reproduce.figure import (
    Document,
    Effort,
    Figure,
    Panel,
    Series,
    Statement,
    Values,
    above,
    below,
    near,
)
from spillover_lab.theory.chain import solve

Sweep: TypeAlias = Mapping[str, Mapping[float, ProbingSystem]]
"""Systems by curve, and along it by what the figure's axis shows."""
Point: TypeAlias = Mapping[str, Any]
Curves: TypeAlias = Mapping[str, list[Any]]

DOCUMENT = Document(
    prefix="johnson",
    citation="Theodore Johnson: Designing a Distributed Queue",
    heading="A distributed queue: consumers that go looking",
    problem="Many producers make objects and many consumers use them up. One queue in the middle "
    "would be a bottleneck: every object would pass through it.",
    mechanism="Each producer keeps a few finished objects in a buffer of its own, and stops when "
    "it is full. A consumer sends a request to a producer drawn at random; if that has nothing, "
    "the request hops to another one, and waits at the last of at most h_max probes.",
    reproduced="How many probes and how much waiting that takes, against the limit of probes, the "
    "size of the buffers, unlike producers and restricted choice: the paper's equations as lines, "
    "a simulation of the protocol as points. The load is demand over supply.",
    left_open="Some of the printed equations contain slips, such as a blocking probability counted "
    "twice; the corrected ones are listed beside the code. They describe infinitely many "
    "producers: with 100 of them and a load of exactly 100 % real waits are up to 13 per cent "
    "longer. And they miss that a consumer with few producers often probes an empty one again.",
)

PRODUCERS, RATE = 100, 0.01
PRODUCTION = 1 / RATE
"""Message times that an object takes to make, and to use."""
LOADS = {"load 50 %": 50, "load 100 %": 100, "load 150 %": 150, "load 200 %": 200}
"""Consumers at each load, for 100 producers and consumers of the same rate."""
HOPS = tuple(range(1, 11))
BUFFERS = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20)
OBJECTS, OBJECTS_FULL = 150_000, 1_000_000
MANY_OBJECTS = 20
"""So many times more objects answer how many producers there are."""
MANY_PRODUCERS = (100, 300, 1000)
UNIFORM_MEAN, UNIFORM_SPREAD = 75.0, 1.0 / 3.0
"""Production times uniform in [50, 100]."""
UNBALANCED = {
    "67 % of objects from 50 % of producers": (0.5, 2.0),
    "50 % of objects from 10 % of producers": (0.1, 9.0),
}
MADE_BY_FAST = {name: s * f / (1.0 + s * (f - 1.0)) for name, (s, f) in UNBALANCED.items()}
ACCESS = tuple(k / 20 for k in range(1, 20))
RESTRICTED_HOPS = (1, 3, 5, 10)
RESTRICTED = (1, 2, 3, 4, 5, 6, 8, 11, 15, 20, 50, 100)


# --- the systems of each figure -------------------------------------------------------------------


def _paper(consumers: int = PRODUCERS, **changes: Any) -> ProbingSystem:
    """Section 4.1.1: lambda = mu = 0.01, messages of one tick, five buffers, h_max as told."""
    system = ProbingSystem(
        kinds=alike(PRODUCERS, RATE), consumers=consumers, consumption_rate=RATE,
        message_time=1.0, buffers=5, max_hops=3,
    )  # fmt: skip
    return replace(system, **changes)


def _by_hops() -> Sweep:
    return {name: {h: _paper(count, max_hops=h) for h in HOPS} for name, count in LOADS.items()}


def _by_producers() -> Sweep:
    """Load 100 % with more and more producers."""
    return {
        f"h_max {h}": {n: _paper(n, kinds=alike(n, RATE), max_hops=h) for n in MANY_PRODUCERS}
        for h in (5, 10)
    }


def _by_buffers() -> Sweep:
    return {
        name: {buffers: _paper(count, max_hops=5, buffers=buffers) for buffers in BUFFERS}
        for name, count in LOADS.items()
    }


def _by_hops_steadier() -> Sweep:
    """An object takes `UNIFORM_MEAN` to make; as many consumers as make the load."""
    kinds, per_load = alike(PRODUCERS, 1.0 / UNIFORM_MEAN), PRODUCERS / UNIFORM_MEAN / RATE / 100
    return {
        name: {h: _paper(round(load * per_load), kinds=kinds, max_hops=h) for h in HOPS}
        for name, load in LOADS.items()
    }


def _unbalanced(name: str, access: float | None, hops: int) -> ProbingSystem:
    """Fast and slow producers that together make as much as 100 of figure 2, at load 100 %."""
    share, factor = UNBALANCED[name]
    slow = RATE / (1.0 + share * (factor - 1.0))
    kinds = fast_and_slow(PRODUCERS, slow, share=share, factor=factor, access=access)
    return _paper(kinds=kinds, max_hops=hops)


def _unlike_by_hops() -> Sweep:
    return {name: {h: _unbalanced(name, None, h) for h in HOPS} for name in UNBALANCED}


def _unlike_by_access() -> Sweep:
    """One probe in twenty to nineteen in twenty go to a fast producer."""
    return {name: {share: _unbalanced(name, share, 3) for share in ACCESS} for name in UNBALANCED}


def _by_width() -> Sweep:
    """Each consumer may probe one producer, two, ... or all."""
    return {
        f"h_max {h}": {k: _paper(max_hops=h, producers_per_consumer=k) for k in RESTRICTED}
        for h in RESTRICTED_HOPS
    }


# --- computing ------------------------------------------------------------------------------------


def _measure(systems: Sweep, objects: int | None, seed: int, **options: Any) -> Curves:
    """Model and simulation of `objects` at each point of each curve; without, the model alone."""
    curves: dict[str, list[dict[str, Any]]] = {name: [] for name in systems}
    points = [(name, x, system) for name, along in systems.items() for x, system in along.items()]
    for number, (name, x, system) in enumerate(points):
        point: dict[str, Any] = {"x": x, "model": solve(system).as_dict()}
        if objects is not None:
            from spillover.sim.queue.compiled import simulate  # noqa: PLC0415 - needs numba

            # Seeds of their own: with one for all, the points would be wrong together.
            run = simulate(system, objects, seed * 1000 + number, **options)
            point |= {"simulated": run.figures.as_dict(), "ci95": run.ci95.as_dict()}
        curves[name].append(point)
    return curves


def _computed(sweep: Callable[[], Sweep], **options: Any) -> Callable[[Effort, int], Values]:
    def compute(effort: Effort, seed: int) -> Values:
        objects = effort.pick(OBJECTS, OBJECTS_FULL)
        return {"objects": objects, "curves": _measure(sweep(), objects, seed, **options)}

    return compute


def _compute_3(effort: Effort, seed: int) -> Values:
    found = _computed(_by_hops)(effort, seed)
    many = _measure(_by_producers(), MANY_OBJECTS * found["objects"], seed + 1)
    return {**found, "many_producers": many}


def _compute_9(effort: Effort, seed: int) -> Values:
    """Also what the equations as printed say of it."""
    found = _computed(_by_width)(effort, seed)
    for name, along in _by_width().items():
        for point, system in zip(found["curves"][name], along.values(), strict=True):
            point["printed"] = solve(system, independent=True).as_dict()
    return found


# --- drawing --------------------------------------------------------------------------------------

PROBES, WAIT = "probes for one object, on average", "wait for an object, in message times"
MOST = "most probes allowed, h_max"


def _curves(
    curves: Curves, field: str, title: str, x_label: str = MOST, *, rest: bool = False, **more: Any
) -> Panel:
    """The model as lines, what was simulated as points; `rest`: what is left of 1."""
    series = []
    for place, (name, points) in enumerate(curves.items()):
        color, x = f"C{place}", [point["x"] for point in points]
        for kind, label, style in (("model", name, "-"), ("simulated", "", "o")):
            if kind in points[0]:
                y = [1 - p[kind][field] if rest else p[kind][field] for p in points]
                half = [p["ci95"][field] for p in points] if kind == "simulated" else None
                series.append(Series(x, y, label, style, half, color))
        if "printed" in points[0]:
            y = [point["printed"][field] for point in points]
            series.append(Series(x, y, "", "--", None, color, width=0.9))
    return Panel(title, series, x_label, **more)


def _waits(x_label: str = MOST, **more: Any) -> Callable[[Values], list[Panel]]:
    return lambda data: [_curves(data["curves"], "wait_mean", WAIT, x_label, **more)]


def _used_and_blocked(x_label: str, first: str, title: str) -> Callable[[Values], list[Panel]]:
    blocked = "share of the time in which a producer is blocked"
    return lambda data: [
        _curves(data["curves"], first, title, x_label),
        _curves(data["curves"], "producer_utilization", blocked, x_label, rest=True),
    ]


def _panels_3(data: Values) -> list[Panel]:
    series = []
    for name, points in data["many_producers"].items():
        excess = [100 * _excess(point) for point in points]
        half = [100 * point["ci95"]["wait_mean"] / point["model"]["wait_mean"] for point in points]
        series.append(Series([point["x"] for point in points], excess, name, "o", half))
    title = "load 100 %: simulated waits, % above the equations"
    many = Panel(title, series, "producers, and consumers", log="x", level=0)
    return [*_waits()(data), many]


# --- what the document says of them ---------------------------------------------------------------

BUSY, CALM, CRITICAL = ("load 150 %", "load 200 %"), ("load 50 %", "load 100 %"), "load 100 %"


def _sim(point: Point, field: str = "wait_mean") -> float:
    value: float = point["simulated"][field]
    return value


def _at(points: list[Any], x: float) -> Point:
    found: Point = next(point for point in points if point["x"] == x)
    return found


def _excess(point: Point) -> float:
    """How far the simulated wait is above the equations' one, as a share of that."""
    return _sim(point) / float(point["model"]["wait_mean"]) - 1


def _agreement(field: str) -> Statement:
    """The largest differences at load 100 % and off it; where the simulation's own interval is
    wide, only what is beyond it counts as different."""

    def measure(data: Values) -> tuple[float, float]:
        worst = {True: 0.0, False: 0.0}
        for name, points in data["curves"].items():
            for point in points:
                simulated, half = _sim(point, field), point["ci95"][field]
                apart = max(abs(point["model"][field] - simulated) - half, 0.0) / simulated
                worst[name == CRITICAL] = max(worst[name == CRITICAL], apart)
        return worst[False], worst[True]

    return Statement(
        "At all loads, the equations and the simulation agree", "close agreement", measure,
        "within {:.1%}, at load 100 % within {:.1%} (beyond the 95 % intervals)",
        lambda off, at: off < 0.02 and at < 0.12,
    )  # fmt: skip


def _straightness(data: Values) -> float:
    lines = [data["curves"][name] for name in BUSY]
    return min(
        correlation([p["x"] for p in line], [_sim(p, "probes_mean") for p in line])
        for line in lines
    )


def _last_waits(data: Values) -> list[float]:
    """Simulated waits with ten probes, by load."""
    return [_sim(_at(points, 10)) for points in data["curves"].values()]


def _longer_with_3(data: Values) -> float:
    """Returns by how much three probes wait longer than ten, of the time from one object to the
    next."""
    return max(
        (_sim(_at(points, 3)) - last) / (PRODUCTION + last)
        for points, last in zip(data["curves"].values(), _last_waits(data), strict=True)
    )


def _five_for_three(data: Values) -> tuple[float, float]:
    points = data["curves"][CRITICAL]
    field = "consumer_utilization"
    gains = [
        _at(points, 5)[k][field] / _at(points, 3)[k][field] - 1 for k in ("simulated", "model")
    ]
    return gains[0], gains[1]


def _many(hops: int) -> Statement:
    def measure(data: Values) -> tuple[str, float, float]:
        found = {p["x"]: _excess(p) for p in data["many_producers"][f"h_max {hops}"]}
        few, *_, many = found.values()
        return ", ".join(f"{value:+.1%} with {n}" for n, value in found.items()), few, many

    return Statement(
        f"At load 100 %, h_max {hops}: waits above the equations go as producers get more (ours)",
        "not said; the equations assume infinitely many", measure, "{}",
        lambda _, few, many: abs(many) < few / 2,
    )  # fmt: skip


def _shares_of_gain(x: float) -> Callable[[Values], tuple[float, str]]:
    """How much of what the last value is above the first one has come by x, by load."""

    def measure(data: Values) -> tuple[float, str]:
        shares = {}
        for name, points in data["curves"].items():
            used = [point["model"]["producer_utilization"] for point in points]
            place = [point["x"] for point in points].index(x)
            shares[name] = (used[place] - used[0]) / (used[-1] - used[0])
        told = ", ".join(f"{share:.0%} at {name}" for name, share in shares.items())
        return min(shares.values()), told

    return measure


def _more_buffers(data: Values) -> float:
    field = "producer_utilization"
    return max(
        float(points[-1]["model"][field] / _at(points, 5)["model"][field]) - 1
        for points in data["curves"].values()
    )


def _all_fall(data: Values) -> bool:
    return all(_sim(points[0]) > _sim(_at(points, 3)) for points in data["curves"].values())


def _ratios(data: Values) -> tuple[float, float]:
    ratios = [1 + _excess(point) for points in data["curves"].values() for point in points]
    return min(ratios), max(ratios)


def _moderate(data: Values) -> tuple[float, float, float, float]:
    points = next(iter(data["curves"].values()))
    first, third, last = (_sim(_at(points, hops)) for hops in (1, 3, 10))
    return (first - third) / (first - last), first, third, last


def _pessimism(data: Values) -> tuple[float, int, float, int, float]:
    """Returns the equations over the simulation for very unlike producers: lowest, highest and the
    sum."""
    *_, points = data["curves"].values()
    found = [(p["model"]["wait_mean"] / _sim(p) - 1, p["x"]) for p in points]
    return *min(found), *max(found), sum(value for value, _ in found)


def _with_one_probe(data: Values) -> tuple[float, ...]:
    first = [points[0] for points in data["curves"].values()]
    return (*(p["model"]["wait_mean"] for p in first), *(_sim(p) for p in first))


def _shortest(name: str) -> Callable[[Values], tuple[float, float]]:
    """Where along a curve the wait is shortest, simulated and by the equations."""

    def measure(data: Values) -> tuple[float, float]:
        points = data["curves"][name]
        best = [min(points, key=lambda p: p[k]["wait_mean"])["x"] for k in ("simulated", "model")]
        return best[0], best[1]

    return measure


def _few_for_all(field: str, shown: str) -> Callable[[Values], tuple[float, str]]:
    """What a few more producers than h_max have over all of them: the worst ratio, and in words."""

    def measure(data: Values) -> tuple[float, str]:
        ratios, told = [], []
        for name, points in data["curves"].items():
            some = next(p for p in points if p["x"] > int(name.removeprefix("h_max ")))
            few, all_ = _sim(some, field), _sim(points[-1], field)
            ratios.append(few / all_)
            told.append(f"{shown} ({{name}})".format(
                lost=1 - few / all_, few=few, all=all_, count=some["x"], name=name))  # fmt: skip
        worst = max(ratios) if field == "wait_mean" else 1 - min(ratios)
        return worst, ", ".join(told)

    return measure


def _off(kind: str) -> Callable[[Values], float]:
    """How far the equations are off with up to ten producers to choose from."""
    return lambda data: max(
        abs(float(point[kind]["wait_mean"]) / _sim(point) - 1)
        for points in data["curves"].values()
        for point in points
        if point["x"] <= 10
    )


MARKS = "Lines: the equations; points: simulated, with 95 % intervals."

# fmt: off
FIGURES = (
    Figure(
        "johnson-2", "Probes for one object, against the most that are allowed",
        "How many producers a consumer asks, on average, until it gets an object. While producers "
        "can keep up (load up to 100 %), one or two are enough, whatever the limit. When they "
        f"cannot, every probe that is allowed is made, mostly in vain. {MARKS}",
        _computed(_by_hops), lambda d: [_curves(d["curves"], "probes_mean", PROBES)], (
            _agreement("probes_mean"),
            Statement(
                "Up to load 100 %, a consumer asks fewer than two producers",
                "only a few probes, less than 2",
                lambda d: max(_sim(p, "probes_mean") for n in CALM for p in d["curves"][n]),
                "at most {:.2f}", below(2.0)),
            Statement(
                "Above load 100 %, probes grow with what is allowed", "in proportion to h_max",
                _straightness, "on a straight line: correlation {:.4f}", above(0.995)),
            Statement(
                "At load 200 % and h_max = 5, still fewer messages than with a central manager's "
                "four", "h_avg below 4",
                lambda d: _sim(_at(d["curves"]["load 200 %"], 5), "probes_mean"), "{:.2f}",
                below(4.0)),
        )),
    Figure(
        "johnson-3", "Waiting for an object, against the most probes allowed",
        "First: the time from asking for an object to having it; making one takes 100 message "
        "times, and so does using one. A second and a third probe save most of the waiting that "
        "can be saved. Then: at a load of exactly 100 % the simulation lies above the equations, "
        f"which are those of infinitely many producers. {MARKS}",
        _compute_3, _panels_3, (
            _agreement("wait_mean"),
            Statement(
                "At load 50 %, waits quickly come down to the two messages that any object takes",
                "2 message times", lambda d: _last_waits(d)[0], "{:.2f}", near(2, 0.1)),
            Statement(
                "So they do at load 100 %", "2 message times",
                lambda d: (_last_waits(d)[1], _at(d["curves"][CRITICAL], 10)["model"]["wait_mean"]),
                "{:.2f} (equations {:.2f}): every second probe finds nothing, however many are "
                "allowed", near(2, 0.1)),
            Statement(
                "Above load 100 %, they come down to what producers are too slow by",
                "M / (N lambda) - 1 / mu: 50 and 100 message times",
                lambda d: tuple(_last_waits(d)[2:]), "{:.1f} and {:.1f}",
                lambda first, last: abs(first / 50 - 1) < 0.02 and abs(last / 100 - 1) < 0.02),
            Statement(
                "From h_max = 3 on, waits are close to their limit (against the time from one "
                "object to the next)", "in all cases close to the asymptotic value",
                _longer_with_3, "at most {:.1%} of that time longer than with ten probes",
                below(0.05)),
            Statement(
                "Near load 100 %, h_max = 5 brings more objects than h_max = 3",
                "about 2.8 % (conclusions: about 3 %)", _five_for_three,
                "{:.1%} simulated, {:.1%} by the equations",
                lambda simulated, model: 0.02 < simulated < 0.04 and abs(model - 0.028) < 0.003),
            _many(5),
            _many(10),
        )),
    Figure(
        "johnson-4", "Empty and blocked producers, against the most probes allowed",
        "First: how likely a probe finds nothing. Then: the share of the time in which a producer "
        "has to stop because its buffer is full. The document's caption names the one, its text "
        "the other. From the equations alone, as in the document.",
        lambda _, seed: {"curves": _measure(_by_hops(), None, seed)},
        _used_and_blocked(MOST, "empty_probability", "probes that find an empty producer"), (
            Statement(
                "Most of what more probes bring, three bring: less blocking than with one",
                "most of the benefit at h_max = 3", _shares_of_gain(3),
                "of the gain up to ten probes: {1}", above(0.5)),
        )),
    Figure(
        "johnson-5", "What buffers are good for",
        "First: the share of production that is used, against the number of finished objects that "
        "a producer may keep, with at most five probes. Then: the share of the time in which it "
        f"has to stop. A few places are worth a lot, more of them next to nothing. {MARKS}",
        _computed(_by_buffers),
        _used_and_blocked("buffers at each producer", "producer_utilization", "production used"), (
            _agreement("producer_utilization"),
            Statement(
                "Most of what buffers bring, five of them bring",
                "most of the benefit with 5 buffers", _shares_of_gain(5),
                "of the gain from 1 to 20: {1}", above(0.5)),
            Statement(
                "More than five bring a little more", "a small additional throughput improvement",
                _more_buffers, "20 instead of 5: at most {:.1%} more objects",
                lambda more: 0.0 < more < 0.05),
        )),
    Figure(
        "johnson-6", "Steadier production: waits against the most probes allowed",
        "The equations assume that the time to make an object varies a lot (exponential). Here the "
        "simulated times are spread evenly between 50 and 100 instead, the equations have the same "
        "mean of 75. The document does not say what its loads mean then: consumers are as many as "
        f"make the load what the legend says. {MARKS}",
        _computed(_by_hops_steadier, production_spread=UNIFORM_SPREAD), _waits(log="y"), (
            Statement(
                "With steadier production, waits are shorter than the equations say, or as long",
                "somewhat pessimistic", _ratios, "simulated over equations: {:.2f} to {:.2f}",
                lambda least, most: most < 1.1 and least < 0.95),
            Statement(
                "The curves have the same shape", "qualitatively accurate",
                lambda d: "they fall" if _all_fall(d) else "they do not all fall",
                "{} from one probe to three at every load", lambda told: told == "they fall"),
        )),
    Figure(
        "johnson-7", "Unlike producers, all probed alike",
        "Some producers are faster than others, and consumers do not care: each is probed as often "
        "as any other. Where half of the producers are twice as fast, three probes still do. Where "
        "a tenth of them makes half of all objects, even ten probes often find none of these. "
        f"Load 100 %. {MARKS}",
        _computed(_unlike_by_hops), _waits(), (
            Statement(
                "Moderately unlike producers (67/50): three probes bring most of what ten bring",
                "most of the benefit at h_max = 3", _moderate,
                "{:.0%} of it; waits {:.1f}, {:.1f} and {:.1f} with 1, 3 and 10", above(0.5)),
            Statement(
                "Very unlike producers (50/10): even ten probes are not enough",
                "even a maximum of 10 does not achieve good performance",
                lambda d: tuple(reversed(_last_waits(d))),
                "{:.1f} with ten probes, where moderately unlike producers have {:.1f}",
                lambda far, last: far > 3 * last),
            Statement(
                "Because ten probes may miss the fast tenth of the producers altogether", "35 %",
                lambda _: 0.9**10, "0.9 to the 10th is {:.1%}", near(0.35, 0.005)),
            Statement(
                "For very unlike producers the equations promise too little",
                "close, somewhat pessimistic", _pessimism,
                "equations over simulation from {:+.1%} (h_max = {}) to {:+.1%} (h_max = {})",
                lambda _, __, highest, ___, total: highest < 0.1 and total > 0),
            Statement(
                "At h_max = 1 the equations have no solution that iteration finds",
                "did not converge", _with_one_probe,
                "solved with bracketed roots: {:.1f} and {:.1f}, simulated {:.1f} and {:.1f}",
                lambda a, b, c, d: abs(a / c - 1) < 0.05 and abs(b / d - 1) < 0.05),
        )),
    Figure(
        "johnson-8", "Unlike producers, probed by what they make",
        "The same producers, at most three probes, against the share of all probes that goes to "
        "the fast ones. Waits are shortest where that is their share of the objects (dotted "
        f"lines). Load 100 %. {MARKS}",
        _computed(_unlike_by_access),
        _waits("share of the probes that goes to fast producers", log="y",
               columns=tuple(MADE_BY_FAST.values())),
        tuple(
            Statement(
                f"{name}: waits are shortest where probes go where objects are made",
                f"in proportion: {made:.0%} of the probes to fast producers", _shortest(name),
                "shortest at {:.0%} simulated, {:.0%} by the equations",
                lambda one, other, made=made: max(abs(one - made), abs(other - made)) < 0.11)
            for name, made in MADE_BY_FAST.items()
        )),
    Figure(
        "johnson-9", "Knowing only some of the producers",
        "Each of 100 consumers may probe only so many of the 100 producers, drawn at random. A few "
        "more than h_max nearly do. The document's equations (dashed) promise too much on the "
        "left: they miss that a request with few producers to choose from often probes an empty "
        f"one again. With that mended they come close. Load 100 %. {MARKS}",
        _compute_9, _waits("producers that a consumer may probe", log="xy"), (
            Statement(
                "With more producers to choose from than probes allowed, hardly fewer objects",
                "little effect on performance, a small degradation",
                _few_for_all("consumer_utilization", "{lost:.1%}"),
                "fewer objects than with all 100: {1}", below(0.05)),
            Statement(
                "And hardly longer waits", "little effect on the wait",
                _few_for_all("wait_mean", "{few:.1f} instead of {all:.1f} with {count}"), "{1}",
                below(1.15)),
            Statement(
                "With up to ten producers to choose from, the equations as printed foresee the "
                "waits", "not said: the figure may be theirs", _off("printed"),
                "off by up to {:.0%}", below(0.2)),
            Statement(
                "They do once it is taken into account that empty producers are probed again "
                "(ours)", "not said", _off("model"), "off by up to {:.0%}", below(0.2)),
        )),
)
# fmt: on
