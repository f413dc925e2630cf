"""`spillover sim tokens`: typed jobs on a pool of unlike servers, and how many find no token.

Comte, "Dynamic load balancing with tokens", section IV, beyond what theory covers. The kernels are
in `sim.fast`; here are warm-up, batches and intervals.

What is insensitive to the law of job sizes (of mean 1), and what only nearly is. In brackets what
was measured: the change of beta_k against exponential sizes, with its 95 % half-width.
* Exactly, with processor sharing or balanced fairness: laws within each class, whatever the type
  (sizes det, hyper-by-class); under the static policies also laws by type, since the mix that a
  class receives then does not depend on the state.
* Nearly: laws that differ by type, as in figure 13 (sizes hyper), since who finds which token
  depends on the state. [Figure 11's pool, 10^8 jobs, seed 3: +0.00134 +- 0.00026 for beta_1 at load
  1.6, +0.00197 +- 0.00039 at 1.8, +0.00233 +- 0.00040 at 2.0, of 0.048, 0.092 and 0.146; the
  paper's +-0.001 could not tell. More where servers are pooled: +0.0064 and -0.0038 +- 0.0004, of
  0.147 and 0.103, on the pool of `tests/sim/test_tokens.py`.]
* FCFS with exponential sizes: exact, with or without interruptions. With others it is very
  sensitive without [beta_1 at load 1.6: -0.029 det, +0.017 hyper, +0.055 hyper-by-class, of 0.048],
  and the less so the more there are, slowest for fixed sizes [det: -0.020, -0.012, -0.006, -0.003,
  -0.002 with 1, 3, 10, 30, 100 interruptions per job; hyper-by-class: +0.015, +0.004, +0.003, then
  within +-0.003]. It then nears what balanced fairness gives for the same laws, no better.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from spillover.model.errors import InputError
from spillover.model.pool import Pool
from spillover.model.token_orders import LONGEST_AVAILABLE
from spillover.sim.fast.tokens.layout import Floats
from spillover.sim.fast.tokens.run import Counts, TokenSystem
from spillover.sim.theory.tokens.static import static_split

STATIC_POLICIES = ("static-best", "static-uniform")

INTERRUPTIONS = 10.0
"""The interruptions of a job of mean size on its way through FCFS service, by default."""

INTERRUPTIONS_MAX = 10_000.0

BATCHES = 32
STUDENT_T = 2.0395
"""The 97.5 % quantile for BATCHES - 1 degrees of freedom."""

JOBS_FOR_INTERVALS = 10 * BATCHES
"""With fewer jobs than this, there is one batch and no interval."""

JOBS_AT_ONCE = 250_000
"""The number of jobs between two calls of `on_progress`; fewer where jobs are interrupted often."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A measured share, and the half-width of its 95 % interval; None where nothing was seen."""

    value: float | None
    ci95: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRun:
    """The result of a run. `jobs` are those measured, after `warm_up_jobs`; blocked ones count."""

    pool: str
    policy: str
    order: str
    discipline: str
    sizes: str
    load: float
    jobs: int
    warm_up_jobs: int
    blocking: Estimate
    blocking_per_type: dict[str, Estimate]
    occupancy: Estimate
    idle: dict[str, Estimate]
    wall_s: float

    def as_dict(self) -> dict[str, Any]:
        """Returns the object that `sim tokens --json` prints; `ci95` has half-widths."""
        return {
            "pool": self.pool,
            "policy": self.policy,
            "order": self.order,
            "discipline": self.discipline,
            "sizes": self.sizes,
            "load": self.load,
            "jobs": self.jobs,
            "warm_up_jobs": self.warm_up_jobs,
            **self._figures(lambda estimate: estimate.value),
            "ci95": self._figures(lambda estimate: estimate.ci95),
            "jobs_per_s": (self.jobs + self.warm_up_jobs) / self.wall_s if self.wall_s else 0.0,
        }

    def _figures(self, part: Callable[[Estimate], float | None]) -> dict[str, Any]:
        return {
            "blocking": {
                "average": part(self.blocking),
                "per_type": {name: part(each) for name, each in self.blocking_per_type.items()},
            },
            "occupancy": part(self.occupancy),
            "idle": {name: part(each) for name, each in self.idle.items()},
        }


