"""Servers, queues and ends of requests in the kernel: the part of `core.overflow.machine` behind a
decision.
"""

from __future__ import annotations

import math

import numpy as np

from spillover.policy.overflow.stranded import next_look_s
from spillover.sim.fast.compile import inlined, inner
from spillover.sim.fast.overflow.heap import push
from spillover.sim.fast.overflow.loads import tell_with
from spillover.sim.fast.overflow.pulling import ask_for_work
from spillover.sim.fast.overflow.rules import learn
from spillover.sim.fast.overflow.state import NOBODY, ByLoad, KernelState

DONE = 1
EXPIRED = 2
REFUSED = 3

# Where a request under way is. All but QUEUED and OVERDUE have exactly one event to come.
QUEUED = 0
RUNNING = 1
FORWARDED = 2
TURNED_AWAY = 3
"""Refused by a neighbor, on its way back to the sender."""
ANSWERED = 4
"""Ended here: the answer is about to leave."""
RETURNING = 5
"""The answer is on its way to the cluster before in the path."""
OVERDUE = 6
"""Met its deadline at this very instant: it expires as soon as all else has happened."""


@inlined
def take_slot(s: KernelState, request: int, deadline_s: float) -> int:
    """Takes a slot for a request that has come to its home, and returns it."""
    run, under = s.run[0], s.under
    run.slots_free -= 1
    slot = np.int64(under.free[run.slots_free])
    one = under.slots[slot]
    one.request = request
    one.deadline_s = deadline_s
    one.expired = False
    one.outcome = 0
    one.depth = 0
    one.away = 0
    one.queued_s = 0.0
    one.work_s = s.requests.work_s[request] if len(s.requests.work_s) else math.nan
    under.path[slot, 0] = s.requests.home[request]
    under.network_s[slot, 0] = 0.0
    s.requests.slot[request] = slot
    return slot  # type: ignore[return-value]


@inlined
def where(s: KernelState, slot: int) -> int:
    """Returns the cluster at the present depth of the path.

    This and slots are widened where they are read: else what is given them is compiled twice.
    """
    return np.int64(s.under.path[slot, s.under.slots[slot].depth])  # type: ignore[return-value]


@inlined
def give_back(s: KernelState, slot: int) -> None:
    """Nothing of this request is under way any more."""
    run = s.run[0]
    s.under.free[run.slots_free] = slot
    run.slots_free += 1


@inlined
def end(s: KernelState, request: int, outcome: int, at_s: float) -> None:
    """The home's client has its answer at `at_s`."""
    run = s.run[0]
    s.requests.outcome[request] = outcome
    run.ended += 1
    run.end_s = max(run.end_s, at_s)


@inlined
def end_done(s: KernelState, slot: int, at_s: float) -> None:
    """The same for a request that was served, with its figures."""
    one = s.under.slots[slot]
    s.requests.system_time_ms[one.request] = one.total_s * 1e3
    s.requests.hops[one.request] = one.hops
    end(s, one.request, DONE, at_s)


@inlined
def start(s: KernelState, slot: int, x: int) -> None:
    """Run it on a free server of cluster x. Of unlike servers behind one queue the fastest."""
    one, cluster = s.under.slots[slot], s.clusters[x]
    service_s = cluster.work_s
    for kind in range(len(s.kind_s)):
        if s.kind_free[kind] > 0:
            s.kind_free[kind] -= 1
            one.kind = kind
            service_s = s.kind_s[kind]
            break
    if math.isnan(one.work_s):
        one.work_s = service_s
    cluster.free -= 1
    cluster.started_s = s.run[0].now_s
    one.state = RUNNING
    push(s, s.run[0].now_s + one.work_s, slot)


@inlined
def free_server(s: KernelState, slot: int, x: int) -> None:
    """Free the server of a request that no longer runs there."""
    s.clusters[x].free += 1
    if len(s.kind_s):
        s.kind_free[s.under.slots[slot].kind] += 1


@inlined
def note_came(s: KernelState, by_load: ByLoad | None, slot: int) -> None:
    """It comes to the cluster at its present depth."""
    if by_load is None:
        return
    by_load.came_s[slot, s.under.slots[slot].depth] = s.run[0].now_s


