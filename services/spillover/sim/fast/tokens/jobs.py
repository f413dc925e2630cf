"""The common part of both disciplines of the token simulation: jobs arrive, take a token and leave.
The decision itself is in `policy.tokens`; `ps` and `fcfs` serve jobs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spillover.policy.tokens import (
    BLOCKED,
    NONE,
    assigned_at_random,
    fill,
    give_back,
    load_rank,
    longest_available,
    seize,
)
from spillover.sim.engine.world import stream
from spillover.sim.fast.compile import inlined
from spillover.sim.fast.tokens.layout import Floats, Graph, Ints

NOW, ARRIVAL = 0, 1
RELEASES, ENTRIES = 0, 1


class Laws(NamedTuple):
    """Laws of job sizes, all of mean 1, by type or by class: with probability `long_share` a job
    is exponential of mean `long_mean`, else of mean `short_mean`."""

    fixed: bool
    """Every job has size 1; the mixtures are not used."""
    mixed: bool
    """False: every job is exponential of mean 1; the mixtures are not used."""
    by_class: bool
    long_share: Floats
    long_mean: Floats
    short_mean: Floats


class Draws(NamedTuple):
    """One random stream for each purpose, so that two policies meet the same arrivals and sizes.

    In the kernels and under CPython a generator gives the same numbers.
    """

    gaps: np.random.Generator
    types: np.random.Generator
    sizes: np.random.Generator
    branches: np.random.Generator
    choices: np.random.Generator
    quanta: np.random.Generator


class Setting(NamedTuple):
    """The kernel's parameters of the jobs to come."""

    graph: Graph
    laws: Laws
    shares: Floats
    """Assignment probabilities, in the order of `graph.type_classes`; empty: by tokens."""
    draws: Draws


class Jobs(NamedTuple):
    """The state that changes as jobs come and go; see `policy.tokens` for the bucket's arrays."""

    clock: Floats
    """NOW and the next ARRIVAL, in seconds."""
    counters: Ints
    """Tokens put into the bucket (RELEASES), jobs put into the queue (ENTRIES)."""
    numbers: Ints
    heads: Ints
    available: Ints
    oldest: Ints
    free: Ints
    """The number of tokens that each type could take; as `ranks`, only where the order is by
    load."""
    ranks: Floats
    """The ranks of classes, in place of `oldest`."""
    arrived: Ints
    """The number of jobs that came, by type, as is `blocked`."""
    blocked: Ints
    compatible: Ints
    """Jobs in the system that a server can work on, by server: it is idle without any."""
    idle_s: Floats
    idle_from_s: Floats


def draws_of(seed: int) -> Draws:
    """Returns the streams of a seed."""
    names = (f"tokens/{name}" for name in Draws._fields)
    bits = (np.random.PCG64(stream(seed, name).getrandbits(128)) for name in names)
    return Draws(*(np.random.Generator(each) for each in bits))


def no_jobs(graph: Graph, draws: Draws) -> Jobs:
    """Returns an empty system, all tokens in the bucket, and the first arrival drawn."""
    tokens, classes = int(graph.limits.sum()), len(graph.limits)
    servers, types = len(graph.server_rates), len(graph.type_limits)
    jobs = Jobs(
        clock=np.array([0.0, draws.gaps.standard_exponential() / graph.arrival_rate]),
        counters=np.zeros(2, dtype=np.int64),
        numbers=np.zeros(tokens, dtype=np.int64),
        heads=np.zeros(classes, dtype=np.int64),
        available=np.zeros(classes, dtype=np.int64),
        oldest=np.zeros(classes, dtype=np.int64),
        free=np.zeros(types, dtype=np.int64),
        ranks=np.zeros(classes),
        arrived=np.zeros(types, dtype=np.int64),
        blocked=np.zeros(types, dtype=np.int64),
        compatible=np.zeros(servers, dtype=np.int64),
        idle_s=np.zeros(servers),
        idle_from_s=np.zeros(servers),
    )
    jobs.counters[RELEASES] = fill(
        graph.limits, graph.first, jobs.numbers, jobs.heads, jobs.available, jobs.oldest
    )
    for k in range(types):
        joined = graph.type_classes[graph.type_start[k] : graph.type_start[k + 1]]
        jobs.free[k] = graph.limits[joined].sum()
    if len(graph.speeds) > 0:
        for i in range(classes):
            start, stop = graph.rival_start[i], graph.rival_start[i + 1]
            jobs.ranks[i] = load_rank(0, graph.speeds[i], graph.rivals, start, stop, jobs.free)
    return jobs


