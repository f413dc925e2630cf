"""What a cluster asks its neighbors for when servers are idle or soon will be, what it gives to one
that asks, and what it offers to one that accepts: of each group of types, by what is known of that
group. Also which request goes where one is to go. Who was asked before is in `pulling`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from spillover.core.overflow import events as ev
from spillover.core.overflow.decisions import Decision
from spillover.core.overflow.facts import NodeFacts
from spillover.core.overflow.groups import Group
from spillover.core.overflow.neighbor import Neighbor
from spillover.core.overflow.reporting import Gossip
from spillover.core.overflow.visit import Visit
from spillover.policy.overflow.adaptive import DEPARTURE_S_MIN, estimate_s
from spillover.policy.overflow.pull import first_place

LOOKS_MAX = 256
"""How much of the queue is looked through for requests that may go to a certain neighbor."""


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
        if groups.only is None:  # in all no more questions than servers are idle for any group
            idle = min(idle, node.servers.idle - groups.asks_under_way + pulling.coming)
        told = (idle, fitting.up, departure_s, now_s)
        while (handle := pulling.next_to_ask(*told)) is not None:
            load = gossip.load_now(node, group, now_s)
            yield ev.AskForWork(handle, load, group.id)


def work_for(node: NodeFacts, group: Group, handle: int, now_s: float) -> Visit | None:
    """Returns what to give of this group to a neighbor that asks; None if there is nothing."""
    if node.register.away >= node.settings.away_limit:
        return None
    line: Iterable[Visit] = node.servers
    if not group.is_alike:
        # Where others wait for the same servers, it is counted as nearer to one than it is.
        line = (visit for visit in node.servers if visit.group is group)
    neighbor = group.neighbors.by_handle[handle]
    there_s = neighbor.way_s + max(neighbor.ahead, 0) * neighbor.departure_s
    return _better_off_with(neighbor, group, line, there_s, node.settings.max_hops, now_s)


def first_to_go(node: NodeFacts, newcomer: Visit, decision: Decision, now_s: float) -> Visit | None:
    """Returns which of the own clients' requests that wait is handed on in place of one that comes
    now and was to go: the oldest of its group, which is served there too, that is better off where
    that was to go; None if there is none."""
    known, choice, group = decision.knowledge, decision.choice, newcomer.group
    neighbor = group.neighbors.by_handle[known.handles[choice]]
    if decision.own is None or not neighbor.tells_load:
        return None
    there_s, max_hops = estimate_s(decision.own, known.loads, choice), node.settings.max_hops
    return _better_off_with(neighbor, group, node.servers, there_s, max_hops, now_s, own_only=True)


def is_stranded(visit: Visit) -> bool:
    """Returns whether no server here that fits it takes it for now: all are gone, or rest."""
    fitting = visit.group.fitting
    return not fitting.up or fitting.resting


def to_offer(
    line: Iterable[Visit], neighbor: Neighbor, count: int, now_s: float, *, every: bool
) -> list[Visit]:
    """Returns what is offered to a neighbor that says it accepts, also if it refused before: of
    what waits, `every` kind or only those that no server here fits. What was lost waits a while
    before it is tried there again."""
    asked, handle = neighbor.id, neighbor.handle
    new_there = (
        visit
        for visit in islice(line, LOOKS_MAX)
        if asked not in visit.request.path
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
) -> Visit | None:
    """Returns the oldest of a group in the line for its servers that waits longer than the way to a
    neighbor and the wait there are, `there_s`, and may go there; None if there is none. `own_only`:
    of what own clients have sent."""
    servers = group.fitting
    departure_s = max(servers.departure_s, DEPARTURE_S_MIN)
    first = first_place(there_s, departure_s)
    if first >= servers.waiting or not neighbor.accepting or neighbor.rank:
        return None
    for visit in islice(line, first, first + LOOKS_MAX):
        request = visit.request
        if (
            visit.group is group
            and (visit.is_home or not own_only)
            and request.hops < max_hops
            and neighbor.id not in request.path
            and neighbor.handle not in visit.tried
            and visit.deadline_s > now_s + there_s
        ):
            return visit
    return None
