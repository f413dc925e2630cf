"""`spillover exact tokens`: what a pool blocks and how busy it is, under the policies of Comte,
section IV, for Poisson arrivals and sizes of mean 1.

Insensitive: any law of sizes within a class gives the same, with servers that share their
capacity (balanced fairness). Laws that differ by type give nearly the same only (section IV-B).
How each policy is solved is in `grid`, `static` and `bottlenecks`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spillover.model.pool import Pool
from spillover.sim.theory.tokens.bottlenecks import Bottleneck, bottlenecks
from spillover.sim.theory.tokens.graph import parts_of
from spillover.sim.theory.tokens.grid import solve_part
from spillover.sim.theory.tokens.static import static_probabilities, static_split

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
    jobs: float | None = None
    """The mean number of jobs in the system, under the dynamic policy."""

    def as_dict(self) -> dict[str, Any]:
        """Returns the object that `exact tokens --json` prints."""
        return {
            "blocking": {"average": self.blocking, "per_type": dict(self.blocking_per_type)},
            "occupancy": self.occupancy,
            "idle": dict(self.idle),
        }


def exact_tokens(pool: Pool, policy: str = "dynamic") -> TokenFigures:
    """Returns the figures of the pool, at its rates, under one of `POLICIES`.

    Raises InputError if the pool is too large for its method.
    """
    return next(_solved(pool, [(pool, 1.0)], policy))


def exact_curve(
    pool: Pool, loads: Iterable[float], policy: str = "dynamic"
) -> Iterator[TokenFigures]:
    """Returns the figures of the pool at each of the loads, what they have in common computed
    once."""
    return _solved(pool, ((pool.at_load(load), load / pool.load) for load in loads), policy)


def _solved(
    pool: Pool, scaled: Iterable[tuple[Pool, float]], policy: str
) -> Iterator[TokenFigures]:
    """Returns the solution for each pool that differs from the first by that factor in its types'
    rates."""
    match policy:
        case "dynamic":
            return _dynamic(pool, scaled)
        case "static-best" | "static-uniform":
            split = static_split(pool, policy)
            return (_figures(each, *static_probabilities(each, split)) for each, _ in scaled)
        case "ideal":
            blocks = bottlenecks(pool)
            return (_ideal(each, factor, blocks) for each, factor in scaled)
    raise ValueError(f"expected one of {', '.join(POLICIES)}, got {policy!r}")


def _dynamic(pool: Pool, scaled: Iterable[tuple[Pool, float]]) -> Iterator[TokenFigures]:
    """Token balancing: equation (9), part by part; a server that no class uses is idle."""
    laws = [solve_part(part) for part in parts_of(pool)]
    for each, factor in scaled:
        blocking: dict[str, float] = {}
        idle = dict.fromkeys((server.id for server in pool.servers), 1.0)
        for law in laws:
            blocked_here, idle_here = law.probabilities(factor)
            blocking.update(blocked_here)
            idle.update(idle_here)
        jobs = math.fsum(law.jobs(factor) for law in laws)
        yield _figures(each, blocking, idle, jobs)


def _figures(
    pool: Pool,
    blocking: Mapping[str, float],
    idle: Mapping[str, float],
    jobs: float | None = None,
) -> TokenFigures:
    arrivals = math.fsum(each.rate for each in pool.types)
    capacity = math.fsum(each.rate for each in pool.servers)
    return TokenFigures(
        blocking=math.fsum(each.rate * blocking[each.id] for each in pool.types) / arrivals,
        blocking_per_type={each.id: blocking[each.id] for each in pool.types},
        occupancy=math.fsum(each.rate * (1 - idle[each.id]) for each in pool.servers) / capacity,
        idle={each.id: idle[each.id] for each in pool.servers},
        jobs=jobs,
    )


def _ideal(pool: Pool, factor: float, blocks: Sequence[Bottleneck]) -> TokenFigures:
    """The least blocking that is stable: each bottleneck serves what its servers can.

    By (11) and (12), and by the maximum flow from types to servers that is behind both. Only the
    average is fixed: types in overloaded bottlenecks can be blocked in many proportions, and work
    placed in many ways on servers that are not full.
    """
    served = math.fsum(min(block.rate * factor, block.capacity) for block in blocks)
    blocked = math.fsum(max(0.0, block.rate * factor - block.capacity) for block in blocks)
    idle: dict[str, float | None] = {each.id: 1.0 for each in pool.servers}
    per_type: dict[str, float | None] = {}
    for block in blocks:
        excess = block.rate * factor - block.capacity
        idle.update(dict.fromkeys(block.servers, 0.0 if excess >= 0 else None))
        per_type.update(dict.fromkeys(block.types, None if excess > 0 else 0.0))
    overloaded = [each for each in pool.types if per_type[each.id] is None]
    if len(overloaded) == 1:
        per_type[overloaded[0].id] = blocked / overloaded[0].rate
    return TokenFigures(
        blocking=blocked / math.fsum(each.rate for each in pool.types),
        blocking_per_type={each.id: per_type[each.id] for each in pool.types},
        occupancy=served / math.fsum(each.rate for each in pool.servers),
        idle=idle,
    )
