"""The questions and offers of a cluster: what it asks its neighbors for when servers are idle or
soon will be, what it gives to one that asks, and what it offers to one that accepts. Each group of
types has its own, by what is known of that group. Also which request goes where one is to go.
`pulling` knows who was asked before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from spillover.core.overflow import events as ev
from spillover.core.overflow.decisions import Decision
from spillover.core.overflow.facts import NodeFacts
from spillover.core.overflow.groups import Group
from spillover.core.overflow.neighbor import Neighbor
from spillover.core.overflow.reporting import Gossip
from spillover.core.overflow.sized_servers import Sizing
from spillover.core.overflow.visit import Visit
from spillover.policy.overflow.adaptive import DEPARTURE_S_MIN, estimate_s, has_idle
from spillover.policy.overflow.pull import first_place
from spillover.policy.overflow.stranded import seen_departure_s

LOOKS_MAX = 256
"""The most places of the queue that are looked through for requests that may go to a certain
neighbor."""


def questions(node: NodeFacts, gossip: Gossip, now_s: float) -> Iterator[ev.AskForWork]:
    """Asks neighbors whose queues may be worth the way for servers that are idle here, or will be
    when an answer comes."""
    if node.health.degraded or node.settings.max_hops == 0:  # nobody may hand anything on
        return
    groups = node.groups
    for group in groups.all:
        fitting, pulling = group.fitting, group.pulling
        if not node.admission.takes(fitting):
            continue
        idle, departure_s = fitting.idle - fitting.waiting, fitting.departure_s
        if groups.only is None:  # no more questions in all than servers are idle
            idle = min(idle, node.servers.idle - groups.asks_under_way + pulling.coming)
        told = (idle, fitting.up, departure_s, now_s)
        while (handle := pulling.next_to_ask(*told)) is not None:
            load = gossip.load_now(node, group, now_s)
            yield ev.AskForWork(handle, load, group.id)


def work_for(node: NodeFacts, group: Group, handle: int, now_s: float) -> Visit | None:
    """Returns what to give of this group to a neighbor that asks; None if there is nothing."""
    if not node.may_send_away():
        return None
    return _better_off_at(node, group, group.neighbors.by_handle[handle], now_s)


def first_to_go(node: NodeFacts, newcomer: Visit, decision: Decision, now_s: float) -> Visit | None:
    """Returns which of the own clients' requests that wait is handed on in place of `newcomer`,
    which was to go. It is the oldest of the newcomer's group that is served there too and is better
    off there; None if there is none."""
    known, choice, group = decision.knowledge, decision.choice, newcomer.group
    neighbor = group.neighbors.by_handle[known.handles[choice]]
    if decision.own is None or not neighbor.tells_load:
        return None
    there_s, max_hops = estimate_s(decision.own, known.loads, choice), node.settings.max_hops
    return _better_off_with(neighbor, group, node.servers, there_s, max_hops, now_s, own_only=True)


def in_time_at(node: NodeFacts, visit: Visit, now_s: float) -> Neighbor | None:
    """Returns the neighbor to which a request goes that waits and would be late here; None if it
    stays.

    It is the neighbor at which the request is expected to be in time, and soonest: one with an idle
    server if there is one, or any if nothing has begun here for long. A neighbor that has refused
    the request before may have room by now.
    """
    group = visit.group
    servers, known = group.fitting, group.neighbors.knowledge()
    left_s = visit.deadline_s - now_s - servers.service_s
    since_s = group.started_s if group.is_alike else max(group.started_s, visit.since_s)
    departure_s = seen_departure_s(servers.departure_s, servers.service_s, now_s - since_s)
    before = 0
    for other in islice(node.servers, LOOKS_MAX):
        if other is visit:
            break
        before += other.group is group
    may_go = visit.request.hops < node.settings.max_hops and node.may_send_away()
    wait_s = (before + 1) * departure_s
    if isinstance(servers, Sizing):
        left_s = visit.deadline_s - now_s - visit.work_s
        wait_s = servers.wait_of(visit)
    if not may_go or wait_s < left_s:
        return None
    unreported = group.neighbors.unreported()
    load, may_keep = group.home_load.load, True
    own = group.estimates.own_load(visit, may_keep, load, now_s, unreported)
    size_bytes = visit.request.size_bytes
    best, best_s, best_is_idle = None, left_s, False
    for place, handle in enumerate(known.handles):
        row = group.neighbors.by_handle[handle]
        if not row.accepting or row.rank or row.id in visit.request.path:
            continue
        if visit.again_s.get(handle, 0.0) > now_s or size_bytes >= row.sizes.limit_bytes:
            continue
        there_s, is_idle = estimate_s(own, known.loads, place), has_idle(own, known.loads, place)
        if not is_idle and departure_s == servers.departure_s:
            continue
        if there_s < left_s and (is_idle, best_s) > (best_is_idle, there_s):
            best, best_s, best_is_idle = row, there_s, is_idle
    return best


def probe_for(node: NodeFacts, handle: int, now_s: float) -> Visit | None:
    """Returns the oldest request that waits and is better off at a neighbor that takes a probe, of
    the first group of which it takes one; None if there is none."""
    if not node.may_send_away():
        return None
    for group in node.groups.all:
        neighbor = group.neighbors.by_handle[handle]
        if neighbor.invited:
            visit = _better_off_at(node, group, neighbor, now_s, probes=True)
            if visit is not None:
                return visit
    return None


def _better_off_at(
    node: NodeFacts, group: Group, neighbor: Neighbor, now_s: float, *, probes: bool = False
) -> Visit | None:
    """Returns the oldest request of a group that waits and is better off at a neighbor, by the
    neighbor's own queue; None if there is none."""
    line: Iterable[Visit] = node.servers
    if not group.is_alike:
        # Where other groups wait for the same servers, it is counted as nearer to one than it is.
        line = (visit for visit in node.servers if visit.group is group)
    there_s = neighbor.way_s + max(neighbor.ahead, 0) * neighbor.departure_s
    max_hops = node.settings.max_hops
    return _better_off_with(neighbor, group, line, there_s, max_hops, now_s, probes=probes)


