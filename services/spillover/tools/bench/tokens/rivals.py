"""Which rules stand beside tokens, by name, and how they are made for a pool.

Here and not in the dispatchers' processes, which begin the sooner the less they import.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random

from spillover.model.pool import Pool
from spillover.sim.theory.tokens.static import static_split
from spillover.tools.bench.tokens.rules import Rule, Shortest, Static, TwoChoices

BEST_STATIC = "best static"
UNIFORM_STATIC = "uniform static"


def _static(policy: str, pool: Pool, random: Random) -> Rule:
    return Static(pool, random, static_split(pool, policy))


RIVALS: Mapping[str, Callable[[Pool, Random], Rule]] = {
    BEST_STATIC: partial(_static, "static-best"),
    UNIFORM_STATIC: partial(_static, "static-uniform"),
    "shortest queue": partial(Shortest, by_rate=False),
    "shortest queue by rate": partial(Shortest, by_rate=True),
    "two choices": TwoChoices,
}
