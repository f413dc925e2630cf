"""A token pool as arrays, for the kernels: who may join what, who works on what, at which rates.

Rows of unequal length lie one behind the other in one array: row k is flat[start[k]:start[k + 1]].
Nothing random and nothing that changes during a run is here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from spillover.model.errors import InputError
from spillover.model.pool import Pool
from spillover.model.token_orders import LEAST_LOADED, LONGEST_AVAILABLE
from spillover.policy.tokens import rivals, speeds
from spillover.sim.fast.compile import kernel

# Arrays of int64 and of float64. Policies take Sequences, which to a checker no numpy array is.
Ints: TypeAlias = Any
Floats: TypeAlias = Any

TOKENS_MAX = 100_000
"""Tokens of a whole pool that are simulated."""

STATES_MAX = 4_000_000
"""Rates that are tabled for one set of classes that share servers: 32 MB."""


class Graph(NamedTuple):
    """The tripartite graph. Types, classes and servers are numbered as in the pool."""

    type_start: Ints
    type_classes: Ints
    type_limits: Floats
    """Cumulative shares of the types among arrivals."""
    arrival_rate: float
    class_start: Ints
    class_servers: Ints
    server_start: Ints
    server_classes: Ints
    server_rates: Floats
    limits: Ints
    """Tokens by class."""
    first: Ints
    """Where each class's places start in arrays by token."""
    speeds: Floats
    """The speed of each class, for the order `least-loaded`; empty: the longest available token is
    taken."""
    rival_start: Ints
    rivals: Ints
    """The types that may join each class, as far as they are told apart (`policy.tokens`)."""


class Sharing(NamedTuple):
    """Balanced fair rates phi_i(x), tabled for each *group*: classes that share servers, directly
    or through others. Groups do not influence each other, and a class with servers of its own is a
    group by itself: its rate is that of its servers, and the discipline plain processor sharing.

    In group g, state x has the place sum x_i * stride[i]; class i's rate there is
    rates[start[g] + place * width[g] + column[i]].
    """

    rates: Floats
    start: Ints
    width: Ints
    group: Ints
    """The group of each class; `column` and `stride` are by class, too."""
    column: Ints
    stride: Ints
    member_start: Ints
    members: Ints


def graph_of(pool: Pool, order: str = LONGEST_AVAILABLE) -> Graph:
    """Returns the pool as arrays. Raises InputError where it has too many tokens to be
    simulated."""
    tokens = sum(each.tokens for each in pool.classes)
    if tokens > TOKENS_MAX:
        expected = f"expected at most {TOKENS_MAX} tokens in all, got {tokens}"
        raise InputError("pool", "classes", expected)
    limits = np.array([each.tokens for each in pool.classes], dtype=np.int64)
    server_number = {server.id: s for s, server in enumerate(pool.servers)}
    class_number = {each.id: i for i, each in enumerate(pool.classes)}
    class_rows = [[server_number[name] for name in each.servers] for each in pool.classes]
    server_rows: list[list[int]] = [[] for _ in pool.servers]
    for i, row in enumerate(class_rows):
        for s in row:
            server_rows[s].append(i)
    type_rows = [[class_number[name] for name in each.classes] for each in pool.types]
    type_rates = np.array([each.rate for each in pool.types])
    type_start, type_classes = rows(type_rows)
    class_start, class_servers = rows(class_rows)
    server_start, server_classes = rows(server_rows)
    rates = [[pool.servers[s].rate for s in row] for row in class_rows]
    rival_start, rival_types = rows(rivals(type_rows, len(class_rows)))
    return Graph(
        type_start=type_start,
        type_classes=type_classes,
        type_limits=np.cumsum(type_rates) / type_rates.sum(),
        arrival_rate=float(type_rates.sum()),
        class_start=class_start,
        class_servers=class_servers,
        server_start=server_start,
        server_classes=server_classes,
        server_rates=np.array([server.rate for server in pool.servers]),
        limits=limits,
        first=np.concatenate(([0], np.cumsum(limits)[:-1])).astype(np.int64),
        speeds=np.array(speeds(rates) if order == LEAST_LOADED else (), dtype=float),
        rival_start=rival_start,
        rivals=rival_types,
    )