def run_tokens(
    pool: Pool,
    jobs: int,
    seed: int,
    policy: str = "dynamic",
    discipline: str = "ps",
    sizes: str = "exp",
    *,
    on_progress: Callable[[float], None] | None = None,
    interruptions: float = INTERRUPTIONS,
    order: str = LONGEST_AVAILABLE,
) -> TokenRun:
    """Let `jobs` jobs arrive at the pool, at its rates, after a warm-up of a tenth as many.

    policy         dynamic: tokens; static-best, static-uniform: a class at random, by the
                   probabilities of `sim.theory`, and blocked if it is full
    order          dynamic: which of the available tokens is taken
    discipline     ps: a class shares its balanced fair rate evenly, that of its servers where no
                   other class uses them; fcfs: sequential, several servers on one job
    sizes          exp, hyper, hyper-by-class, det: see `sim.fast.tokens.run.laws_of`
    interruptions  fcfs: how often a job of mean size goes to the end of the queue, on average
    on_progress    is called with the share that is done, 0..1

    The same seed gives the same arrivals and sizes under every policy and discipline. Raises
    InputError for names and numbers beyond these, and for pools that are too large.
    """
    if policy != "dynamic" and order != LONGEST_AVAILABLE:
        raise InputError("--order", "", "expected with --policy dynamic only")
    if jobs < 1:
        raise InputError("--jobs", "", f"expected at least 1, got {jobs}")
    shares, quantum = _shares(pool, policy), _quantum(discipline, interruptions)
    system = TokenSystem(pool, seed=seed, shares=shares, sizes=sizes, quantum=quantum, order=order)
    warm_up = max(jobs // 10, 20 * sum(each.tokens for each in pool.classes))
    started_s = time.perf_counter()
    often = interruptions / INTERRUPTIONS if discipline == "fcfs" else 1.0
    at_once = max(1, int(JOBS_AT_ONCE / max(1.0, often)))
    batches = _measure(system, jobs, warm_up, at_once, on_progress)
    wall_s = time.perf_counter() - started_s
    return TokenRun(
        pool=pool.name,
        policy=policy,
        order=order,
        discipline=discipline,
        sizes=sizes,
        load=pool.load,
        jobs=jobs,
        warm_up_jobs=warm_up,
        wall_s=wall_s,
        **_estimates(pool, batches),
    )


def _shares(pool: Pool, policy: str) -> list[list[float]] | None:
    """The static policies' assignment probabilities, by type and its classes; None for dynamic."""
    if policy == "dynamic":
        return None
    if policy not in STATIC_POLICIES:
        raise InputError("--policy", "", f"expected dynamic or one of {', '.join(STATIC_POLICIES)}")
    split = static_split(pool, policy)
    return [[split[each.id][name] for name in each.classes] for each in pool.types]


def _quantum(discipline: str, interruptions: float) -> float | None:
    if discipline not in {"ps", "fcfs"}:
        raise InputError("--discipline", "", f"expected ps or fcfs, got {discipline!r}")
    if not 0 <= interruptions <= INTERRUPTIONS_MAX:
        expected = f"expected 0 to {INTERRUPTIONS_MAX:.0f}, got {interruptions:g}"
        raise InputError("--interruptions", "", expected)
    if discipline == "ps":
        return None
    return 1.0 / interruptions if interruptions > 0 else math.inf


def _measure(
    system: TokenSystem,
    jobs: int,
    warm_up: int,
    at_once: int,
    on_progress: Callable[[float], None] | None,
) -> list[Counts]:
    """Returns the counts of each batch; the batches have equal numbers of jobs, as nearly as can
    be."""
    count = BATCHES if jobs >= JOBS_FOR_INTERVALS else 1
    done = 0

    def advance(until: int) -> Counts:
        nonlocal done
        while done < until:
            step = min(until - done, at_once)
            system.advance(step)
            done += step
            if on_progress is not None:
                on_progress(done / (warm_up + jobs))
        return system.counts()

    ends = [advance(warm_up + jobs * batch // count) for batch in range(count + 1)]
    return [after.since(before) for before, after in pairwise(ends)]


def _estimates(pool: Pool, batches: Sequence[Counts]) -> dict[str, Any]:
    arrived = np.array([batch.arrived for batch in batches], dtype=float)
    blocked = np.array([batch.blocked for batch in batches], dtype=float)
    idle_s = np.array([batch.idle_s for batch in batches])
    seconds = np.array([batch.now_s for batch in batches])
    rates = np.array([server.rate for server in pool.servers])
    used_s = seconds - idle_s @ (rates / rates.sum())
    return {
        "blocking": _blocking(blocked.sum(axis=1), arrived.sum(axis=1)),
        "blocking_per_type": {
            each.id: _blocking(blocked[:, k], arrived[:, k]) for k, each in enumerate(pool.types)
        },
        "occupancy": ratio(used_s, seconds),
        "idle": {server.id: ratio(idle_s[:, s], seconds) for s, server in enumerate(pool.servers)},
    }


def _blocking(blocked: Floats, arrived: Floats) -> Estimate:
    """At least the 3 / n that n trials without a single success leave possible: batches that all
    saw nothing do not mean that nothing can happen."""
    estimate = ratio(blocked, arrived)
    if estimate.ci95 is None:
        return estimate
    return Estimate(estimate.value, max(estimate.ci95, 3.0 / float(arrived.sum())))


def ratio(parts: Floats, wholes: Floats) -> Estimate:
    """Returns the sum of the parts over that of the wholes, by batch; the interval by Student's t
    over the batches' deviations from it (the classical ratio estimator)."""
    whole = float(wholes.sum())
    if whole <= 0:
        return Estimate(None, None)
    value = float(parts.sum()) / whole
    if len(parts) < BATCHES or np.count_nonzero(wholes) < BATCHES:
        return Estimate(value, None)
    off = parts - value * wholes
    deviation = math.sqrt(float(off @ off) / (len(off) - 1) / len(off))
    return Estimate(value, STUDENT_T * deviation / (whole / len(off)))
