"""The whole federation in one compiled function: what happens, in order of time.

The events of `sim.overflow.federation` and the handlers of `core.overflow.machine`, without faults:
see `run` for what is modeled. Each handler says which of the core's it stands for.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from spillover.policy.overflow.base import KEEP
from spillover.sim.fast.compile import inlined, inner, kernel
from spillover.sim.fast.overflow.draws import draw
from spillover.sim.fast.overflow.heap import pop, push
from spillover.sim.fast.overflow.loads import note_send, tell_with
from spillover.sim.fast.overflow.pulling import (
    ask_for_work,
    better_off_there,
    came,
    have_nothing,
    in_time_at,
    next_to_look_at,
    say_nothing,
    wait_if_pulled_s,
    wait_if_sent_s,
)
from spillover.sim.fast.overflow.queue import (
    ANSWERED,
    EXPIRED,
    FORWARDED,
    OVERDUE,
    QUEUED,
    REFUSED,
    RETURNING,
    RUNNING,
    TURNED_AWAY,
    answer,
    end,
    enqueue,
    enqueue_first,
    finish,
    free_server,
    give_back,
    note_came,
    note_look,
    serve_queue,
    start,
    take_slot,
    unqueue,
    where,
)
from spillover.sim.fast.overflow.reporting import hear, hear_first, hear_with, publish
from spillover.sim.fast.overflow.rules import FREE, QUEUE_FULL, TOO_LATE, choose, objection
from spillover.sim.fast.overflow.state import (
    NEVER,
    NOBODY,
    TRIED_MASK,
    TRIED_SHIFT,
    ByLoad,
    KernelState,
)

GOES_ON = 0
NEEDS_ROOM = 1
OVER = 2


@inlined
def note_pulled(by_load: ByLoad | None, slot: int, depth: int, pulled: bool) -> None:  # noqa: FBT001
    """Returns whether the cluster at this depth has asked for it."""
    if by_load is None:
        return
    by_load.pulled[slot, depth] = pulled


@inlined
def forward(s: KernelState, slot: int, x: int, link: int, pulled: bool) -> None:  # noqa: FBT001
    """Hand it to the neighbor at the far end of this link."""
    run, under = s.run[0], s.under
    one, cluster = under.slots[slot], s.clusters[x]
    under.legs[slot, one.depth] = link
    under.path[slot, one.depth + 1] = s.links[link].peer
    one.depth += 1
    one.away = one.depth
    one.state = FORWARDED
    one.since_s = run.now_s
    cluster.away += 1
    note_pulled(s.by_load, slot, one.depth, pulled)
    tell_with(s, s.by_load, slot, x)
    push(s, run.now_s + s.table.delays_s[link], slot)


@inlined
def older_there(s: KernelState, by_load: ByLoad | None, link: int) -> int:
    """`first_to_go`: the oldest of own clients' requests that is better off there, or NOBODY."""
    if by_load is None:
        return NOBODY
    return better_off_there(s, by_load, link, wait_if_sent_s(s, by_load, link), own_only=True)


@inner
def hand_on(s: KernelState, slot: int, x: int, problem: int, is_new: bool) -> bool:  # noqa: FBT001
    """Ask the policy, as no server is free, and forward if it says so; in place of a request that
    comes from a client now (`is_new`), which joins the queue, an older one."""
    choice = choose(s, slot, x, problem)
    if choice == KEEP:
        return False
    link = s.clusters[x].links_from + choice
    older = older_there(s, s.by_load, link) if is_new and problem == FREE else NOBODY
    note_send(s, s.by_load, link)
    if older != NOBODY:
        unqueue(s, older, x)
        enqueue(s, slot, x)
        slot = older
    forward(s, slot, x, link, pulled=False)
    return True


@inlined
def bound_reached(s: KernelState, by_load: ByLoad | None, slot: int, x: int) -> bool:
    """Returns whether a neighbor's request that was not asked for finds too many of them."""
    if by_load is None:
        return False
    depth, cluster = s.under.slots[slot].depth, s.clusters[x]
    pulled = by_load.pulled[slot, depth]
    return bool(depth > 0 and not pulled and cluster.waiting_foreign >= cluster.foreign_waiting_max)


@inlined
def problem_at(s: KernelState, slot: int, x: int) -> int:
    """Returns what speaks against joining the queue of cluster x, or FREE."""
    one = s.under.slots[slot]
    if bound_reached(s, s.by_load, slot, x):
        return QUEUE_FULL
    return objection(s.clusters[x], one.depth == 0, one.deadline_s - s.run[0].now_s)


