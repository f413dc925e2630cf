"""Asking neighbors for work that waits, in the kernel: `core.overflow.pulling`, and what the
machine makes of it but the forward.

Exactness: an answer always comes, two ways after the question, which is sooner than the core gives
it up. So at most one question and one answer are under way over each link. All that is given
`by_load` does nothing where it is None (`state.KernelState`).
"""

from __future__ import annotations

import math
from typing import Any

from spillover.core.overflow.asking import LOOKS_MAX
from spillover.policy.overflow.adaptive import DEPARTURE_S_MIN, known_age_s, wait_after_s
from spillover.policy.overflow.pull import AHEAD_MAX, ahead, first_place, pause_s, worth_s
from spillover.policy.overflow.stranded import seen_departure_s
from spillover.sim.fast.compile import inlined, inner
from spillover.sim.fast.overflow.draws import draw
from spillover.sim.fast.overflow.heap import push
from spillover.sim.fast.overflow.loads import accepts, departure_s, tell
from spillover.sim.fast.overflow.reporting import hear, hears_us, refresh
from spillover.sim.fast.overflow.state import NOBODY, TRIED_MASK, TRIED_SHIFT, ByLoad, KernelState


@inlined
def work_asked(s: KernelState, link: int) -> int:
    """Returns the number of the event that a question has come over this link."""
    return -1 - len(s.clusters) - len(s.links) - link


@inlined
def no_work_there(s: KernelState, link: int) -> int:
    """Returns the number of the event that a question was answered: there is nothing."""
    return work_asked(s, link) - len(s.links)


@inner
def ask_for_work(s: KernelState, by_load: ByLoad | None, x: int) -> None:
    """`asking.questions`: for servers of cluster x that are idle, or will be when an answer
    comes, as far as nobody was asked for them."""
    if by_load is None:
        return
    cluster = s.clusters[x]
    if s.run[0].max_hops == 0 or not accepts(cluster):
        return
    if _missing(cluster) + AHEAD_MAX * cluster.servers <= 0:
        return
    for link in range(cluster.links_from, cluster.links_to):
        refresh(s, link)
    while True:
        link = _whom_to_ask(s, by_load, x)
        if link == NOBODY:
            return
        s.links[link].asked = True
        cluster.asking += 1
        mirror = s.links[link].mirror
        tell(s, by_load, x, by_load.asks[mirror])
        push(s, s.run[0].now_s + s.table.delays_s[link], work_asked(s, mirror))


@inlined
def _missing(cluster: Any) -> int:
    """Returns how many idle servers nobody was asked for; below 0, so many wait, or come."""
    return cluster.free - cluster.waiting - cluster.asking  # type: ignore[no-any-return]


@inlined
def _whom_to_ask(s: KernelState, by_load: ByLoad, x: int) -> int:
    """Returns the link to whose queue is most worth the way, or NOBODY."""
    run, cluster, table = s.run[0], s.clusters[x], s.table
    missing, own_s = _missing(cluster), departure_s(cluster)
    if missing + AHEAD_MAX * cluster.servers <= 0:
        return NOBODY
    best, best_s = NOBODY, 0.0
    for link in range(cluster.links_from, cluster.links_to):
        end = s.links[link]
        if missing <= 0 and missing + ahead(table.delays_s[link], own_s, cluster.servers) <= 0:
            continue
        if end.asked or run.now_s < end.ask_s or not hears_us(s, link):
            continue
        age_s = known_age_s(run.now_s - by_load.told_s[link], run.period_s)
        one_s = max(table.departure_s[link], DEPARTURE_S_MIN)
        worth = worth_s(by_load.ahead[link], age_s, table.delays_s[link], one_s)
        if worth > best_s:
            best, best_s = link, worth
    return best


@inlined
def came(s: KernelState, link: int, pulled: bool) -> None:  # noqa: FBT001 - as all arguments
    """A request has come from that neighbor, because it was asked or by itself."""
    s.links[link].empty = 0
    if pulled:
        _answered(s, link)


@inlined
def _answered(s: KernelState, link: int) -> None:
    end = s.links[link]
    end.asked = False
    s.clusters[end.owner].asking -= 1


@inner
def have_nothing(s: KernelState, by_load: ByLoad | None, link: int) -> None:
    """`_no_work_there`: that neighbor, which was asked, is left alone for a while."""
    if by_load is None:
        return
    end = s.links[link]
    x = end.owner
    hear(s, by_load, link, by_load.nothings[link])
    _answered(s, link)
    end.empty += 1
    end.ask_s = s.run[0].now_s + pause_s(end.empty, departure_s(s.clusters[x]), draw(s, x))
    ask_for_work(s, by_load, x)