@inlined
def note_look(s: KernelState, by_load: ByLoad | None, slot: int) -> None:
    """Note when a waiting request is looked at again before its deadline (`Register.accept`)."""
    if by_load is None:
        return
    run, one = s.run[0], s.under.slots[slot]
    one.look_s = next_look_s(by_load.came_s[slot, one.depth], one.deadline_s, run.now_s)
    if one.look_s < one.deadline_s:
        run.look_s = min(run.look_s, one.look_s)


@inlined
def enqueue(s: KernelState, slot: int, x: int) -> None:
    """Join the end of the queue."""
    slots, cluster = s.under.slots, s.clusters[x]
    one = slots[slot]
    one.state = QUEUED
    one.since_s = s.run[0].now_s
    one.next = NOBODY
    one.before = cluster.last
    if cluster.last == NOBODY:
        cluster.first = slot
    else:
        slots[cluster.last].next = slot
    cluster.last = slot
    cluster.waiting += 1
    cluster.waiting_foreign += one.depth > 0
    cluster.longest = max(cluster.longest, cluster.waiting)
    note_look(s, s.by_load, slot)


@inlined
def enqueue_first(s: KernelState, slot: int, x: int) -> None:
    """Join the front of the queue: it has stood there before."""
    slots, cluster = s.under.slots, s.clusters[x]
    one = slots[slot]
    one.state = QUEUED
    one.since_s = s.run[0].now_s
    one.before = NOBODY
    one.next = cluster.first
    if cluster.first == NOBODY:
        cluster.last = slot
    else:
        slots[cluster.first].before = slot
    cluster.first = slot
    cluster.waiting += 1
    cluster.longest = max(cluster.longest, cluster.waiting)
    note_look(s, s.by_load, slot)


@inlined
def unqueue(s: KernelState, slot: int, x: int) -> None:
    """Leave the queue, from any place in it; the time there counts."""
    slots, cluster = s.under.slots, s.clusters[x]
    one = slots[slot]
    if one.before == NOBODY:
        cluster.first = one.next
    else:
        slots[one.before].next = one.next
    if one.next == NOBODY:
        cluster.last = one.before
    else:
        slots[one.next].before = one.before
    one.queued_s += s.run[0].now_s - one.since_s
    cluster.waiting -= 1
    cluster.waiting_foreign -= one.depth > 0


@inner
def serve_queue(s: KernelState, x: int) -> None:
    """Start what waits longest while a server is free."""
    run, cluster = s.run[0], s.clusters[x]
    while cluster.free > 0 and cluster.waiting > 0:
        slot = cluster.first
        unqueue(s, slot, x)
        one = s.under.slots[slot]
        if one.deadline_s <= run.now_s:
            one.state = OVERDUE
        else:
            start(s, slot, x)


@inner
def finish(s: KernelState, slot: int) -> None:
    """A service has ended: answer, learn from it, serve the next, or ask for one."""
    run, under = s.run[0], s.under
    one = under.slots[slot]
    x = where(s, slot)
    cluster = s.clusters[x]
    delivery_s = cluster.delivery_s
    one.hops = one.depth
    one.outcome = DONE
    if run.now_s + delivery_s > one.deadline_s:
        one.outcome = EXPIRED
        delivery_s = 0.0
    network_s = under.network_s[slot, one.depth] + delivery_s
    for back in range(one.depth - 1, -1, -1):
        leg_s = s.table.delays_s[under.legs[slot, back]]
        network_s += under.network_s[slot, back] + leg_s
    one.total_s = one.queued_s + network_s + one.work_s
    service_s = one.work_s
    free_server(s, slot, x)
    answer(s, slot, run.now_s + delivery_s)
    learn(cluster, service_s)
    serve_queue(s, x)
    ask_for_work(s, s.by_load, x)


@inlined
def answer(s: KernelState, slot: int, at_s: float) -> None:
    """The visit at the present depth of the path ends, its answer leaves at `at_s`."""
    one = s.under.slots[slot]
    if one.depth > 0:
        one.state = ANSWERED
        if one.outcome == DONE:
            tell_with(s, s.by_load, slot, where(s, slot))
        push(s, at_s, slot)
        return
    if one.outcome == DONE:
        end_done(s, slot, at_s)
    else:
        end(s, one.request, one.outcome, at_s)
    give_back(s, slot)
