"""The token simulation with sequential first come, first served service on pooled servers.

Comte, section II-C: a server works on one job at a time, the oldest it can serve, and several
servers can work on one job, whose rate is then the sum of theirs. Only the oldest job of a class is
ever in service, since whoever can serve another of the class can serve that one. Which job a server
takes is the same choice as which token a job takes, `policy.tokens.longest_available`.

Interruptions make this nearly insensitive to the law of sizes: a job that has received its quantum
of work goes to the end of the queue as if it came just now, with what is left of its size and with
its token. Quanta are exponential, drawn anew at each turn in front; with exponential sizes such
turns are random routing, which leaves the stationary law exactly as it is. Kernels only.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from spillover.policy.tokens import BLOCKED, NONE, longest_available
from spillover.sim.fast.compile import inlined, kernel
from spillover.sim.fast.tokens.jobs import (
    ARRIVAL,
    ENTRIES,
    NOW,
    Draws,
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
from spillover.sim.fast.tokens.layout import Floats, Graph, Ints

NOBODY = -1


class Queue(NamedTuple):
    """One queue of jobs, kept as a ring for each class with the places of the bucket's rings."""

    left: Floats
    """Work left of each job, by place; of those in front, as at the beginning of the turn."""
    entries: Ints
    """When each job entered the queue last, as a number, by place."""
    heads: Ints
    held: Ints
    oldest: Ints
    """The entry of each class's first job, NONE without any."""
    turn: Floats
    """Work that the first job's turn was to take, and `rest` what is left of that."""
    rest: Floats
    settled_s: Floats
    rate: Floats
    """The rate of each class's first job."""
    due_s: Floats
    owner: Ints
    """The class whose first job a server works on, or NOBODY."""


def nobody_waiting(graph: Graph) -> Queue:
    """Returns an empty system."""
    tokens, classes = int(graph.limits.sum()), len(graph.limits)
    return Queue(
        left=np.zeros(tokens),
        entries=np.zeros(tokens, dtype=np.int64),
        heads=np.zeros(classes, dtype=np.int64),
        held=np.zeros(classes, dtype=np.int64),
        oldest=np.full(classes, NONE, dtype=np.int64),
        turn=np.zeros(classes),
        rest=np.zeros(classes),
        settled_s=np.zeros(classes),
        rate=np.zeros(classes),
        due_s=np.full(classes, math.inf),
        owner=np.full(len(graph.server_rates), NOBODY, dtype=np.int64),
    )


@inlined
def settle(queue: Queue, i: int, now: float) -> None:
    """Count the work done on class i's first job up to now."""
    queue.rest[i] -= queue.rate[i] * (now - queue.settled_s[i])
    queue.settled_s[i] = now


@inlined
def set_rate(graph: Graph, queue: Queue, i: int, now: float) -> None:
    """Add up the servers that work on class i's first job; its work is counted up to now."""
    rate = 0.0
    for place in range(graph.class_start[i], graph.class_start[i + 1]):
        s = graph.class_servers[place]
        if queue.owner[s] == i:
            rate += graph.server_rates[s]
    queue.rate[i] = rate
    queue.due_s[i] = now + max(queue.rest[i], 0.0) / rate if rate > 0.0 else math.inf


@inlined
def append(graph: Graph, queue: Queue, jobs: Jobs, i: int, left: float) -> None:
    """A job of class i, new or interrupted, enters at the end of the queue."""
    place = queue.heads[i] + queue.held[i]
    if place >= graph.limits[i]:
        place -= graph.limits[i]
    queue.left[graph.first[i] + place] = left
    queue.entries[graph.first[i] + place] = jobs.counters[ENTRIES]
    jobs.counters[ENTRIES] += 1
    queue.held[i] += 1


@inlined
def begin_turn(graph: Graph, queue: Queue, draws: Draws, quantum: float, i: int) -> None:
    """Class i has another first job, or none; the work of its turn is at most a quantum."""
    if queue.held[i] == 0:
        queue.oldest[i] = NONE
        queue.turn[i] = 0.0
    else:
        head = graph.first[i] + queue.heads[i]
        queue.oldest[i] = queue.entries[head]
        queue.turn[i] = queue.left[head]
        if quantum < math.inf:
            queue.turn[i] = min(queue.left[head], quantum * draws.quanta.standard_exponential())
    queue.rest[i] = queue.turn[i]


@inlined
def reassign(graph: Graph, queue: Queue, i: int, now: float) -> None:
    """Class i's first job has changed: its servers, and idle ones, take their oldest job."""
    queue.settled_s[i] = now
    for place in range(graph.class_start[i], graph.class_start[i + 1]):
        s = graph.class_servers[place]
        if queue.owner[s] == i or queue.owner[s] == NOBODY:
            start, stop = graph.server_start[s], graph.server_start[s + 1]
            chosen = longest_available(graph.server_classes, start, stop, queue.oldest)
            queue.owner[s] = chosen
            if chosen > NOBODY and chosen != i:
                settle(queue, chosen, now)
                set_rate(graph, queue, chosen, now)
    set_rate(graph, queue, i, now)


@inlined
def end_turn(graph: Graph, queue: Queue, jobs: Jobs, i: int) -> bool:
    """Class i's first job leaves the front; True if it is done, else it is in the queue again."""
    head = graph.first[i] + queue.heads[i]
    left = queue.left[head] - queue.turn[i]
    queue.heads[i] = queue.heads[i] + 1 if queue.heads[i] + 1 < graph.limits[i] else 0
    queue.held[i] -= 1
    if left == 0.0:
        return True
    append(graph, queue, jobs, i, left)
    return False


@kernel
def advance_fcfs(setting: Setting, quantum: float, jobs: Jobs, queue: Queue, arrivals: int) -> None:
    """Let that many jobs arrive, and what happens meanwhile happen.

    `quantum`: mean work between interruptions, in mean job sizes; infinite: none.
    """
    graph, laws, draws = setting.graph, setting.laws, setting.draws
    now, arrival = jobs.clock[NOW], jobs.clock[ARRIVAL]
    handled = 0
    while handled < arrivals:
        i = soonest(queue.due_s)
        if queue.due_s[i] < arrival:
            now = queue.due_s[i]
            if end_turn(graph, queue, jobs, i):
                leave(graph, jobs, i, now)
            begin_turn(graph, queue, draws, quantum, i)
            reassign(graph, queue, i, now)
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
        append(graph, queue, jobs, i, size)
        enter(graph, jobs, i, now)
        if queue.held[i] == 1:
            begin_turn(graph, queue, draws, quantum, i)
            reassign(graph, queue, i, now)
    settle_idle(jobs, now)
    jobs.clock[NOW], jobs.clock[ARRIVAL] = now, arrival
