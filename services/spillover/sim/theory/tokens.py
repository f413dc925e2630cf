"""`spillover exact tokens`: what a pool blocks and how busy it is, under the policies of Comte,
section IV, for Poisson arrivals and sizes of mean 1.

Insensitive: any law of sizes within a class gives the same, with servers that share their
capacity (balanced fairness). Laws that differ by type give nearly the same only (section IV-B).
How each policy is solved is in `tokens_grid`, `tokens_static` and `tokens_bottlenecks`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from spillover.model.pool import Pool
from spillover.sim.theory.tokens_bottlenecks import Bottleneck, bottlenecks
from spillover.sim.theory.tokens_graph import parts_of
from spillover.sim.theory.tokens_grid import solve_part
from spillover.sim.theory.tokens_static import static_probabilities, static_split

POLICIES = ("dynamic", "static-best", "static-uniform", "ideal")


@dataclass(frozen=True, slots=True)
class TokenFigures:
    """The probabilities of section IV. None where the policy leaves one open, as ideal does."""

    blocking: float
    """beta, the share of all jobs that are blocked."""
    blocking_per_type: Mapping[str, float | None]
    """beta_k by type."""
    occupancy: float
    """eta, the share of the servers' capacity in use."""
    idle: Mapping[str, float | None]
    """psi_s by server."""

    def as_dict(self) -> dict[str, Any]:
        """The object of contract section 3, `exact tokens`."""
        return {
            "blocking": {"average": self.blocking, "per_type": dict(self.blocking_per_type)},
            "occupancy": self.occupancy,
            "idle": dict(self.idle),
        }


def exact_tokens(pool: Pool, policy: str = "dynamic") -> TokenFigures:
    """The figures of the pool, at its rates, under one of `POLICIES`.

    Raises InputError if the pool is too large for its method.
    """
    return next(exact_curve(pool, [pool.load], policy))


def exact_curve(
    pool: Pool, loads: Iterable[float], policy: str = "dynamic"
) -> Iterator[TokenFigures]:
    """The figures of the pool at each of the loads, what they have in common computed once."""
    match policy:
        case "dynamic":
            return _dynamic(pool, loads)
        case "static-best" | "static-uniform":
            return _static(pool, loads, static_split(pool, policy))
        case "ideal":
            blocks = bottlenecks(pool)
            return (_ideal(pool.at_load(load), load / pool.load, blocks) for load in loads)
    raise ValueError(f"expected one of {', '.join(POLICIES)}, got {policy!r}")


def _dynamic(pool: Pool, loads: Iterable[float]) -> Iterator[TokenFigures]:
    """Token balancing: equation (9), part by part; a server that no class uses is idle."""
    laws = [solve_part(part) for part in parts_of(pool)]
    for load in loads:
        blocking: dict[str, float] = {}
        idle = dict.fromkeys((each.id for each in pool.servers), 1.0)
        for law in laws:
            blocked_here, idle_here = law.probabilities(load / pool.load)
            blocking.update(blocked_here)
            idle.update(idle_here)
        yield _figures(pool, blocking, idle)


def _static(
    pool: Pool, loads: Iterable[float], split: Mapping[str, Mapping[str, float]]
) -> Iterator[TokenFigures]:
    for load in loads:
        yield _figures(pool, *static_probabilities(pool.at_load(load), split))


def _figures(pool: Pool, blocking: Mapping[str, float], idle: Mapping[str, float]) -> TokenFigures:
    arrivals = math.fsum(each.rate for each in pool.types)
    capacity = math.fsum(each.rate for each in pool.servers)
    return TokenFigures(
        blocking=math.fsum(each.rate * blocking[each.id] for each in pool.types) / arrivals,
        blocking_per_type={each.id: blocking[each.id] for each in pool.types},
        occupancy=math.fsum(each.rate * (1 - idle[each.id]) for each in pool.servers) / capacity,
        idle={each.id: idle[each.id] for each in pool.servers},
    )


def _ideal(pool: Pool, factor: float, blocks: Iterable[Bottleneck]) -> TokenFigures:
    """The least blocking that is stable: each bottleneck serves what its servers can.

    By (11) and (12), and by the maximum flow from types to servers that is behind both. Only the
    average is fixed: types in overloaded bottlenecks can be blocked in many proportions, and work
    placed in many ways on servers that are not full.
    """
    arrivals = math.fsum(each.rate for each in pool.types)
    blocked = 0.0
    idle: dict[str, float | None] = {each.id: 1.0 for each in pool.servers}
    per_type: dict[str, float | None] = {}
    for block in blocks:
        excess = block.rate * factor - block.capacity
        blocked += max(0.0, excess)
        idle.update(dict.fromkeys(block.servers, 0.0 if excess >= 0 else None))
        per_type.update(dict.fromkeys(block.types, None if excess > 0 else 0.0))
    overloaded = [each for each in pool.types if per_type[each.id] is None]
    if len(overloaded) == 1:
        per_type[overloaded[0].id] = blocked / overloaded[0].rate
    blocking = blocked / arrivals
    return TokenFigures(
        blocking=blocking,
        blocking_per_type={each.id: per_type[each.id] for each in pool.types},
        occupancy=pool.load * (1 - blocking),
        idle=idle,
    )
