"""The kernel of the probing simulation: Johnson's pseudo-code (section 2), event by event.

Every producer and every consumer has at most one event to come: the object in production; the end
of consumption, a probe or a reply under way. A parked consumer and a blocked producer have none.
What is decided is in `policy/queue`. Message, production and consumption times are exponential;
the time d to process a message is 0, since neither the model nor an experiment gives it a value.

Batches, intervals and who probes whom are made in `spillover.sim.queue.compiled`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spillover.policy.queue import HOP, SERVE, meet, pick_producer, pick_unvisited
from spillover.sim.fast.compile import compiled, inlined, inner

CONSUMING, PROBING, RECEIVING = 0, 1, 2
NOBODY = -1
EXPONENTIAL = -1.0
"""Stands in place of a spread: production times are exponential."""

# Sums over one batch, in the order of `Net.sums`.
WAITS, HOPS, PROBES, EMPTY, TIME, PRODUCING, CONSUMED = range(7)
SUMS = 7
"""WAITS and HOPS are of the requests that got their object in the batch; PROBES and EMPTY of the
probes that arrived in it; PRODUCING is time by production rate, CONSUMED by consumers."""


class Net(NamedTuple):
    """All that changes, and who may probe whom. Producers are 0..N-1; N + i is consumer i.

    times, owners     heap of events, (time, owner) each; the length is counts[0]
    counts            events in the heap, consumers now consuming
    clock             now; rate of all producers that are not blocked
    rates             of production, by producer
    buffered          objects, by producer
    first, last       parked consumers by producer, a list linked by `behind`; NOBODY ends it
    phase, hops       by consumer; `hops` of the request under way
    target, asked_at  by consumer: the producer that its probe is on its way to; request's begin
    choices, reached  rows of producers and of running sums of their access probabilities
    row_of            by consumer: its row
    visited           by consumer and place in its row; empty where revisits are allowed
    sums              over the batch, see WAITS and the rest
    """

    times: NDArray[np.float64]
    owners: NDArray[np.int64]
    counts: NDArray[np.int64]
    clock: NDArray[np.float64]
    rates: NDArray[np.float64]
    buffered: NDArray[np.int64]
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    behind: NDArray[np.int64]
    phase: NDArray[np.int64]
    hops: NDArray[np.int64]
    target: NDArray[np.int64]
    asked_at: NDArray[np.float64]
    choices: NDArray[np.int64]
    reached: NDArray[np.float64]
    row_of: NDArray[np.int64]
    visited: NDArray[np.bool_]
    sums: NDArray[np.float64]


class Law(NamedTuple):
    """The parameters that do not change."""

    consumption_time: float
    message_time: float
    buffers: int
    max_hops: int
    spread: float
    """Production times are uniform within mean (1 +- spread), or exponential: EXPONENTIAL."""


def new_net(
    rates: Sequence[float],
    consumers: int,
    rows: Sequence[Sequence[tuple[int, float]]],
    *,
    avoid_visited: bool,
) -> Net:
    """Nothing happened yet. `rows`: (producer, access probability) for all consumers alike, or one
    row for each of them, all of the same length."""
    producers = len(rates)
    width = len(rows[0])
    return Net(
        times=np.zeros(producers + consumers),
        owners=np.zeros(producers + consumers, dtype=np.int64),
        counts=np.zeros(2, dtype=np.int64),
        clock=np.zeros(2),
        rates=np.array(rates, dtype=np.float64),
        buffered=np.zeros(producers, dtype=np.int64),
        first=np.full(producers, NOBODY, dtype=np.int64),
        last=np.full(producers, NOBODY, dtype=np.int64),
        behind=np.full(consumers, NOBODY, dtype=np.int64),
        phase=np.full(consumers, PROBING, dtype=np.int64),
        hops=np.zeros(consumers, dtype=np.int64),
        target=np.zeros(consumers, dtype=np.int64),
        asked_at=np.zeros(consumers),
        choices=np.array([[j for j, _ in row] for row in rows], dtype=np.int64),
        reached=np.cumsum(np.array([[p for _, p in row] for row in rows]), axis=1),
        row_of=np.arange(consumers, dtype=np.int64) % len(rows),
        visited=np.zeros((consumers if avoid_visited else 0, width), dtype=np.bool_),
        sums=np.zeros(SUMS),
    )


@inlined
def _exponential(mean: float) -> float:
    return -math.log(1.0 - np.random.random()) * mean  # noqa: NPY002


@inlined
def _production_time(rate: float, spread: float) -> float:
    if spread == EXPONENTIAL:
        return _exponential(1.0 / rate)
    return (1.0 + spread * (2.0 * np.random.random() - 1.0)) / rate  # noqa: NPY002


@inner
def _push(net: Net, time: float, owner: int) -> None:
    """Put an event into the heap; at the same time, the lower owner comes first."""
    times, owners = net.times, net.owners
    place = net.counts[0]
    net.counts[0] += 1
    while place > 0:
        above = (place - 1) // 2
        if times[above] < time or (times[above] == time and owners[above] < owner):
            break
        times[place] = times[above]
        owners[place] = owners[above]
        place = above
    times[place] = time
    owners[place] = owner


@inner
def _pop(net: Net) -> int:
    """Take the next event out of the heap: its owner. Its time was times[0]."""
    times, owners = net.times, net.owners
    owner = owners[0]
    net.counts[0] -= 1
    size = net.counts[0]
    time, moved = times[size], owners[size]
    place = 0
    while True:
        below = 2 * place + 1
        if below >= size:
            break
        right = below + 1
        if right < size and (
            times[right] < times[below]
            or (times[right] == times[below] and owners[right] < owners[below])
        ):
            below = right
        if time < times[below] or (time == times[below] and moved < owners[below]):
            break
        times[place] = times[below]
        owners[place] = owners[below]
        place = below
    times[place] = time
    owners[place] = moved
    return int(owner)


@inner
def _send_probe(net: Net, law: Law, i: int) -> None:
    """Send a probe to a producer that is drawn by consumer i's access probabilities."""
    row = net.row_of[i]
    draw = np.random.random()  # noqa: NPY002
    if net.visited.shape[0] > 0:
        place = pick_unvisited(net.reached[row], net.visited[i], draw)
        net.visited[i, place] = True
    else:
        place = pick_producer(net.reached[row], draw)
    net.target[i] = net.choices[row, place]
    net.hops[i] += 1
    net.phase[i] = PROBING
    _push(net, net.clock[0] + _exponential(law.message_time), len(net.rates) + i)