def is_stranded(visit: Visit) -> bool:
    """Returns whether no server here that fits it takes it for now: all are gone, or rest."""
    fitting = visit.group.fitting
    return not fitting.up or fitting.resting


def to_offer(
    line: Iterable[Visit], neighbor: Neighbor, count: int, now_s: float, *, every: bool
) -> list[Visit]:
    """Returns the visits to offer to a neighbor that says it accepts, even if it refused them
    before. With `every` they are of all that wait; otherwise only of those that no server here
    fits. A visit that was lost there waits a while before it is tried there again."""
    asked, handle = neighbor.id, neighbor.handle
    new_there = (
        visit
        for visit in islice(line, LOOKS_MAX)
        if asked not in visit.request.path
        and visit.request.size_bytes < neighbor.sizes.limit_bytes
        and (every or is_stranded(visit))
        and (handle not in visit.tried or visit.again_s.get(handle, 0.0) <= now_s)
    )
    offered = list(islice(new_there, count))
    for visit in offered:
        visit.tried = tuple([one for one in visit.tried if one != handle])
    return offered


def _better_off_with(
    neighbor: Neighbor,
    group: Group,
    line: Iterable[Visit],
    there_s: float,
    max_hops: int,
    now_s: float,
    *,
    own_only: bool = False,
    probes: bool = False,
) -> Visit | None:
    """Returns the oldest of a group in the line for its servers that may go to a neighbor and waits
    longer than the way there and the wait there are, `there_s`; None if there is none. With
    `own_only` only requests of own clients count. One that `probes` may go where work fails."""
    servers = group.fitting
    departure_s = servers.departure_s * group.estimates.lines
    # A neighbor that asks may be as stuck as this cluster, and believe its mean service; with
    # `own_only` the policy has chosen already that something goes there.
    if group.is_alike and (own_only or neighbor.ahead < 0):
        still_s = now_s - group.started_s
        departure_s = seen_departure_s(departure_s, servers.service_s, still_s)
    departure_s = max(departure_s, DEPARTURE_S_MIN)
    if isinstance(servers, Sizing):
        first = servers.first_place(there_s)
    else:
        first = first_place(there_s, departure_s)
    if first >= servers.waiting or not neighbor.accepting or (neighbor.rank and not probes):
        return None
    for visit in islice(line, first, first + LOOKS_MAX):
        request = visit.request
        if (
            visit.group is group
            and (visit.is_home or not own_only)
            and request.size_bytes < neighbor.sizes.limit_bytes
            and request.hops < max_hops
            and (request.keyed or not neighbor.free_only)
            and neighbor.id not in request.path
            and neighbor.handle not in visit.tried
            and visit.deadline_s > now_s + there_s
        ):
            return visit
    return None