@inlined
def say_nothing(s: KernelState, by_load: ByLoad, link: int) -> None:
    """Tell the neighbor that has asked that there is nothing for it."""
    end = s.links[link]
    tell(s, by_load, end.owner, by_load.nothings[end.mirror])
    push(s, s.run[0].now_s + s.table.delays_s[link], no_work_there(s, end.mirror))


@inlined
def wait_if_pulled_s(s: KernelState, by_load: ByLoad, link: int) -> float:
    """Returns how long the way to a neighbor that asks and the wait there are."""
    table = s.table
    wait_s = max(by_load.ahead[link], 0) * table.departure_s[link]
    return table.delays_s[link] + wait_s  # type: ignore[no-any-return]


@inlined
def wait_if_sent_s(s: KernelState, by_load: ByLoad, link: int) -> float:
    """`adaptive.estimate_s`, of a request by this link."""
    table, run = s.table, s.run[0]
    delay_s, one_s = table.delays_s[link], table.departure_s[link]
    if one_s <= 0.0:
        one_s = s.clusters[s.links[link].owner].service_s / table.servers[link]
    wait_s = wait_after_s(
        by_load.ahead[link] + by_load.unreported[link],
        table.servers[link],
        by_load.load[link],
        table.residual[link],
        max(one_s, DEPARTURE_S_MIN),
        known_age_s(run.now_s - by_load.told_s[link], run.period_s) + 2.0 * delay_s,
    )
    return delay_s + wait_s  # type: ignore[no-any-return]


@inlined
def seen_at(s: KernelState, cluster: Any) -> float:
    """`seen_departure_s` of a cluster."""
    still_s = s.run[0].now_s - cluster.started_s
    return seen_departure_s(departure_s(cluster), cluster.service_s, still_s)


@inner
def better_off_there(
    s: KernelState,
    by_load: ByLoad,
    link: int,
    there_s: float,
    own_only: bool,  # noqa: FBT001
) -> int:
    """`asking`: the slot of the oldest request that is, or NOBODY."""
    run, under, table, end = s.run[0], s.under, s.table, s.links[link]
    cluster = s.clusters[end.owner]
    is_seen = own_only or by_load.ahead[link] < 0
    one_s = seen_at(s, cluster) if is_seen else departure_s(cluster)
    first = first_place(there_s, max(one_s, DEPARTURE_S_MIN))
    if not table.accepting[link] or first >= cluster.waiting or cluster.away >= cluster.away_limit:
        return NOBODY
    slot = cluster.first
    for _ in range(first):
        slot = under.slots[slot].next
    y = link - cluster.links_from
    for _ in range(LOOKS_MAX):
        if slot == NOBODY:
            break
        one = under.slots[slot]
        may_go = one.depth < run.max_hops and one.deadline_s > run.now_s + there_s
        if own_only and one.depth > 0:
            may_go = False
        if (under.tried[slot, y >> TRIED_SHIFT] >> (y & TRIED_MASK)) & 1:
            may_go = False
        for back in range(one.depth):
            if under.path[slot, back] == end.peer:
                may_go = False
        if may_go:
            return int(slot)
        slot = one.next
    return NOBODY


@inner
def in_time_at(s: KernelState, by_load: ByLoad, slot: int, x: int) -> int:
    """`asking.in_time_at`: the link by which what waits and would be late leaves, or NOBODY."""
    run, under, cluster, table = s.run[0], s.under, s.clusters[x], s.table
    one = under.slots[slot]
    left_s = one.deadline_s - run.now_s - cluster.service_s
    one_s = seen_at(s, cluster)
    before, other = 0, cluster.first
    while before < LOOKS_MAX and other != slot:
        before += 1
        other = under.slots[other].next
    if (before + 1) * one_s < left_s:
        return NOBODY
    if one.depth >= run.max_hops or cluster.away >= cluster.away_limit:
        return NOBODY
    best, best_s, best_is_idle = NOBODY, left_s, False
    for link in range(cluster.links_from, cluster.links_to):
        refresh(s, link)
        may_go = table.accepting[link]
        for back in range(one.depth):
            if under.path[slot, back] == s.links[link].peer:
                may_go = False
        if not may_go:
            continue
        there_s = wait_if_sent_s(s, by_load, link)
        is_idle = by_load.ahead[link] + by_load.unreported[link] < 0
        if not is_idle and one_s == departure_s(cluster):
            continue
        if there_s < left_s and (is_idle, best_s) > (best_is_idle, there_s):
            best, best_s, best_is_idle = link, there_s, is_idle
    return best


@inlined
def next_to_look_at(s: KernelState) -> int:
    """Returns the slot of what waits and is looked at first; NOBODY where none is."""
    slots = s.under.slots
    best, best_s = NOBODY, math.inf
    for x in range(len(s.clusters)):
        slot = s.clusters[x].first
        while slot != NOBODY:
            one = slots[slot]
            if one.look_s < min(best_s, one.deadline_s):
                best, best_s = slot, one.look_s
            slot = one.next
    return best
