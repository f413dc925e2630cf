"""Comte, "Dynamic load balancing with tokens": figures 9, 10, 12 and 13.

What is measured; what the paper says of it is in `tokens_claims`, drawing in `tokens_drawing`.
Figures 9, 10 and 12, and the lines of 13, are exact (`sim.theory`); the marks of 13 are simulated.
"""

from __future__ import annotations

from typing import Any

from spillover.inputs.pool_file import load_pool
from spillover.model.pool import Pool
from spillover.tools.reproduce import tokens_claims as claims
from spillover.tools.reproduce import tokens_drawing as drawing
from spillover.tools.reproduce.figure import Effort, Figure, OnProgress

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


def compute_policies(pool: Pool, on_progress: OnProgress) -> dict[str, Any]:
    """Computes the curves of figures 9 and 12."""
    curves = {}
    for done, policy in enumerate(POLICIES):
        curves[policy] = _curve(pool, policy)
        on_progress((done + 1) / len(POLICIES))
    return {"pool": pool.name, "loads": LOADS, "curves": curves}


def compute_9(effort: Effort, seed: int, on_progress: OnProgress) -> dict[str, Any]:
    """Computes it exactly at every effort: nothing is random here."""
    del effort, seed
    from spillover.sim.theory.mm1k import mm1k_blocking  # noqa: PLC0415 - beside its use

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
    """Computes it exactly at every effort: nothing is random here."""
    del effort, seed
    from spillover.sim.theory.tokens.exact import exact_tokens  # noqa: PLC0415 - needs numpy

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
    """Computes it exactly at every effort: nothing is random here."""
    del effort, seed
    return compute_policies(load_pool("comte11"), on_progress)


def compute_13(effort: Effort, seed: int, on_progress: OnProgress) -> dict[str, Any]:
    """Computes exact lines, and simulated marks with sizes whose law depends on type, and on
    class."""
    from spillover.sim.theory.tokens.exact import exact_curve  # noqa: PLC0415 - needs numpy
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

        # Seeds of their own: with one for all, the marks would be wrong together.
        own = seed * total + done
        run = run_tokens(pool.at_load(load), jobs, own, sizes=sizes, on_progress=told)
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
    from spillover.sim.theory.tokens.exact import exact_curve  # noqa: PLC0415 - needs numpy

    figures = list(exact_curve(pool, LOADS, policy))
    return {
        "blocking": [each.blocking for each in figures],
        "occupancy": [each.occupancy for each in figures],
    }


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
        claims=claims.claims_9,
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
        claims=claims.claims_10,
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
        claims=claims.claims_12,
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
            "line, as theory says; where it belongs to the type (circles), type 1 lies a little "
            "above it."
        ),
        compute=compute_13,
        claims=claims.claims_13,
        draw=drawing.draw_sizes,
    ),
)