@inlined
def weigh(graph: Graph, jobs: Jobs, i: int, more: int) -> None:
    """Note that so many more tokens of class i are available than before: its rank changes."""
    start, stop = graph.rival_start[i], graph.rival_start[i + 1]
    for place in range(start, stop):
        jobs.free[graph.rivals[place]] += more
    jobs.ranks[i] = NONE
    if jobs.available[i] > 0:
        held = graph.limits[i] - jobs.available[i]
        jobs.ranks[i] = load_rank(held, graph.speeds[i], graph.rivals, start, stop, jobs.free)


@inlined
def type_of(graph: Graph, draws: Draws) -> int:
    """Returns the type of the next arrival."""
    if len(graph.type_limits) == 1:
        return 0
    draw = draws.types.random()
    k = 0
    while k + 1 < len(graph.type_limits) and draw >= graph.type_limits[k]:
        k += 1
    return k


@inlined
def class_for(setting: Setting, jobs: Jobs, k: int) -> int:
    """Returns the class that a job of type k joins, BLOCKED if none; at random where there are
    shares."""
    classes = setting.graph.type_classes
    start, stop = setting.graph.type_start[k], setting.graph.type_start[k + 1]
    if len(setting.graph.speeds) > 0:
        return longest_available(classes, start, stop, jobs.ranks)
    if len(setting.shares) == 0:
        return longest_available(classes, start, stop, jobs.oldest)
    draw = setting.draws.choices.random()
    i = assigned_at_random(classes, setting.shares, start, stop, draw)
    return i if jobs.available[i] > 0 else BLOCKED


@inlined
def size_of(laws: Laws, k: int, i: int, draws: Draws) -> float:
    """Returns the size of a job of type k and class i; drawn for blocked jobs too, to keep in
    step."""
    if laws.fixed:
        return 1.0
    size = draws.sizes.standard_exponential()
    if laws.mixed:
        law = max(i, 0) if laws.by_class else k
        if draws.branches.random() < laws.long_share[law]:
            size *= laws.long_mean[law]
        else:
            size *= laws.short_mean[law]
    return size


@inlined
def enter(graph: Graph, jobs: Jobs, i: int, now: float) -> None:
    """A job takes a token of class i."""
    seize(
        i, graph.limits, graph.first, jobs.numbers, jobs.heads, jobs.available, jobs.oldest
    )  # fmt: skip
    if len(graph.speeds) > 0:
        weigh(graph, jobs, i, -1)
    for place in range(graph.class_start[i], graph.class_start[i + 1]):
        s = graph.class_servers[place]
        if jobs.compatible[s] == 0:
            jobs.idle_s[s] += now - jobs.idle_from_s[s]
        jobs.compatible[s] += 1


@inlined
def leave(graph: Graph, jobs: Jobs, i: int, now: float) -> None:
    """A job of class i is done and puts its token back."""
    number = jobs.counters[RELEASES]
    jobs.counters[RELEASES] += 1
    give_back(
        i, number, graph.limits, graph.first, jobs.numbers, jobs.heads, jobs.available, jobs.oldest
    )
    if len(graph.speeds) > 0:
        weigh(graph, jobs, i, 1)
    for place in range(graph.class_start[i], graph.class_start[i + 1]):
        s = graph.class_servers[place]
        jobs.compatible[s] -= 1
        if jobs.compatible[s] == 0:
            jobs.idle_from_s[s] = now


@inlined
def settle_idle(jobs: Jobs, now: float) -> None:
    """Count idle times up to now."""
    for s in range(len(jobs.compatible)):
        if jobs.compatible[s] == 0:
            jobs.idle_s[s] += now - jobs.idle_from_s[s]
            jobs.idle_from_s[s] = now


@inlined
def soonest(due: Floats) -> int:
    """Returns the class with the earliest end of service."""
    chosen, first = 0, due[0]
    for i in range(1, len(due)):
        if due[i] < first:
            chosen, first = i, due[i]
    return chosen