@inner
def _request(net: Net, law: Law, i: int) -> None:
    """Consumer i asks for an object."""
    net.asked_at[i] = net.clock[0]
    net.hops[i] = 0
    if net.visited.shape[0] > 0:
        net.visited[i, :] = False
    _send_probe(net, law, i)


@inner
def _unblock(net: Net, law: Law, j: int) -> None:
    """The production thread of producer j begins its next object."""
    net.clock[1] += net.rates[j]
    _push(net, net.clock[0] + _production_time(net.rates[j], law.spread), j)


@inner
def _reply(net: Net, law: Law, i: int) -> None:
    """An object sets out for consumer i."""
    net.phase[i] = RECEIVING
    _push(net, net.clock[0] + _exponential(law.message_time), len(net.rates) + i)


@inner
def _on_request(net: Net, law: Law, i: int) -> None:
    """The probe of consumer i arrives at its target."""
    j = net.target[i]
    net.sums[PROBES] += 1.0
    action = meet(net.buffered[j], net.hops[i], law.max_hops)
    if action == SERVE:
        was_full = net.buffered[j] == law.buffers
        net.buffered[j] -= 1
        _reply(net, law, i)
        if was_full:
            _unblock(net, law, j)
        return
    net.sums[EMPTY] += 1.0
    if action == HOP:
        _send_probe(net, law, i)
        return
    net.behind[i] = NOBODY
    if net.first[j] == NOBODY:
        net.first[j] = i
    else:
        net.behind[net.last[j]] = i
    net.last[j] = i


@inner
def _on_object(net: Net, law: Law, j: int) -> None:
    """Producer j has made an object; its production thread is blocked until told otherwise."""
    net.clock[1] -= net.rates[j]
    i = net.first[j]
    if i != NOBODY:
        net.first[j] = net.behind[i]
        _reply(net, law, i)
        _unblock(net, law, j)
        return
    net.buffered[j] += 1
    if net.buffered[j] < law.buffers:
        _unblock(net, law, j)


@compiled
def begin(net: Net, law: Law, seed: int) -> None:
    """All producers produce, all consumers ask."""
    np.random.seed(seed)  # noqa: NPY002
    for j in range(len(net.rates)):
        _unblock(net, law, j)
    for i in range(len(net.phase)):
        _request(net, law, i)


@compiled
def begin_batch(net: Net, seed: int) -> None:
    """Draws and sums from the beginning: what `advance` counts from here on is a batch."""
    np.random.seed(seed)  # noqa: NPY002
    net.sums[:] = 0.0


@compiled
def advance(net: Net, law: Law, objects: int, events: int) -> int:
    """Go on until so many objects have reached their consumers, but for no more than so many
    events. Returns how many objects are still to come. Called again with these, it goes on as if it
    had not stopped."""
    producers = len(net.rates)
    for _ in range(events):
        if objects == 0:
            break
        passed = net.times[0] - net.clock[0]
        net.sums[TIME] += passed
        net.sums[PRODUCING] += passed * net.clock[1]
        net.sums[CONSUMED] += passed * net.counts[1]
        net.clock[0] = net.times[0]
        owner = _pop(net)
        if owner < producers:
            _on_object(net, law, owner)
            continue
        i = owner - producers
        if net.phase[i] == PROBING:
            _on_request(net, law, i)
        elif net.phase[i] == RECEIVING:
            objects -= 1
            net.sums[WAITS] += net.clock[0] - net.asked_at[i]
            net.sums[HOPS] += net.hops[i]
            net.phase[i] = CONSUMING
            net.counts[1] += 1
            _push(net, net.clock[0] + _exponential(law.consumption_time), owner)
        else:
            net.counts[1] -= 1
            _request(net, law, i)
    return objects
