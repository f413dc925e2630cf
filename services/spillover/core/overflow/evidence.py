"""The evidence of work for a cluster's health: for this cluster by work that ended here, for a
neighbor by forwards that came back, or did not come back in time. Each is compared with the same
clients' work elsewhere."""

from __future__ import annotations

import math
from itertools import islice, takewhile

from spillover.core.overflow.facts import NodeFacts
from spillover.core.overflow.health import told_share
from spillover.core.overflow.neighbor import Neighbor
from spillover.core.overflow.standing import FAILS_EVERYWHERE
from spillover.core.overflow.visit import RUNNING, Visit
from spillover.model.request import FAILED, Outcome
from spillover.policy.overflow.degradation import BAD, SAME, STALLED
from spillover.policy.overflow.lateness import (
    GRACE_S,
    LATE_BY_CHANCE,
    Promise,
    chance,
    credible_way_s,
    is_late,
    promise,
)

EVIDENCE = frozenset({Outcome.DONE, Outcome.FAILED, Outcome.REJECTED})
"""The ends that say whether work fails: one that was stopped says nothing."""

MUTE_AT = 3
"""The number of late requests in a row, without a word of any, that is no chance."""

MUTE_S = 0.25
"""The age, in seconds, below which a request says nothing yet of a neighbor. Why: if a process
stood still for some hundredths of a second, its reports and its answers come together, the reports
first."""

STALLED_S = 10.0
"""The least time, in seconds, for which servers are held before waiting for them is given up. Why:
most clients would rather wait for some seconds than have one request in two fail."""

LOOK_S = 0.25
"""The least time, in seconds, between two looks for late answers of one neighbor, or two looks at
the own servers."""


def learn(
    node: NodeFacts,
    visit: Visit,
    now_s: float,
    *,
    failed: bool,
    not_run: bool = False,
    rest_s: float = 0.0,
) -> bool:
    """Learns from this end, and returns whether the cluster has become degraded or well by it."""
    neighbors = node.neighbors
    origin = None if visit.is_home else neighbors.by_handle.get(visit.origin)
    usual = neighbors.usual(now_s, but=origin)
    if origin is not None:  # it could have gone elsewhere from there, too
        usual = origin.least_failed if usual is None else min(usual, origin.least_failed)
    return node.health.ended(
        now_s,
        failed=failed,
        usual=usual or 0.0,
        not_run=not_run,
        is_free=node.is_free(visit),
        rest_s=rest_s,
        service_s=node.servers.service_s,
        kind=(visit.origin, visit.request.kind or visit.request.type),
    )


def learn_of(node: NodeFacts, visit: Visit, outcome: Outcome, now_s: float) -> None:
    """Learns from the end of work that a neighbor had."""
    if outcome not in EVIDENCE:
        _learn_not_done(node, visit, outcome, now_s)
    elif not visit.missed:
        kind = visit.request.kind or visit.request.type
        _learn_of(node, visit.target, now_s, kind, failed=outcome is FAILED)
        if not visit.answering:
            learn_of_size(visit, now_s)


def learn_of_size(visit: Visit, now_s: float) -> None:
    """Learns that an answer to a request of this size is there, or begins."""
    sizes = visit.target.sizes
    if not (sizes.is_calm or visit.missed):
        sizes.came_back(now_s, visit.request.size_bytes)


def learn_missed(node: NodeFacts, visit: Visit, now_s: float, by_chance: float = 0.0) -> None:
    """Learns that a neighbor, though it lives, has lost a request, or has not answered it for so
    long that by chance only this share of answers take as long.

    That is the fault of no kind of requests: any kind may be lost on a way, and does well
    elsewhere. If requests take long here as well, that says little of the neighbor. A request that
    left before the neighbor became known is lost with an earlier life or link.
    """
    neighbor = visit.target
    if not by_chance and visit.since_s < neighbor.away.known_s:
        return
    if neighbor.known and not (visit.missed or visit.answering) and by_chance < FAILS_EVERYWHERE:
        visit.missed = True
        neighbor.away.missed += 1
        usual = max(by_chance, node.late_here.at(node, now_s)) if by_chance else 0.0
        neighbor.sizes.missed(now_s, visit.request.size_bytes, usual)
        _learn_of(node, neighbor, now_s, None, failed=True, usual=usual)


