"""Comte, load balancing with tokens: figures 9, 10, 12 and 13.

Figures 9, 10 and 12, and the lines of 13, are exact (`sim.theory`); the marks of 13 are simulated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from spillover.inputs.pool_file import load_pool
from spillover.model.pool import Pool
from spillover_lab.reproduce.figure import (
    Document,
    Effort,
    Figure,
    Panel,
    Series,
    Statement,
    Values,
    below,
    near,
)

DOCUMENT = Document(
    prefix="comte",
    citation="Céline Comte: Dynamic Load Balancing with Tokens",
    heading="Tokens: unlike servers, picky jobs, and no knowledge of rates",
    problem="Servers differ in speed, and not every server can do every type of job. To share out "
    "the jobs well one would have to know how many of each type will come and how fast each server "
    "is; both change, and a wrong guess overloads the slow servers.",
    mechanism="Each server has a few tokens, all in one bucket in the order in which they were "
    "last released. A job takes the compatible token that has lain there longest and gives it back "
    "when it is done; without one it is turned away (blocked). Fast servers give their tokens back "
    "sooner, and so get more jobs, without anybody knowing a rate.",
    reproduced="The share of jobs that is turned away, and how much of the servers' capacity is "
    "used, against the load: computed from the paper's formulas, exactly, and simulated. Beside it "
    "the best that anybody could do (ideal), and the two rivals that share out jobs by fixed odds: "
    "with all rates known (best static) and without (uniform static).",
    left_open="The paper calls the mechanism insensitive: what comes out should depend on the mean "
    "size of jobs alone. That is exact where all jobs on a server have sizes of one distribution, "
    "but not where sizes depend on the type of job, as in its figure 13.",
)

STEPS = 24
"""Loads per unit of load: 5/6, 1 and 5/3, the critical ones, are among them."""
LOADS = [step / STEPS for step in range(1, 60 + 1)]
POLICIES = {
    "dynamic": "tokens",
    "static-best": "best static",
    "static-uniform": "uniform static",
    "ideal": "ideal",
}
TOKENS = (1, 2, 3, 6, 10)
TOKENS_AT_LOAD_1 = (1, 2, 3, 6, 10, 20, 50, 100, 200)
MARKS = tuple(step / 12 for step in (6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 27, 30))
SIZES = ("hyper", "hyper-by-class")
JOBS, JOBS_FULL = 15_000_000, 100_000_000
"""The paper averages 100 runs of 10^6 jumps, after as many; this is one run, of more events."""
NEAR = 0.13
"""How far from a load is near it, where the paper says near."""
BETWEEN = (1.5, 2.0)
"""Loads at which laws by type show most in type 1."""
CERTAINLY = 1.5
"""95 % half-widths that chance alone exceeds once in 300 times."""


def _curve(pool: Pool, policy: str) -> dict[str, list[float]]:
    from spillover.sim.theory.tokens.exact import exact_curve  # noqa: PLC0415 - needs numpy

    figures = list(exact_curve(pool, LOADS, policy))
    return {
        "blocking": [each.blocking for each in figures],
        "occupancy": [each.occupancy for each in figures],
    }


def _policies_on(name: str) -> Callable[[Effort, int], Values]:
    """Nothing is random in the curves of figures 9 and 12: they are exact at every effort."""

    def compute(_: Effort, __: int) -> Values:
        pool = load_pool(name)
        share = sum(server.rate for server in pool.servers) / len(pool.servers)
        return {
            "curves": {policy: _curve(pool, policy) for policy in POLICIES},
            "first_servers": {
                "critical_load": pool.servers[0].rate / share,
                # M/M/1/K at load 1: each of its K + 1 states is as likely as any other.
                "blocking_there": 1 / (pool.classes[0].tokens + 1),
            },
        }

    return compute


def _compute_10(_: Effort, __: int) -> Values:
    from spillover.sim.theory.tokens.exact import exact_tokens  # noqa: PLC0415 - needs numpy

    pool = load_pool("comte8")
    critical = pool.at_load(1.0)
    curves = {str(n): _curve(pool.with_tokens(n), "dynamic") for n in TOKENS}
    at_load_1 = {str(n): exact_tokens(critical.with_tokens(n)).blocking for n in TOKENS_AT_LOAD_1}
    return {"curves": curves, "ideal": _curve(pool, "ideal"), "at_load_1": at_load_1}


def _compute_13(effort: Effort, seed: int) -> Values:
    """Exact lines, and simulated marks with sizes whose law depends on type, and on class."""
    from spillover.sim.theory.tokens.exact import exact_curve  # noqa: PLC0415 - needs numpy
    from spillover.sim.tokens import run_tokens  # noqa: PLC0415 - needs numba

    pool = load_pool("comte11")
    names = [kind.id for kind in pool.types]
    exact = [figures.blocking_per_type for figures in exact_curve(pool, LOADS)]
    marks: dict[str, list[dict[str, Any]]] = {sizes: [] for sizes in SIZES}
    points = [(sizes, load) for sizes in SIZES for load in MARKS]
    for number, (sizes, load) in enumerate(points):
        # Seeds of their own: with one for all, the marks would be wrong together.
        own = seed * len(points) + number
        jobs = effort.pick(JOBS, JOBS_FULL)
        blocking = run_tokens(pool.at_load(load), jobs, own, sizes=sizes).blocking_per_type
        marks[sizes].append(
            {
                "load": load,
                "simulated": {name: blocking[name].value for name in names},
                "ci95": {name: blocking[name].ci95 for name in names},
                "exact": dict(next(exact_curve(pool, [load])).blocking_per_type),
            }
        )
    return {"lines": {name: [one[name] for one in exact] for name in names}, "marks": marks}


# --- drawing --------------------------------------------------------------------------------------

IN_USE, TURNED_AWAY = "share of the servers' capacity in use", "share of jobs turned away"


def _panels_of_policies(data: Values) -> list[Panel]:
    return [
        Panel(title, [Series(LOADS, c[what], POLICIES[p]) for p, c in data["curves"].items()], load)
        for what, title, load in (("occupancy", IN_USE, ""), ("blocking", TURNED_AWAY, "load"))
    ]


def _panels_10(data: Values) -> list[Panel]:
    series = [Series(LOADS, c["blocking"], f"{n} tokens") for n, c in data["curves"].items()]
    ideal = Series(LOADS, data["ideal"]["blocking"], "ideal", "--")
    return [Panel(TURNED_AWAY, [*series, ideal], "load")]


def _panels_13(data: Values) -> list[Panel]:
    whole, apart = [], []
    for place, (name, line) in enumerate(data["lines"].items()):
        color = f"C{place}"
        whole.append(Series(LOADS, line, f"type {place + 1}, exact", color=color))
        for sizes, law, style, aside in (
            ("hyper", "type", "o", -0.012), ("hyper-by-class", "server", "s", 0.012),
        ):  # fmt: skip
            marks = data["marks"][sizes]
            simulated = [mark["simulated"][name] for mark in marks]
            off = [mark["simulated"][name] - mark["exact"][name] for mark in marks]
            wide = [mark["ci95"][name] for mark in marks]
            at = [mark["load"] + aside for mark in marks]
            label = f"type {place + 1}, a law for each {law}"
            if law == "type":
                whole.append(
                    Series([mark["load"] for mark in marks], simulated, "", "o", None, color)
                )
            apart.append(Series(at, off, label, style, wide))
    title = f"{TURNED_AWAY}; marks: simulated, a law of sizes for each type"
    return [
        Panel(title, whole),
        Panel("simulated less exact, with 95 % intervals", apart, "load", level=0),
    ]


# --- what the paper says of them ------------------------------------------------------------------


def _blocking(data: Values, policy: str) -> list[float]:
    found: list[float] = data["curves"][policy]["blocking"]
    return found


def _less(one: str, other: str) -> Callable[[Values], list[float]]:
    """What one policy blocks more than another, by load."""
    return lambda data: [
        a - b for a, b in zip(_blocking(data, one), _blocking(data, other), strict=True)
    ]


def _peak(text: str, load: float, values: Callable[[Values], list[float]]) -> Statement:
    """The largest of the values is near that load."""

    def measure(data: Values) -> tuple[float, float]:
        found = values(data)
        return LOADS[max(range(len(found)), key=found.__getitem__)], max(found)

    shown = "{1:.4f} of all jobs, at load {0:.3f}"
    return Statement(text, f"near load {load:.3f}", measure, shown, near(load, NEAR))


def _off_the_law(data: Values) -> float:
    """Equation (11), for every policy and load."""
    return max(
        abs(load * (1.0 - float(blocked)) - float(used))
        for curve in data["curves"].values()
        for load, blocked, used in zip(LOADS, curve["blocking"], curve["occupancy"], strict=True)
    )


GAIN, DELTA = _less("static-best", "dynamic"), _less("dynamic", "ideal")
LAW = Statement(
    "what is accepted is what is served",
    "rho (1 - beta) = eta",
    _off_the_law,
    "off by at most {:.1e}",
    below(1e-10),
)


def _at_half(data: Values) -> tuple[float, float]:
    half = LOADS.index(0.5)
    return _blocking(data, "static-uniform")[half], _blocking(data, "static-best")[half]


def _ends(data: Values) -> tuple[float, float]:
    ends = [_blocking(data, policy)[-1] for policy in POLICIES]
    return min(ends), max(ends)


def _falls(data: Values) -> tuple[str, str]:
    rows = [curve["blocking"] for curve in data["curves"].values()]
    falls = all(
        more <= fewer + 1e-12
        for few, many in pairwise(rows)
        for fewer, more in zip(few, many, strict=True)
    )
    return "yes" if falls else "no", ", ".join(data["curves"])


def _tends_to_ideal(data: Values) -> tuple[Any, ...]:
    found = data["at_load_1"]
    values = list(found.values())
    told = ", ".join(f"{found[n]:.4f} ({n})" for n in ("10", "50", "200"))
    return told, values == sorted(values, reverse=True) and values[-1] < 0.002


def _bends(data: Values) -> list[float]:
    """Where the slope of what ideal can use is smaller after a load than before it."""
    used = data["curves"]["ideal"]["occupancy"]
    bends = [2 * b - a - c for a, b, c in zip(used, used[1:], used[2:], strict=False)]
    return _peaks([0.0, *(bend if bend > 1e-9 else 0.0 for bend in bends), 0.0])


def _peaks(values: Sequence[float]) -> list[float]:
    """The loads at which a value is larger than the one before and no smaller than the next."""
    triples = zip(LOADS[1:], values, values[1:], values[2:], strict=False)
    return [load for load, before, here, after in triples if before < here >= after]


def _both(found: Sequence[float], within: float) -> tuple[str, bool]:
    """How loads are told, and whether they are the two critical ones."""
    stated = (5 / 6, 5 / 3)
    holds = len(found) == 2 and all(
        abs(a - b) <= within for a, b in zip(found, stated, strict=True)
    )
    return " and ".join(f"{load:.3f}" for load in found), holds


def _above_bound(data: Values) -> tuple[float, float]:
    above = min(
        value - 0.8 * (1 - 5 / 6 / load)
        for policy in POLICIES
        for value, load in zip(_blocking(data, policy), LOADS, strict=True)
    )
    return above, max(0.0, above)


def _differences(data: Values, sizes: str) -> list[tuple[float, str, float, float]]:
    """Load, type, simulated less exact blocking, half-width of its 95 % interval."""
    return [
        (mark["load"], name, mark["simulated"][name] - exact, mark["ci95"][name])
        for mark in data["marks"][sizes]
        for name, exact in mark["exact"].items()
    ]


def _largest(data: Values) -> tuple[float, float]:
    found = _differences(data, "hyper")
    return max(abs(off) for _, _, off, _ in found), max(wide for *_, wide in found)


def _shift(sizes: str) -> Callable[[Values], tuple[float, float]]:
    """The mean difference of type 1 at the loads of BETWEEN, and its 95 % half-width."""

    def measure(data: Values) -> tuple[float, float]:
        low, high = BETWEEN
        some = [
            (off, wide)
            for load, name, off, wide in _differences(data, sizes)
            if name == "t1" and low <= load <= high
        ]
        count = len(some)
        return math.fsum(o for o, _ in some) / count, math.hypot(*(w for _, w in some)) / count

    return measure


def _insensitive(shift: float, wide: float) -> bool:
    return abs(shift) <= CERTAINLY * wide


SHIFT = (
    f"type 1 at loads {BETWEEN[0]:g} to {BETWEEN[1]:g}: {{:+.4f}} from the exact line, "
    "give or take {:.4f}"
)

# fmt: off
FIGURES = (
    Figure(
        "comte-9", "One type of jobs, slow and fast servers: tokens against fixed odds",
        "Ten servers, five of them four times as fast as the others, each with six tokens. Across: "
        "the load, 1 being all that the servers can do. Tokens know nothing of the servers&rsquo; "
        "speeds, and yet lie between the best that anybody could do and the best odds that could "
        "be fixed by somebody who knows every rate.",
        _policies_on("comte8"), _panels_of_policies, (
            _peak("tokens gain most over the best fixed odds near load 1", 1.0, GAIN),
            _peak("tokens are farthest from ideal near load 1", 1.0, DELTA),
            Statement(
                "with even odds the slow servers are congested long before load 1",
                "above load 2/5",
                lambda d: tuple(d["first_servers"][n] for n in ("critical_load", "blocking_there")),
                "their own load is 1 at {:.3f}; they then turn away {:.1%}", near(0.4, 1e-9)),
            Statement(
                "even odds get worse first, below load 1 already", "even when rho < 1", _at_half,
                "at load 0.5 {:.1%} turned away, {:.1%} with the best odds",
                lambda uniform, best: uniform > best),
            Statement(
                "far above load 1 all policies are comparable", "comparable performance", _ends,
                f"at load {LOADS[-1]:g}: {{:.3f}} to {{:.3f}}",
                lambda least, most: most - least < 0.03),
            LAW,
        )),
    Figure(
        "comte-10", "How many tokens a server needs",
        "The same ten servers, with 1 to 10 tokens each: the share of jobs turned away, against "
        "the load. Tokens are also the most jobs that a server works on at a time, so that few of "
        "them keep jobs fast. A handful comes close to ideal.",
        _compute_10, _panels_10, (
            Statement(
                "the more tokens, the less is blocked, at every load",
                "decreases with the number of tokens", _falls, "for {1} tokens: {0}",
                lambda falls, _: falls == "yes"),
            Statement(
                "with ever more tokens it tends to ideal", "0 at load 1", _tends_to_ideal, "{}",
                lambda _, tends: tends),
            Statement(
                "the first few tokens bring most, and ten a server are close to ideal",
                "close to the optimal with 10 tokens",
                lambda d: (d["at_load_1"]["1"], d["at_load_1"]["10"]),
                "at load 1: {:.3f} with 1, {:.3f} with 10",
                lambda first, tenth: tenth < 0.1 * first),
        )),
    Figure(
        "comte-12", "Two types of jobs with servers in common",
        "Six equal servers with six tokens each. Type 1 can use the first four, type 2, four times "
        "as frequent, the last four. At load 5/6 the last four have more to do than they can, and "
        "from 5/3 on the first two as well: there the lines bend. The best odds send type 1 to the "
        "first two servers alone, which takes knowing how often each type comes; tokens find that "
        "out by themselves.",
        _policies_on("comte11"), _panels_of_policies, (
            Statement(
                "the slope of what ideal can use breaks where the last four servers are full, and "
                "where all are", "at load 5/6 and 5/3",
                lambda d: _both(_bends(d), 1e-9), "at load {}", lambda _, holds: holds),
            Statement(
                "nobody blocks less than 4/5 (1 - 5 / (6 rho))", "at least that", _above_bound,
                "smallest distance above it {1:.1e}", lambda above, _: above > -1e-12),
            Statement(
                "tokens are farthest from ideal near both critical loads",
                "near load 5/6 and 5/3", lambda d: _both(_peaks(DELTA(d)), NEAR),
                "peaks at load {}", lambda _, holds: holds),
            _peak("tokens gain most over the best fixed odds near load 5/6", 5 / 6, GAIN),
            Statement(
                "even odds get worse faster than everything else", "deteriorates faster",
                lambda d: (*_at_half(d), min(_less("static-uniform", "static-best")(d))),
                "at load 0.5 {:.2%} turned away, {:.2%} with the best odds",
                lambda _, __, least: least >= 0),
            LAW,
        )),
    Figure(
        "comte-13", "Do the sizes of jobs matter?",
        "The six servers again. Lines: the share of each type turned away, exactly, for "
        "exponential sizes. Marks: simulated with sizes that vary far more, by another law for "
        "each type. Below, magnified: how far the marks are from the lines. Where the law belongs "
        "to the server&rsquo;s jobs (squares) they lie on the line, as theory says; where it "
        "belongs to the type (circles), type 1 lies a little above it.",
        _compute_13, _panels_13, (
            Statement(
                "sizes that vary widely, by another law for each type, hardly change anything",
                "similar to the exact lines; intervals within 0.001", _largest,
                "largest difference {:.4f}; intervals within {:.4f}", below(0.005)),
            Statement(
                "with a law for each server's jobs, whatever their type, nothing changes at all",
                "exactly insensitive", _shift("hyper-by-class"), SHIFT, _insensitive),
            Statement(
                "with a law for each type it is insensitive too",
                "suggested, with further evaluation to conclude", _shift("hyper"), SHIFT,
                _insensitive),
            Statement(
                "type 1 is turned away from load 5/3 on, half of where its own servers are full",
                "increases near 5/3; its bound is above 0 from 10/3 on",
                lambda d: tuple(d["lines"]["t1"][LOADS.index(x)] for x in (4 / 3, 5 / 3, 2.0)),
                "{:.3f} at load 4/3, {:.3f} at 5/3, {:.3f} at 2",
                lambda below_, at, above: below_ < 0.02 < at < above),
        )),
)
# fmt: on
