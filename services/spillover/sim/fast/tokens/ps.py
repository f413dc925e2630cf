"""The token simulation with processor sharing: every class shares its rate evenly over its jobs.

A class's rate depends on how many jobs each class has, by balanced fairness; where a class has its
servers to itself, it is their rate (Comte, section II-B). Kernels only; sizes may have any law.

In each class runs a clock of work: it advances by the work that each of its jobs has received. A
job is done when the clock has advanced by its size, so that its end on that clock is fixed when it
enters, whatever happens to the rate.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from spillover.policy.tokens import BLOCKED
from spillover.sim.fast.compile import inlined, kernel
from spillover.sim.fast.tokens.jobs import (
    ARRIVAL,
    NOW,
    Jobs,
    Setting,
    class_for,
    enter,
    leave,
    settle_idle,
    size_of,
    soonest,
    type_of,
)
from spillover.sim.fast.tokens.layout import Floats, Graph, Ints, Sharing


class Shared(NamedTuple):
    """Jobs in service, by class; `ends` by class and job, each class's as a heap."""

    held: Ints
    ends: Floats
    work: Floats
    """The class's clock of work, as it stood at `settled_s`."""
    settled_s: Floats
    rate: Floats
    """The rate of each job."""
    due_s: Floats
    """When the first job of the class ends if nothing happens before."""
    place: Ints
    """The place of each group of `Sharing`."""


def nobody_served(graph: Graph, sharing: Sharing) -> Shared:
    """Returns an empty system."""
    classes = len(graph.limits)
    return Shared(
        held=np.zeros(classes, dtype=np.int64),
        ends=np.zeros(int(graph.limits.sum())),
        work=np.zeros(classes),
        settled_s=np.zeros(classes),
        rate=np.zeros(classes),
        due_s=np.full(classes, math.inf),
        place=np.zeros(len(sharing.width), dtype=np.int64),
    )


@inlined
def settle(sharing: Sharing, shared: Shared, group: int, now: float) -> None:
    """Bring a group's clocks of work up to now."""
    for m in range(sharing.member_start[group], sharing.member_start[group + 1]):
        i = sharing.members[m]
        shared.work[i] += shared.rate[i] * (now - shared.settled_s[i])
        shared.settled_s[i] = now


@inlined
def share_anew(graph: Graph, sharing: Sharing, shared: Shared, group: int, now: float) -> None:
    """Give a group the rates of its new state; its clocks are up to now."""
    row = sharing.start[group] + shared.place[group] * sharing.width[group]
    for m in range(sharing.member_start[group], sharing.member_start[group + 1]):
        i = sharing.members[m]
        if shared.held[i] == 0:
            shared.rate[i] = 0.0
            shared.work[i] = 0.0  # nobody is left who counts from it: keep it small, so exact
            shared.due_s[i] = math.inf
        else:
            shared.rate[i] = sharing.rates[row + sharing.column[i]] / shared.held[i]
            left = max(shared.ends[graph.first[i]] - shared.work[i], 0.0)
            shared.due_s[i] = now + left / shared.rate[i]


@inlined
def start_job(graph: Graph, sharing: Sharing, shared: Shared, i: int, size: float) -> None:
    """One job more in class i, whose clock is up to now."""
    end = shared.work[i] + size
    ends, root, place = shared.ends, graph.first[i], shared.held[i]
    while place > 0 and ends[root + ((place - 1) >> 1)] > end:
        ends[root + place] = ends[root + ((place - 1) >> 1)]
        place = (place - 1) >> 1
    ends[root + place] = end
    shared.held[i] += 1
    shared.place[sharing.group[i]] += sharing.stride[i]


@inlined
def end_job(graph: Graph, sharing: Sharing, shared: Shared, i: int) -> None:
    """The job of class i that ends first leaves; the last of the heap sinks from its place."""
    ends, root, left = shared.ends, graph.first[i], shared.held[i] - 1
    sinking = ends[root + left]
    place = 0
    while 2 * place + 1 < left:
        child = 2 * place + 1
        if child + 1 < left and ends[root + child + 1] < ends[root + child]:
            child += 1
        if sinking <= ends[root + child]:
            break
        ends[root + place] = ends[root + child]
        place = child
    ends[root + place] = sinking
    shared.held[i] = left
    shared.place[sharing.group[i]] -= sharing.stride[i]


@kernel
def advance_ps(
    setting: Setting, sharing: Sharing, jobs: Jobs, shared: Shared, arrivals: int
) -> None:
    """Let that many jobs arrive, and what happens meanwhile happen."""
    graph, laws, draws = setting.graph, setting.laws, setting.draws
    now, arrival = jobs.clock[NOW], jobs.clock[ARRIVAL]
    handled = 0
    while handled < arrivals:
        i = soonest(shared.due_s)
        if shared.due_s[i] < arrival:
            now = shared.due_s[i]
            group = sharing.group[i]
            settle(sharing, shared, group, now)
            end_job(graph, sharing, shared, i)
            leave(graph, jobs, i, now)
            share_anew(graph, sharing, shared, group, now)
            continue
        now = arrival
        arrival = now + draws.gaps.standard_exponential() / graph.arrival_rate
        handled += 1
        k = type_of(graph, draws)
        i = class_for(setting, jobs, k)
        size = size_of(laws, k, i, draws)
        jobs.arrived[k] += 1
        if i == BLOCKED:
            jobs.blocked[k] += 1
            continue
        group = sharing.group[i]
        settle(sharing, shared, group, now)
        start_job(graph, sharing, shared, i, size)
        enter(graph, jobs, i, now)
        share_anew(graph, sharing, shared, group, now)
    settle_idle(jobs, now)
    jobs.clock[NOW], jobs.clock[ARRIVAL] = now, arrival