def _learn_not_done(node: NodeFacts, visit: Visit, outcome: Outcome, now_s: float) -> None:
    """Learns that a neighbor says of a request that it does not know how that ended, or will not
    have done it before its deadline. Else one could take all requests, and do none. One that was
    not promised an idle server may have been handed on, and lost at a third cluster."""
    if outcome is Outcome.EXPIRED:
        learn_missed(node, visit, now_s, chance_of(visit, visit.deadline_s))
    elif outcome is Outcome.UNKNOWN and visit.promised:
        learn_missed(node, visit, now_s)


def _learn_of(
    node: NodeFacts,
    neighbor: Neighbor,
    now_s: float,
    kind: str | None,
    *,
    failed: bool,
    usual: float = 0.0,
) -> None:
    """Compares an end with the best of the other places, this cluster included, of which at least
    this share is `usual`. Work that nobody can do is not held against the neighbor."""
    neighbors, there = node.neighbors, neighbor.there
    elsewhere = neighbors.usual(now_s, but=neighbor)
    if not node.servers.down:
        here = node.health.here.failed_share(now_s)
        elsewhere = here if elsewhere is None else min(elsewhere, here)
    usual = max(usual, 1.0 if elsewhere is None else elsewhere)
    was_degraded = there.degraded
    there.ended(now_s, kind, failed=failed, usual=usual, service_s=node.servers.service_s)
    if was_degraded or there.degraded:
        neighbors.judged(neighbor, now_s)


# --- what is late ---------------------------------------------------------------------------------


def notice_lateness(
    node: NodeFacts, visit: Visit, now_s: float, way_s: float = 0.0, size_bytes: int = 0
) -> None:
    """Learns from the time when a neighbor says something of a visit at last, after GRACE_S. If it
    answers, the ways there and back took `way_s`, with an answer of `size_bytes`."""
    if _is_overdue(visit, now_s, way_s, size_bytes):
        learn_missed(node, visit, now_s, LATE_BY_CHANCE)


def _is_mute(neighbor: Neighbor, now_s: float) -> bool:
    """Returns whether the neighbor is mute: nothing has come back since the first of some requests
    left, and all of these are late but for the grace. No more are sent after them until something
    comes back, or that is settled."""
    first = list(islice(neighbor.away.values(), MUTE_AT))
    return (
        len(first) == MUTE_AT
        and now_s - first[-1].since_s >= MUTE_S
        and neighbor.away.came_back_s < first[0].since_s
        and not (neighbor.there.degraded or all(one.missed for one in first))
        and all(chance_of(one, now_s) <= LATE_BY_CHANCE and not one.answering for one in first)
    )


def give_again(node: NodeFacts, neighbor: Neighbor) -> None:
    """Lets a neighbor be given work again that was mute, and has now said something of a
    request."""
    if neighbor.ramp_since_s is None:
        node.neighbors.hold_back(neighbor.handle, False)  # noqa: FBT003 - as it takes it


def look_for_late(node: NodeFacts, neighbor: Neighbor, now_s: float) -> list[Visit]:
    """Learns from requests that a living neighbor has had for too long. Returns those that are
    decided again, as they may run twice, once the neighbor surely fails. Looks only now and
    then."""
    away = neighbor.away
    if not (away or neighbor.held_back) or now_s - away.looked_s < LOOK_S:
        return []
    away.looked_s = now_s
    for visit in list(takewhile(lambda one: now_s - one.since_s > GRACE_S, away.values())):
        if not (visit.missed or visit.answering) and _is_overdue(visit, now_s):
            learn_missed(node, visit, now_s, LATE_BY_CHANCE)
    held_back = _is_mute(neighbor, now_s)
    if neighbor.ramp_since_s is None and held_back is not neighbor.held_back:
        node.neighbors.hold_back(neighbor.handle, held_back)
    if not neighbor.there.degraded:
        return []
    return [one for one in away.values() if one.missed and one.request.keyed and not one.answering]