@inlined
def arrive_home(s: KernelState, request: int) -> None:
    """`_arrived` and `_place_new`, from a client."""
    run = s.run[0]
    x: Any = np.int64(s.requests.home[request])
    s.clusters[x].came += 1
    slot = take_slot(s, request, run.now_s + run.deadline_s)
    note_came(s, s.by_load, slot)
    if s.clusters[x].free > 0:
        start(s, slot, x)
        return
    s.under.tried[slot, :] = 0
    problem = problem_at(s, slot, x)
    if not hand_on(s, slot, x, problem, is_new=True):
        if problem == FREE:
            enqueue(s, slot, x)
        else:
            end(s, request, REFUSED, run.now_s)
            give_back(s, slot)


@inlined
def heard_with(s: KernelState, by_load: ByLoad | None, slot: int) -> None:
    """`_heard_load`: a neighbor's request, also one that has expired, has brought its load."""
    if by_load is None:
        return
    under = s.under
    depth = under.slots[slot].depth
    link = s.links[under.legs[slot, depth - 1]].mirror
    hear_with(s, by_load, link, slot)
    came(s, link, by_load.pulled[slot, depth])


@inlined
def arrive_forwarded(s: KernelState, slot: int) -> None:
    """`_arrived` and `_place_new`, from a neighbor."""
    run, under = s.run[0], s.under
    one = under.slots[slot]
    x = where(s, slot)
    heard_with(s, s.by_load, slot)
    note_came(s, s.by_load, slot)
    if one.deadline_s <= run.now_s:
        one.state = OVERDUE
        return
    if s.clusters[x].free > 0:
        under.network_s[slot, one.depth] = 0.0
        start(s, slot, x)
        return
    problem = problem_at(s, slot, x)
    if problem != FREE:
        one.state = TURNED_AWAY
        tell_with(s, s.by_load, slot, x)
        push(s, run.now_s + s.table.delays_s[under.legs[slot, one.depth - 1]], slot)
        return
    under.network_s[slot, one.depth] = 0.0
    under.tried[slot, :] = 0
    if not hand_on(s, slot, x, problem, is_new=False):
        enqueue(s, slot, x)


@inlined
def come_back(s: KernelState, slot: int) -> int:
    """Takes what was away back to the cluster before in the path, and returns that cluster."""
    one = s.under.slots[slot]
    if one.outcome != EXPIRED:
        link: Any = np.int64(s.under.legs[slot, one.depth - 1])
        hear_with(s, s.by_load, link, slot)
    one.depth -= 1
    one.away = one.depth
    x = where(s, slot)
    s.clusters[x].away -= 1
    return x


@inlined
def place_again(s: KernelState, slot: int) -> None:
    """`_forward_refused` and `_place_again`: decide again, without that neighbor."""
    run, under = s.run[0], s.under
    one = under.slots[slot]
    x = come_back(s, slot)
    under.network_s[slot, one.depth] += run.now_s - one.since_s
    y = under.legs[slot, one.depth] - s.clusters[x].links_from
    under.tried[slot, y >> TRIED_SHIFT] |= 1 << (y & TRIED_MASK)
    if one.deadline_s <= run.now_s:
        one.state = OVERDUE
    elif s.clusters[x].free > 0:
        start(s, slot, x)
    elif s.by_load is not None and one.depth == 0 and one.queued_s > 0.0:
        enqueue_first(s, slot, x)
    else:
        problem = problem_at(s, slot, x)
        if not hand_on(s, slot, x, problem, is_new=False):
            if problem == TOO_LATE:
                one.outcome = EXPIRED
                answer(s, slot, run.now_s)
            else:
                enqueue(s, slot, x)


@inner
def give_work(s: KernelState, by_load: ByLoad | None, link: int) -> None:
    """`_work_asked`: hand on the oldest request that is better off with the neighbor."""
    if by_load is None:
        return
    x = s.links[link].owner
    hear(s, by_load, link, by_load.asks[link])
    slot = better_off_there(s, by_load, link, wait_if_pulled_s(s, by_load, link), own_only=False)
    if slot == NOBODY:
        say_nothing(s, by_load, link)
        return
    unqueue(s, slot, x)
    note_send(s, by_load, link)
    forward(s, slot, x, link, pulled=True)


@inner
def report_in_turn(s: KernelState, x: int) -> None:
    """`_woke`, for the periodic report of cluster x, which orders the next."""
    run = s.run[0]
    publish(s, x)
    ask_for_work(s, s.by_load, x)
    push(s, run.now_s + run.period_s, -1 - x)


