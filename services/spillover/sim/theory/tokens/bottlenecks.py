"""Where a pool gets tight first, and how to spread arrivals so that it does so last.

What the static policies and the ideal of Comte, section IV, need to know of a pool: the paper says
of *best static* only that it makes the arrival rates at the servers "as homogeneous as possible",
and of *ideal* that it blocks least among what is stable. Both follow from one decomposition, made
here. No queueing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from spillover.model.errors import InputError
from spillover.model.pool import Pool, PoolType
from spillover.sim.theory.tokens.graph import connected

TYPES_MAX = 14
"""Types with different classes in one connected part: all their subsets are looked at."""

_TIE = 1e-9
"""Relative difference of loads below which two bottlenecks are equally tight."""

_ROUNDS_MAX = 20_000
_ROUNDING = 1e-14
_TINY = 1e-100
"""The least share of a bottleneck that is reckoned with, so that nothing is divided by 0."""


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """Types that together have no better place than these servers, which they load evenly."""

    types: tuple[str, ...]
    servers: tuple[str, ...]
    rate: float
    """The rate of all its types together."""
    capacity: float
    """The capacity of all its servers together."""


def bottlenecks(pool: Pool) -> tuple[Bottleneck, ...]:
    """Returns the pool taken apart, tightest first within each connected part.

    The types A that maximize nu(A) / mu(servers of A) can be brought to no lower load than that
    ratio; they fill their servers to it, which are then left to them, and the rest is taken apart
    in the same way. The loads that result, rate / capacity, make the vector of server loads as
    even as the graph allows (least in lexicographic order from the largest on, and with the least
    sum of lambda_s^2 / mu_s). The most that any policy can serve is the sum of
    min(rate, capacity). Servers that no type can reach are in none.

    Raises InputError if more than TYPES_MAX types are entangled.
    """
    found: list[Bottleneck] = []
    for kinds in _connected_types(pool):
        found.extend(_take_apart(pool, kinds))
    return tuple(found)


def even_split(pool: Pool) -> dict[str, dict[str, float]]:
    """Returns, for each type, the probability of each of its classes under *best static*.

    Each bottleneck loads its servers evenly. Where that leaves a choice, arrivals go as evenly as
    they can over the ways (class, server) of each type: the split of greatest entropy. With one
    type and a class for each server that is in proportion to the capacities, as in the paper.
    """
    servers_of = {each.id: each.servers for each in pool.classes}
    kinds = {each.id: each for each in pool.types}
    split = {each.id: dict.fromkeys(each.classes, 0.0) for each in pool.types}
    for block in bottlenecks(pool):
        inside = set(block.servers)
        pull = dict(zip(block.servers, _pulls(pool, block, servers_of), strict=True))
        for name in block.types:
            pulls = {
                each: math.fsum(pull[server] for server in servers_of[each] if server in inside)
                for each in kinds[name].classes
            }
            total = math.fsum(pulls.values())
            split[name] = {each: own / total for each, own in pulls.items()}
    return split


def _pulls(
    pool: Pool, block: Bottleneck, servers_of: Mapping[str, Sequence[str]]
) -> Sequence[float]:
    """Returns, for each server of the block, the b_s such that ways between type k and server s
    that carry `a_k b_s` each give every type its rate and every server its share (Sinkhorn's
    iteration)."""
    kinds = {each.id: each for each in pool.types}
    capacities = {each.id: each.rate for each in pool.servers}
    ways = [
        [
            sum(server in servers_of[each] for each in kinds[name].classes)
            for server in block.servers
        ]
        for name in block.types
    ]
    rates = [max(kinds[name].rate / block.rate, _TINY) for name in block.types]
    shares = [max(capacities[server] / block.capacity, _TINY) for server in block.servers]
    of_servers = shares
    for _ in range(_ROUNDS_MAX):
        of_types = [
            rate / math.fsum(way * b for way, b in zip(row, of_servers, strict=True))
            for rate, row in zip(rates, ways, strict=True)
        ]
        wanted = [
            share / math.fsum(way * a for way, a in zip(column, of_types, strict=True))
            for share, column in zip(shares, zip(*ways, strict=True), strict=True)
        ]
        settled = all(
            abs(new - old) <= _ROUNDING * old for new, old in zip(wanted, of_servers, strict=True)
        )
        of_servers = wanted
        if settled:
            break
    return of_servers


def _connected_types(pool: Pool) -> Iterable[list[PoolType]]:
    number = {each.id: index for index, each in enumerate(pool.classes)}
    near = [frozenset(number[name] for name in each.classes) for each in pool.types]
    sharing: dict[str, set[int]] = {}
    for each in pool.classes:
        for server in each.servers:
            sharing.setdefault(server, set()).add(number[each.id])
    edges = [*near, *(frozenset(classes) for classes in sharing.values())]
    for classes in connected(len(number), edges):
        inside = [k for k, kind in enumerate(pool.types) if near[k] <= set(classes)]
        if inside:
            yield [pool.types[k] for k in inside]


def _take_apart(pool: Pool, kinds: Sequence[PoolType]) -> list[Bottleneck]:
    capacity = {each.id: each.rate for each in pool.servers}
    servers_of = {each.id: each.servers for each in pool.classes}
    reach: dict[frozenset[str], list[PoolType]] = {}
    for kind in kinds:
        places = frozenset(server for name in kind.classes for server in servers_of[name])
        reach.setdefault(places, []).append(kind)
    if len(reach) > TYPES_MAX:
        raise InputError(
            "pool",
            "types",
            f"expected at most {TYPES_MAX} types with unlike servers, got {len(reach)}",
        )
    left = [(places, math.fsum(kind.rate for kind in group)) for places, group in reach.items()]
    found: list[Bottleneck] = []
    used: frozenset[str] = frozenset()
    while left:
        tightest = _tightest([(places - used, rate) for places, rate in left], capacity)
        servers = tightest - used
        inside = [(places, rate) for places, rate in left if places - used <= servers]
        left = [(places, rate) for places, rate in left if not places - used <= servers]
        used |= servers
        types = [kind for places, _ in inside for kind in reach[places]]
        found.append(
            Bottleneck(
                tuple(kind.id for kind in types),
                tuple(each.id for each in pool.servers if each.id in servers),
                math.fsum(rate for _, rate in inside),
                math.fsum(capacity[name] for name in servers),
            )
        )
    return found


def _tightest(
    left: Sequence[tuple[frozenset[str], float]], capacity: Mapping[str, float]
) -> frozenset[str]:
    """The servers of the smallest set of types with the largest rate over capacity.

    Smallest, because a larger one that is equally tight has flows that must be 0, which the even
    split would only come to in the limit.
    """
    best, servers = -1.0, frozenset[str]()  # loads may be too small for floats
    for count in range(1, len(left) + 1):
        for some in combinations(left, count):
            places = frozenset[str]().union(*(each for each, _ in some))
            load = sum(rate for _, rate in some) / sum(capacity[name] for name in places)
            if load > best * (1 + _TIE):
                best, servers = load, places
    return servers