def rows(lists: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """Returns where each row starts, with the end of the last one, and the rows one behind the
    other."""
    start = np.zeros(len(lists) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in lists], out=start[1:])
    return start, np.array([value for row in lists for value in row], dtype=np.int64)


def sharing_of(graph: Graph) -> Sharing:
    """Returns the table of balanced fair rates (Comte, section II-B).

    Raises InputError where one group has too many states for a table.
    """
    groups = _groups(graph)
    count = len(graph.limits)
    column, stride, group = (np.zeros(count, dtype=np.int64) for _ in range(3))
    tables: list[Floats] = []
    for g, classes in enumerate(groups):
        places = 1
        for c, i in enumerate(classes):
            group[i], column[i], stride[i] = g, c, places
            places *= int(graph.limits[i]) + 1
            if places * len(classes) > STATES_MAX:
                expected = (
                    f"expected at most {STATES_MAX} rates to table where classes share servers: "
                    "give fewer tokens, or take the discipline fcfs"
                )
                raise InputError("pool", "classes", expected)
        tables.append(_rates(graph, np.array(classes, dtype=np.int64), places))
    member_start, members = rows(groups)
    return Sharing(
        rates=np.concatenate(tables),
        start=np.concatenate(([0], np.cumsum([table.size for table in tables])[:-1])).astype(
            np.int64
        ),
        width=np.array([len(classes) for classes in groups], dtype=np.int64),
        group=group,
        column=column,
        stride=stride,
        member_start=member_start,
        members=members,
    )


def _groups(graph: Graph) -> list[list[int]]:
    """The classes, put together where they share servers, directly or through others."""
    group = list(range(len(graph.limits)))
    for s in range(len(graph.server_rates)):
        sharing = graph.server_classes[graph.server_start[s] : graph.server_start[s + 1]]
        joined = {group[i] for i in sharing}
        group = [min(joined) if g in joined else g for g in group]
    return [[i for i, g in enumerate(group) if g == chosen] for chosen in sorted(set(group))]


def _rates(graph: Graph, classes: Ints, places: int) -> Floats:
    """One group's rates, by place and class, flat."""
    capacity = np.zeros(2 ** len(classes))
    masks = np.arange(len(capacity))
    column = {int(i): c for c, i in enumerate(classes)}
    for s, rate in enumerate(graph.server_rates):
        served = graph.server_classes[graph.server_start[s] : graph.server_start[s + 1]]
        mask = sum(1 << column[int(i)] for i in served if int(i) in column)
        capacity[(masks & mask) != 0] += rate
    rates = np.zeros((places, len(classes)))
    limits = graph.limits[classes]
    stride = np.concatenate(([1], np.cumprod(limits + 1)[:-1]))
    try:
        fill_balanced_rates(limits, stride, capacity, rates)
    except ZeroDivisionError:
        rates[:] = math.nan
    if not np.isfinite(rates).all():
        expected = "expected rates of one server at most 1e100 times those of another"
        raise InputError("pool", "servers", expected)
    return rates.ravel()


@kernel
def fill_balanced_rates(limits: Ints, stride: Ints, capacity: Floats, rates: Any) -> None:
    """phi_i(x) for all x of a group, by (1) and (2): phi_i(x) = mu(I(x)) w_i / sum of the w_k with
    w_i = Phi(x - e_i).

    Phi itself would run out of a float's range, so it is left out: only ratios of the w matter, and
    Phi(x - e_i) / Phi(x - e_j) = phi_i(x - e_j) / phi_j(x - e_i) from the states before x.
    capacity[m] is mu of the set of classes whose bits are set in m; rates is written, (places, N).
    """
    count = len(limits)
    for place in range(1, rates.shape[0]):
        mask = 0
        j = -1
        for i in range(count):
            if place // stride[i] % (limits[i] + 1) > 0:
                mask |= 1 << i
                j = i if j < 0 else j
        total = 0.0
        for i in range(count):
            if mask >> i & 1:
                weight = 1.0
                if i != j:
                    weight = rates[place - stride[j], i] / rates[place - stride[i], j]
                rates[place, i] = weight
                total += weight
        for i in range(count):
            rates[place, i] *= capacity[mask] / total