def chance_of(visit: Visit, now_s: float) -> float:
    """Returns the share of answers of this visit's neighbor that are expected not to be there by
    now. A time that a deadline or a client sets has no grace."""
    return chance(_promised(visit), _waited_s(visit, now_s))


class LateHere:
    """The share of the own servers that have had work for longer than usual, by the measure that
    neighbors are judged by: what takes long everywhere is no neighbor's fault. It is looked up only
    now and then."""

    def __init__(self) -> None:
        self._looked_s = -math.inf
        self._share = 0.0

    def at(self, node: NodeFacts, now_s: float) -> float:
        """Returns the share, as it was a moment ago or is now."""
        if now_s - self._looked_s >= LOOK_S:
            self._looked_s = now_s
            running = [one for one in node.register.visits.values() if one.state is RUNNING]
            count = len(running) + len(node.servers.stuck)
            waited = [one for one in running if not one.answering]
            late = sum(is_late(_usual_here(one), now_s - one.since_s) for one in waited)
            self._share = (late + len(node.servers.stuck)) / count if count else 0.0
        return self._share


def is_stalled(node: NodeFacts, now_s: float) -> bool:
    """Returns whether no server here, where work is well, can be expected back soon, and all
    neighbors that are known fail work, one of them not all: to go there is better than to wait.
    Servers that are unlike, or other nodes', may be free for some requests."""
    servers, ranks = node.servers, [one.rank for one in node.neighbors if one.known]
    if not BAD <= min(ranks, default=0.0) <= STALLED + SAME or node.health.degraded:
        return False
    if not servers.is_alike or servers.site_total != servers.total:
        return False
    running = [one for one in node.register.visits.values() if one.state is RUNNING]
    return (
        len(running) + len(servers.stuck) >= servers.total
        and all(now_s - one.since_s >= STALLED_S for one in running)
        and node.late_here.at(node, now_s) == 1.0
    )


def _is_overdue(visit: Visit, now_s: float, way_s: float = 0.0, size_bytes: int = 0) -> bool:
    return is_late(_promised(visit, size_bytes), _waited_s(visit, now_s, way_s))


def _waited_s(visit: Visit, now_s: float, way_s: float = 0.0) -> float:
    """Returns for how many seconds the visit has been away, without time in which the neighbor was
    silent, nobody listened here, or something waited there. A visit that was not promised an idle
    server may have been handed on, and wait somewhere else. What an answer took on its ways,
    `way_s`, counts all the same."""
    target = visit.target
    away_s = now_s - max(visit.since_s, target.away.counts_s)
    may_wait = not visit.promised or target.ahead > 0
    there_s = 0.0 if may_wait else now_s - target.away.busy_s
    return min(away_s, max(there_s, way_s))


def _promised(visit: Visit, answer_bytes: int = 0) -> Promise:
    """Returns the promise of an idle neighbor, by what it now tells of its services. If services
    take longer here, or are more uneven, they may turn out so there. The way counts as far as it
    is credible. The answer's size is known once it is there."""
    group = visit.group
    row = group.neighbors.by_handle.get(visit.target.handle, visit.target)
    service_s = max(row.departure_s * row.servers, group.estimates.service_s)
    residual = max(row.residual, group.fitting.residual)
    way_s = credible_way_s(row.way_s, row.delay_s)
    return promise(service_s, residual, way_s, visit.request.size_bytes + answer_bytes)


def _usual_here(visit: Visit) -> Promise:
    """Returns the time that a service here is expected to take."""
    group = visit.group
    return promise(group.estimates.service_s, group.fitting.residual, 0.0)


def least_failed(node: NodeFacts, now_s: float, but: str = "") -> float | None:
    """Returns the share of the own clients' work that fails at the best place that it can reach,
    except the neighbor `but`; None where nothing has failed here lately."""
    here = node.health.failed_share(now_s)
    if not here:
        return None
    left_out = next((one for one in node.neighbors if one.id == but), None) if but else None
    elsewhere = node.neighbors.usual(now_s, but=left_out)
    return here if elsewhere is None else min(here, told_share(elsewhere))