@inlined
def go_on(s: KernelState, slot: int) -> None:
    """The event that a request under way has waited for."""
    under = s.under
    one = under.slots[slot]
    state = one.state
    if one.expired:
        if state == FORWARDED:
            heard_with(s, s.by_load, slot)
        give_back(s, slot)
    elif state == RUNNING:
        finish(s, slot)
    elif state == FORWARDED:
        arrive_forwarded(s, slot)
    elif state == TURNED_AWAY:
        place_again(s, slot)
    elif state == ANSWERED:
        one.state = RETURNING
        push(s, s.run[0].now_s + s.table.delays_s[under.legs[slot, one.depth - 1]], slot)
    else:
        come_back(s, slot)
        answer(s, slot, s.run[0].now_s)


@inlined
def over_link(s: KernelState, number: int) -> None:
    """Take a message over a link that is no request: `first_heard`, `work_asked`,
    `no_work_there`."""
    links = len(s.links)
    if number < links:
        hear_first(s, number)
    elif number < 2 * links:
        give_work(s, s.by_load, number - links)
    else:
        have_nothing(s, s.by_load, number - 2 * links)


@inlined
def expire(s: KernelState, request: int) -> None:
    """`_woke`, for the deadline of one request: at its home and wherever else it is held."""
    under = s.under
    slot: Any = np.int64(s.requests.slot[request])
    one = under.slots[slot]
    end(s, request, EXPIRED, s.run[0].now_s)
    for depth in range(one.away):
        s.clusters[under.path[slot, depth]].away -= 1
    x = where(s, slot)
    if one.state == QUEUED:
        unqueue(s, slot, x)
        give_back(s, slot)
    elif one.state == OVERDUE:
        give_back(s, slot)
    else:
        # Whatever was to come of it still comes, and finds it expired.
        one.expired = True
        if one.state == RUNNING:
            free_server(s, slot, x)
            serve_queue(s, x)
            ask_for_work(s, s.by_load, x)


@inner
def look_again(s: KernelState, by_load: ByLoad | None) -> None:
    """`_look_again`, of the first whose time has come; else it is found out when that will be."""
    if by_load is None:
        return
    run = s.run[0]
    slot = next_to_look_at(s)
    if slot == NOBODY or s.under.slots[slot].look_s > run.now_s:
        run.look_s = math.inf if slot == NOBODY else s.under.slots[slot].look_s
        return
    note_look(s, by_load, slot)
    x = where(s, slot)
    link = in_time_at(s, by_load, slot, x)
    if link != NOBODY:
        unqueue(s, slot, x)
        note_send(s, by_load, link)
        forward(s, slot, x, link, pulled=False)


@inlined
def look_or_expire(s: KernelState, look_s: float, expiry_s: float) -> None:
    """`_woke`, for what comes first by deadlines."""
    run = s.run[0]
    run.now_made = NEVER
    if look_s <= expiry_s:
        run.now_s = look_s
        look_again(s, s.by_load)
    else:
        run.now_s = expiry_s
        run.next_expiry += 1
        expire(s, run.next_expiry - 1)


@kernel
def begin(s: KernelState) -> None:
    """Order the first report of each cluster, which falls on a random phase
    (`core.overflow.reporting`)."""
    for x in range(len(s.clusters)):
        push(s, draw(s, x) * s.run[0].period_s, -1 - x)


@kernel
def advance(s: KernelState, events: int) -> int:
    """Let at most so many things happen; whether it goes on, needs room for more, or is over."""
    run, requests = s.run[0], s.requests
    count = len(requests.time_s)
    for _ in range(events):
        heap_s = s.under.heap[0].at_s if run.heap_size else math.inf
        arrival_s = requests.time_s[run.next_arrival] if run.next_arrival < count else math.inf
        while run.next_expiry < run.next_arrival and requests.outcome[run.next_expiry]:
            run.next_expiry += 1
        expiry_s = math.inf
        if run.next_expiry < run.next_arrival:
            expiry_s = requests.time_s[run.next_expiry] + run.deadline_s
        if run.ended == count and not heap_s <= run.end_s:
            return OVER
        run.events += 1
        look_s = run.look_s
        if arrival_s <= heap_s and arrival_s <= expiry_s and arrival_s <= look_s:
            if run.slots_free == 0:
                return NEEDS_ROOM
            run.now_s, run.now_made = arrival_s, -1
            run.next_arrival += 1
            arrive_home(s, run.next_arrival - 1)
        elif heap_s <= expiry_s and heap_s <= look_s:
            what = pop(s)
            if what >= 0:
                go_on(s, what)
            elif what >= -len(s.clusters):
                report_in_turn(s, -1 - what)
            else:
                over_link(s, -1 - len(s.clusters) - what)
        else:
            look_or_expire(s, look_s, expiry_s)
    return GOES_ON
