"""Comte, "Dynamic load balancing with tokens": figures 9, 10, 12 and 13.

What is measured and what is claimed; drawing is in `tokens_drawing`. Figures 9, 10 and 12, and the
lines of 13, are exact (`sim.theory`); the marks of 13 are simulated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spillover.inputs.pool_file import load_pool
from spillover.model.pool import Pool
from spillover.reproduce import tokens_drawing as drawing
from spillover.reproduce.figure import Claim, Effort, Figure, OnProgress

STEPS = 24
"""Loads per unit of load: 5/6, 1 and 5/3, the critical ones, are among them."""
LOADS = [step / STEPS for step in range(1, 60 + 1)]

POLICIES = ("dynamic", "static-best", "static-uniform", "ideal")

TOKENS = (1, 2, 3, 6, 10)
TOKENS_AT_LOAD_1 = (1, 2, 3, 6, 10, 20, 50, 100, 200)

MARKS = tuple(step / 12 for step in (6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 27, 30))
SIZES = ("hyper", "hyper-by-class")
JOBS = 15_000_000
JOBS_FULL = 100_000_000
"""The paper averages 100 runs of 10^6 jumps, after as many; this is one run, of more events."""

NEAR = 0.13
"""How far from a load is near it, where the paper says near."""


def compute_policies(pool: Pool, on_progress: OnProgress) -> dict[str, Any]:
    """The curves of figures 9 and 12."""
    curves = {}
    for done, policy in enumerate(POLICIES):
        curves[policy] = _curve(pool, policy)
        on_progress((done + 1) / len(POLICIES))
    return {"pool": pool.name, "loads": LOADS, "curves": curves}


def compute_9(effort: Effort, seed: int, on_progress: OnProgress) -> dict[str, Any]:
    """Nothing is random here, and every effort is exact."""
    del effort, seed
    from spillover.sim.theory.queues import mm1k_blocking  # noqa: PLC0415 - beside its use

    pool = load_pool("comte8")
    values = compute_policies(pool, on_progress)
    slow, tokens = pool.servers[0].rate, pool.classes[0].tokens
    share = sum(server.rate for server in pool.servers) / len(pool.servers)
    values["slow_servers"] = {
        "critical_load": slow / share,
        "blocking_there": mm1k_blocking(1.0, tokens),
    }
    return values


def compute_10(effort: Effort, seed: int, on_progress: OnProgress) -> dict[str, Any]:
    """Nothing is random here, and every effort is exact."""
    del effort, seed
    from spillover.sim.theory.tokens import exact_tokens  # noqa: PLC0415 - needs numpy

    pool = load_pool("comte8")
    curves = {str(tokens): _curve(pool.with_tokens(tokens), "dynamic") for tokens in TOKENS}
    on_progress(0.5)
    critical = pool.at_load(1.0)
    return {
        "pool": pool.name,
        "loads": LOADS,
        "curves": curves,
        "ideal": _curve(pool, "ideal"),
        "at_load_1": {
            str(tokens): exact_tokens(critical.with_tokens(tokens)).blocking
            for tokens in TOKENS_AT_LOAD_1
        },
    }


def compute_12(effort: Effort, seed: int, on_progress: OnProgress) -> dict[str, Any]:
    """Nothing is random here, and every effort is exact."""
    del effort, seed
    return compute_policies(load_pool("comte11"), on_progress)


def compute_13(effort: Effort, seed: int, on_progress: OnProgress) -> dict[str, Any]:
    """Exact lines, and simulated marks with sizes whose law depends on type, and on class."""
    from spillover.sim.theory.tokens import exact_curve  # noqa: PLC0415 - needs numpy
    from spillover.sim.tokens import run_tokens  # noqa: PLC0415 - needs numba

    pool = load_pool("comte11")
    names = [kind.id for kind in pool.types]
    lines: dict[str, list[Any]] = {name: [] for name in names}
    for figures in exact_curve(pool, LOADS):
        for name in names:
            lines[name].append(figures.blocking_per_type[name])
    jobs = JOBS_FULL if effort.full else JOBS
    marks: dict[str, list[dict[str, Any]]] = {sizes: [] for sizes in SIZES}
    total = len(SIZES) * len(MARKS)
    for done in range(total):
        sizes, load = SIZES[done // len(MARKS)], MARKS[done % len(MARKS)]

        def told(share: float, done: int = done) -> None:
            on_progress((done + share) / total)

        run = run_tokens(pool.at_load(load), jobs, seed, sizes=sizes, on_progress=told)
        exact = next(exact_curve(pool, [load]))
        marks[sizes].append(
            {
                "load": load,
                "simulated": {name: run.blocking_per_type[name].value for name in names},
                "ci95": {name: run.blocking_per_type[name].ci95 for name in names},
                "exact": dict(exact.blocking_per_type),
            }
        )
    return {"pool": pool.name, "loads": LOADS, "lines": lines, "jobs": jobs, "marks": marks}


def _curve(pool: Pool, policy: str) -> dict[str, list[float]]:
    from spillover.sim.theory.tokens import exact_curve  # noqa: PLC0415 - needs numpy

    figures = list(exact_curve(pool, LOADS, policy))
    return {
        "blocking": [each.blocking for each in figures],
        "occupancy": [each.occupancy for each in figures],
    }


def claims_9(data: dict[str, Any]) -> list[Claim]:
    """What section IV-A says of figure 9."""
    blocking = _blocking(data)
    gain, delta = _gain(blocking), _delta(blocking)
    slow = data["slow_servers"]
    uniform = blocking["static-uniform"][LOADS.index(0.5)]
    best = blocking["static-best"][LOADS.index(0.5)]
    ends = [values[-1] for values in blocking.values()]
    return [
        _peak("tokens gain most over the best fixed odds near load 1", 1.0, gain),
        _peak("tokens are farthest from ideal near load 1", 1.0, delta),
        Claim(
            text="with even odds the slow servers are congested long before load 1",
            stated="above load 2/5",
            measured=f"their own load is 1 at {slow['critical_load']:.3f}; "
            f"they then turn away {slow['blocking_there']:.1%}",
            holds=abs(slow["critical_load"] - 0.4) < 1e-9,
        ),
        Claim(
            text="even odds get worse first, below load 1 already",
            stated="even when rho < 1",
            measured=f"at load 0.5 {uniform:.1%} turned away, {best:.1%} with the best odds",
            holds=uniform > best,
        ),
        Claim(
            text="far above load 1 all policies are comparable",
            stated="comparable performance",
            measured=f"at load {LOADS[-1]:g}: {min(ends):.3f} to {max(ends):.3f}",
            holds=max(ends) - min(ends) < 0.03,
        ),
        *_laws(data),
    ]


def claims_10(data: dict[str, Any]) -> list[Claim]:
    """What section IV-A says of figure 10."""
    at_1 = list(data["at_load_1"].values())
    rows = [curve["blocking"] for curve in data["curves"].values()]
    falls = all(
        more <= fewer + 1e-12
        for few, many in zip(rows, rows[1:], strict=False)
        for fewer, more in zip(few, many, strict=True)
    )
    by_tokens = data["at_load_1"]
    first, tenth = by_tokens["1"], by_tokens["10"]
    return [
        Claim(
            text="the more tokens, the less is blocked, at every load",
            stated="decreases with the number of tokens",
            measured=f"for {', '.join(data['curves'])} tokens: {'yes' if falls else 'no'}",
            holds=falls,
        ),
        Claim(
            text="with ever more tokens it tends to ideal",
            stated="0 at load 1",
            measured=", ".join(f"{by_tokens[n]:.4f} ({n})" for n in ("10", "50", "200")),
            holds=at_1 == sorted(at_1, reverse=True) and at_1[-1] < 0.002,
        ),
        Claim(
            text="the first few tokens bring most, and ten a server are close to ideal",
            stated="close to the optimal with 10 tokens",
            measured=f"at load 1: {first:.3f} with 1, {tenth:.3f} with 10",
            holds=tenth < 0.1 * first,
        ),
    ]


def claims_12(data: dict[str, Any]) -> list[Claim]:
    """What section IV-B says of figure 12."""
    blocking = _blocking(data)
    occupied = data["curves"]["ideal"]["occupancy"]
    breaks = [
        load
        for load, before, here, after in zip(
            LOADS[1:], occupied, occupied[1:], occupied[2:], strict=False
        )
        if 2 * here - before - after > 1e-9
    ]
    bound = [max(0.0, 0.8 * (1 - 5 / 6 / load)) for load in LOADS]
    above = min(
        value - least
        for values in blocking.values()
        for value, least in zip(values, bound, strict=True)
    )
    delta = _delta(blocking)
    peaks = [
        LOADS[k]
        for k in range(1, len(delta) - 1)
        if delta[k] > delta[k - 1] and delta[k] >= delta[k + 1]
    ]
    at_half = LOADS.index(0.5)
    return [
        Claim(
            text="the slope of what ideal can use breaks where the last four servers are full, and "
            "where all are",
            stated="at load 5/6 and 5/3",
            measured="at load " + " and ".join(f"{load:.3f}" for load in breaks),
            holds=_close(breaks, [5 / 6, 5 / 3], 1e-9),
        ),
        Claim(
            text="nobody blocks less than 4/5 (1 - 5 / (6 rho)) from load 5/6 on",
            stated="at least that",
            measured=f"smallest distance above it {max(0.0, above):.1e}",
            holds=above > -1e-12,
        ),
        _peak("tokens gain most over the best fixed odds near load 5/6", 5 / 6, _gain(blocking)),
        Claim(
            text="tokens are farthest from ideal near both critical loads",
            stated="near load 5/6 and 5/3",
            measured="peaks at load " + " and ".join(f"{load:.3f}" for load in peaks),
            holds=_close(peaks, [5 / 6, 5 / 3], NEAR),
        ),
        Claim(
            text="even odds get worse faster than everything else",
            stated="deteriorates faster",
            measured=f"at load 0.5 {blocking['static-uniform'][at_half]:.2%} turned away, "
            f"{blocking['static-best'][at_half]:.2%} with the best odds",
            holds=all(
                u >= b
                for u, b in zip(blocking["static-uniform"], blocking["static-best"], strict=True)
            ),
        ),
        *_laws(data),
    ]


def claims_13(data: dict[str, Any]) -> list[Claim]:
    """What section IV-B says of figure 13, and what a precise simulation shows of it."""
    off = {sizes: _differences(data, sizes) for sizes in SIZES}
    largest = max(abs(difference) for _, _, difference, _ in off["hyper"])
    widest = max(wide for _, _, _, wide in off["hyper"])
    by_class = [abs(d) / wide for _, _, d, wide in off["hyper-by-class"]]
    load, name, difference, wide = max(off["hyper"], key=lambda row: abs(row[2]) / row[3])
    line = data["lines"]["t1"]
    below, at, above = (line[LOADS.index(step / STEPS)] for step in (32, 40, 48))
    return [
        Claim(
            text="sizes that vary widely, by another law for each type, hardly change anything",
            stated="similar to the exact lines; intervals within 0.001",
            measured=f"largest difference {largest:.4f}; intervals within {widest:.4f}",
            holds=largest < 0.005,
        ),
        Claim(
            text="with a law for each server's jobs, whatever their type, nothing changes at all",
            stated="exactly insensitive",
            measured=f"{sum(ratio <= 1 for ratio in by_class)} of {len(by_class)} within their 95 % "
            f"intervals, the farthest {max(by_class):.1f} half-widths away",
            holds=max(by_class) < 2.2 and sum(ratio > 1 for ratio in by_class) <= 4,
        ),
        Claim(
            text="with a law for each type it is insensitive too",
            stated="suggested, with further evaluation to conclude",
            measured=f"not exactly: {name} at load {load:.3f} is off by {difference:+.5f}, "
            f"its interval is {wide:.5f} wide on each side",
            holds=abs(difference) <= 2.2 * wide,
        ),
        Claim(
            text="type 1 is turned away from load 5/3 on, half of where its own servers are full",
            stated="increases near 5/3; its bound is above 0 from 10/3 on",
            measured=f"{below:.3f} at load 4/3, {at:.3f} at 5/3, {above:.3f} at 2",
            holds=below < 0.02 < at < above,
        ),
    ]


def _differences(data: dict[str, Any], sizes: str) -> list[tuple[float, str, float, float]]:
    """Load, type, simulated less exact blocking, half-width of its 95 % interval."""
    return [
        (mark["load"], name, mark["simulated"][name] - exact, mark["ci95"][name])
        for mark in data["marks"][sizes]
        for name, exact in mark["exact"].items()
    ]


def _blocking(data: dict[str, Any]) -> dict[str, list[float]]:
    return {policy: curve["blocking"] for policy, curve in data["curves"].items()}


def _gain(blocking: dict[str, list[float]]) -> list[float]:
    return [b - d for b, d in zip(blocking["static-best"], blocking["dynamic"], strict=True)]


def _delta(blocking: dict[str, list[float]]) -> list[float]:
    return [d - i for d, i in zip(blocking["dynamic"], blocking["ideal"], strict=True)]


def _peak(text: str, load: float, values: Sequence[float]) -> Claim:
    found = LOADS[max(range(len(values)), key=values.__getitem__)]
    return Claim(
        text=text,
        stated=f"near load {load:.3f}",
        measured=f"{max(values):.4f} of all jobs, at load {found:.3f}",
        holds=abs(found - load) < NEAR,
    )


def _laws(data: dict[str, Any]) -> list[Claim]:
    """Equation (11), for every policy and load."""
    off = max(
        abs(load * (1 - blocked) - used)
        for curve in data["curves"].values()
        for load, blocked, used in zip(LOADS, curve["blocking"], curve["occupancy"], strict=True)
    )
    return [
        Claim(
            text="what is accepted is what is served",
            stated="rho (1 - beta) = eta",
            measured=f"off by at most {off:.1e}",
            holds=off < 1e-10,
        )
    ]


def _close(found: Sequence[float], stated: Sequence[float], within: float) -> bool:
    return len(found) == len(stated) and all(
        abs(one - other) <= within for one, other in zip(found, stated, strict=True)
    )


FIGURES = (
    Figure(
        name="comte-9",
        title="One type of jobs, slow and fast servers: tokens against fixed odds",
        explanation=(
            "Ten servers, five of them four times as fast as the others, each with six tokens. "
            "Across: the load, 1 being all that the servers can do. Above: how much of that is in "
            "use. Below: the share of jobs turned away. Tokens know nothing of the servers&rsquo; "
            "speeds, and yet lie between the best that anybody could do and the best odds that "
            "could be fixed by somebody who knows every rate."
        ),
        compute=compute_9,
        claims=claims_9,
        draw=drawing.draw_policies,
    ),
    Figure(
        name="comte-10",
        title="How many tokens a server needs",
        explanation=(
            "The same ten servers, with 1 to 10 tokens each: the share of jobs turned away, "
            "against the load. Tokens are also the most jobs that a server works on at a time, so "
            "that few of them keep jobs fast. A handful comes close to ideal."
        ),
        compute=compute_10,
        claims=claims_10,
        draw=drawing.draw_tokens,
    ),
    Figure(
        name="comte-12",
        title="Two types of jobs with servers in common",
        explanation=(
            "Six equal servers with six tokens each. Type 1 can use the first four, type 2, four "
            "times as frequent, the last four. At load 5/6 the last four have more to do than they "
            "can, and from 5/3 on the first two as well: there the lines bend. The best odds send "
            "type 1 to the first two servers alone, which takes knowing how often each type comes; "
            "tokens find that out by themselves."
        ),
        compute=compute_12,
        claims=claims_12,
        draw=drawing.draw_policies,
    ),
    Figure(
        name="comte-13",
        title="Do the sizes of jobs matter?",
        explanation=(
            "The six servers again. Lines: the share of each type turned away, exactly, for "
            "exponential sizes. Marks: simulated with sizes that vary far more, by another law for "
            "each type. Below, magnified: how far the marks are from the lines, with 95 % "
            "intervals. Where the law belongs to the server&rsquo;s jobs (squares) they lie on the "
            "line, as theory says; where it belongs to the type (circles), a little above."
        ),
        compute=compute_13,
        claims=claims_13,
        draw=drawing.draw_sizes,
    ),
)
