"""The token simulation, compiled: a pool, a policy and a discipline that advance job by job.

    system = TokenSystem(pool, seed=1)
    system.advance(10**6)              # warm-up, or a batch
    before = system.counts()

Statistics over such counts are in `spillover.sim.tokens`; the kernels beside this file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spillover.model.errors import InputError
from spillover.model.pool import Pool
from spillover.model.token_orders import LONGEST_AVAILABLE
from spillover.sim.fast.tokens.fcfs import advance_fcfs, nobody_waiting
from spillover.sim.fast.tokens.jobs import NOW, Laws, Setting, draws_of, no_jobs
from spillover.sim.fast.tokens.layout import Floats, Ints, graph_of, sharing_of
from spillover.sim.fast.tokens.ps import advance_ps, nobody_served

SIZES = ("exp", "hyper", "hyper-by-class", "det")

LONG_MEANS = (2.0, 5.0)
"""The long means of figure 13's laws: type 1's jobs have mean 2 or 1/2, type 2's 5 or 1/5. Further
types take turns with the same two laws."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts since the start: jobs by type, idle seconds by server, seconds in all."""

    arrived: Ints
    blocked: Ints
    idle_s: Floats
    now_s: float

    def since(self, before: Counts) -> Counts:
        return Counts(
            self.arrived - before.arrived,
            self.blocked - before.blocked,
            self.idle_s - before.idle_s,
            self.now_s - before.now_s,
        )


class TokenSystem:
    """A pool in virtual time, empty at first, all tokens in the bucket.

    `shares`: None for the token policy, else the static policy's assignment probabilities, for each
    type by its classes. `sizes`: exp, hyper, hyper-by-class or det, see `laws_of`. `quantum`: None
    for processor sharing, else FCFS with this mean work between interruptions, infinite for none.
    `order`: which of the available tokens is taken.
    Raises InputError where the pool is too large to be simulated, and for other sizes.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        seed: int,
        shares: Sequence[Sequence[float]] | None = None,
        sizes: str = "exp",
        quantum: float | None = None,
        order: str = LONGEST_AVAILABLE,
    ) -> None:
        graph = graph_of(pool, order)
        self._sharing = sharing_of(graph) if quantum is None else None
        draws = draws_of(seed)
        self._setting = Setting(
            graph=graph,
            laws=laws_of(sizes, len(pool.types), len(pool.classes)),
            shares=np.array([share for row in shares or () for share in row], dtype=float),
            draws=draws,
        )
        self._jobs = no_jobs(graph, draws)
        self._quantum = math.inf if quantum is None else quantum
        self._queue = nobody_waiting(graph)
        if self._sharing is not None:
            self._shared = nobody_served(graph, self._sharing)

    def advance(self, arrivals: int) -> None:
        """Let that many jobs arrive; time stands at the last of them."""
        if self._sharing is None:
            advance_fcfs(self._setting, self._quantum, self._jobs, self._queue, arrivals)
        else:
            advance_ps(self._setting, self._sharing, self._jobs, self._shared, arrivals)

    def counts(self) -> Counts:
        jobs = self._jobs
        return Counts(
            jobs.arrived.copy(), jobs.blocked.copy(), jobs.idle_s.copy(), float(jobs.clock[NOW])
        )


def laws_of(sizes: str, types: int, classes: int) -> Laws:
    """Laws of sizes by name, all of mean 1.

    exp             exponential
    hyper           figure 13's hyperexponential laws, by type: with m = 2 for the first type, 5 for
                    the second and so on in turns, mean m with probability 1 / (m + 1), else 1 / m
    hyper-by-class  the same laws by class, whatever the type: here insensitivity is exact
    det             every size is 1

    Raises InputError for any other name.
    """
    if sizes not in SIZES:
        raise InputError("--sizes", "", f"expected one of {', '.join(SIZES)}, got {sizes!r}")
    by_class = sizes == "hyper-by-class"
    count = classes if by_class else types
    mean = np.array([LONG_MEANS[k % len(LONG_MEANS)] for k in range(count)])
    return Laws(
        fixed=sizes == "det",
        mixed=sizes in {"hyper", "hyper-by-class"},
        by_class=by_class,
        long_share=1.0 / (mean + 1.0),
        long_mean=mean,
        short_mean=1.0 / mean,
    )
