"""A pool as theory sees it: classes by number, types and servers as sources of rates beside them.

Which classes there are to reckon with, which of them are one and the same, and which parts of a
pool know nothing of each other. No probabilities here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spillover.model.pool import Pool


@dataclass(frozen=True, slots=True)
class Source:
    """A source takes tokens from some classes: types of jobs, or servers. Those with equal
    `classes` are one source with the sum of their rates."""

    ids: tuple[str, ...]
    rate: float
    classes: frozenset[int]


@dataclass(frozen=True, slots=True)
class Part:
    """A connected part of a pool: its classes are 0, 1, ..., of `tokens` each."""

    tokens: tuple[int, ...]
    types: tuple[Source, ...]
    servers: tuple[Source, ...]


def parts_of(pool: Pool) -> tuple[Part, ...]:
    """Returns the connected parts of the pool, which are independent of each other.

    Classes of equal types and equal servers become one with the sum of their tokens: the order
    among their tokens never changes, so that the chain of (c, t) would be reducible, while the
    joint numbers follow the same law either way (see the errata: every word over the merged class
    stands for equally many words over the two). Classes that no type may join are left out, and
    with them the servers that have no others.
    """
    types_of: dict[str, set[str]] = {each.id: set() for each in pool.classes}
    for kind in pool.types:
        for name in kind.classes:
            types_of[name].add(kind.id)
    tokens: dict[tuple[frozenset[str], frozenset[str]], int] = {}
    for each in pool.classes:
        if types_of[each.id]:
            key = (frozenset(types_of[each.id]), frozenset(each.servers))
            tokens[key] = tokens.get(key, 0) + each.tokens
    keys = list(tokens)
    types = sources((each.id, each.rate, _holding(keys, 0, each.id)) for each in pool.types)
    servers = sources((each.id, each.rate, _holding(keys, 1, each.id)) for each in pool.servers)
    return tuple(
        _part(classes, [tokens[keys[number]] for number in classes], types, servers)
        for classes in connected(len(keys), [each.classes for each in (*types, *servers)])
    )


def sources(entries: Iterable[tuple[str, float, frozenset[int]]]) -> list[Source]:
    """Sources from (id, rate, classes), one for each set of classes, without those of none."""
    ids: dict[frozenset[int], list[str]] = {}
    rates: dict[frozenset[int], float] = {}
    for name, rate, classes in entries:
        if classes:
            ids.setdefault(classes, []).append(name)
            rates[classes] = rates.get(classes, 0.0) + rate
    return [Source(tuple(ids[classes]), rates[classes], classes) for classes in ids]


def connected(count: int, edges: Iterable[frozenset[int]]) -> list[list[int]]:
    """Returns the numbers 0..count-1 in groups: those that an edge has in common are in one."""
    group = {number: {number} for number in range(count)}
    for edge in edges:
        joined = set().union(*(group[number] for number in edge))
        for number in joined:
            group[number] = joined
    return [sorted(members) for number, members in group.items() if number == min(members)]


def _holding(
    keys: Sequence[tuple[frozenset[str], frozenset[str]]], side: int, name: str
) -> frozenset[int]:
    return frozenset(number for number, key in enumerate(keys) if name in key[side])


def _part(
    classes: list[int], tokens: Sequence[int], types: Iterable[Source], servers: Iterable[Source]
) -> Part:
    number = {each: index for index, each in enumerate(classes)}

    def of(found: Iterable[Source]) -> tuple[Source, ...]:
        return tuple(
            Source(each.ids, each.rate, frozenset(number[one] for one in each.classes))
            for each in found
            if each.classes <= number.keys()
        )

    return Part(tuple(tokens), of(types), of(servers))
