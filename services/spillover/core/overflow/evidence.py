"""The evidence of work for a cluster's health: for this one by work that ended here, for a neighbor
by forwards that came back, or did not come back in time. Each is compared with the same clients'
work elsewhere."""

from __future__ import annotations

import math
from itertools import islice, takewhile

from spillover.core.overflow.facts import NodeFacts
from spillover.core.overflow.health import told_share
from spillover.core.overflow.neighbor import Neighbor
from spillover.core.overflow.standing import FAILS_EVERYWHERE
from spillover.core.overflow.visit import RUNNING, Visit
from spillover.model.request import FAILED, Outcome
from spillover.policy.overflow.lateness import (
    GRACE_S,
    LATE_BY_CHANCE,
    Promise,
    chance,
    is_late,
    promise,
)

EVIDENCE = frozenset({Outcome.DONE, Outcome.FAILED, Outcome.REJECTED})
"""Ends that tell whether work fails: what was stopped says nothing."""

MUTE_AT = 3
"""So many late requests in a row, and no word of any, are no chance."""

MUTE_S = 0.25
"""What left later than this says nothing of a neighbor yet. Why: a process that stood still for
some hundredths of a second has its reports and its answers come together, the reports first."""

LOOK_S = 0.25
"""How far apart the looks for late answers of one neighbor are, at least, and those at the own
servers."""


def learn(
    node: NodeFacts,
    visit: Visit,
    now_s: float,
    *,
    failed: bool,
    not_run: bool = False,
    rest_s: float = 0.0,
) -> bool:
    """Learns from this end, and returns whether the cluster is degraded or well now by it."""
    neighbors, is_home = node.neighbors, visit.is_home
    origin = None if is_home else neighbors.by_handle.get(visit.origin)
    usual = neighbors.usual(now_s, but=origin)
    if origin is not None:  # it could have gone elsewhere from there, too
        usual = origin.least_failed if usual is None else min(usual, origin.least_failed)
    return node.health.ended(
        now_s,
        failed=failed,
        usual=usual or 0.0,
        is_home=is_home,
        not_run=not_run,
        is_free=node.is_free(visit),
        rest_s=rest_s,
        service_s=node.servers.service_s,
        kind=(visit.origin, visit.request.kind or visit.request.type),
    )


def learn_of(node: NodeFacts, visit: Visit, outcome: Outcome, now_s: float) -> None:
    """Learns from how work has ended that a neighbor had."""
    if outcome in EVIDENCE and not visit.missed:
        kind = visit.request.kind or visit.request.type
        _learn_of(node, visit.target, now_s, kind, failed=outcome is FAILED)
        if not visit.answering:
            learn_of_size(visit, now_s)


def learn_of_size(visit: Visit, now_s: float) -> None:
    """Learns that an answer is there, or begins, to a request of such a size."""
    sizes = visit.target.sizes
    if not (sizes.is_calm or visit.missed):
        sizes.came_back(now_s, visit.request.size_bytes)


def learn_missed(node: NodeFacts, visit: Visit, now_s: float, by_chance: float = 0.0) -> None:
    """Learns that a neighbor, though it lives, has lost a request, or keeps waiting for its answer
    for so long that by chance this share of answers do. That is the fault of no kind of requests:
    any kind may be lost on a way, and does well elsewhere. What takes long here as well says little
    of that neighbor. What left before it became known is lost with an earlier life or link."""
    neighbor = visit.target
    if not by_chance and visit.since_s < neighbor.away.known_s:
        return
    if neighbor.known and not (visit.missed or visit.answering) and by_chance < FAILS_EVERYWHERE:
        visit.missed = True
        neighbor.away.missed += 1
        usual = max(by_chance, node.late_here.at(node, now_s)) if by_chance else 0.0
        neighbor.sizes.missed(now_s, visit.request.size_bytes, usual)
        _learn_of(node, neighbor, now_s, None, failed=True, usual=usual)


def _learn_of(
    node: NodeFacts,
    neighbor: Neighbor,
    now_s: float,
    kind: str | None,
    *,
    failed: bool,
    usual: float = 0.0,
) -> None:
    """It is compared with the best of the others, this cluster included, of which at least this
    share is `usual`: what nobody can do is no fault of that one."""
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


def notice_lateness(node: NodeFacts, visit: Visit, now_s: float) -> None:
    """Learns from when a neighbor says something of a visit at last."""
    if now_s - visit.since_s > GRACE_S and _is_overdue(visit, now_s):
        learn_missed(node, visit, now_s, LATE_BY_CHANCE)


def _is_mute(neighbor: Neighbor, now_s: float) -> bool:
    """Returns whether nothing has come back since the first of some requests left that are all late
    but for the grace: no more are sent after them until something does, or that is settled."""
    first = list(islice(neighbor.away.values(), MUTE_AT))
    return (
        len(first) == MUTE_AT
        and now_s - first[-1].since_s >= MUTE_S
        and neighbor.away.came_back_s < first[0].since_s
        and not (neighbor.there.degraded or all(one.missed for one in first))
        and all(chance_of(one, now_s) <= LATE_BY_CHANCE and not one.answering for one in first)
    )


def give_again(node: NodeFacts, neighbor: Neighbor) -> None:
    """Lets one be given work again that was mute, and has now said something of a request."""
    if neighbor.ramp_since_s is None:
        node.neighbors.hold_back(neighbor.handle, False)  # noqa: FBT003 - as it takes it


def look_for_late(node: NodeFacts, neighbor: Neighbor, now_s: float) -> list[Visit]:
    """Learns from what a neighbor that lives has for too long: it is not on its way. Returns what
    is to be decided again once that is sure of it, since it may run twice. Looks now and then."""
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
    """Returns of how many answers of the neighbor that has this visit it is to be expected that
    they are not there by now. What sets that time is a deadline or a client: no grace is given."""
    return chance(_promised(visit), _waited_s(visit, now_s))


class LateHere:
    """Which share of the own servers has work for longer than usual, by the measure that neighbors
    are judged by: what takes long everywhere is no neighbor's fault. Looked up now and then."""

    __slots__ = ("_looked_s", "_share")

    def __init__(self) -> None:
        self._looked_s = -math.inf
        self._share = 0.0

    def at(self, node: NodeFacts, now_s: float) -> float:
        """Returns the share, as it was at most a moment ago."""
        if now_s - self._looked_s >= LOOK_S:
            self._looked_s = now_s
            running = [one for one in node.register.visits.values() if one.state is RUNNING]
            count = len(running) + len(node.servers.stuck)
            waited = [one for one in running if not one.answering]
            late = sum(is_late(_usual_here(one), now_s - one.since_s) for one in waited)
            self._share = (late + len(node.servers.stuck)) / count if count else 0.0
        return self._share


def _is_overdue(visit: Visit, now_s: float) -> bool:
    return is_late(_promised(visit), _waited_s(visit, now_s))


def _waited_s(visit: Visit, now_s: float) -> float:
    """Returns for how long it is away, without time in which the neighbor was silent, or nobody
    listened here, or anything waited there. What was not promised an idle server may have been
    handed on, and wait somewhere else."""
    target = visit.target
    if not visit.promised or target.ahead > 0:
        return 0.0
    return now_s - max(visit.since_s, target.away.counts_s)


def _promised(visit: Visit) -> Promise:
    """Returns what an idle neighbor promises, by what it tells now of services. Where these take
    longer here, or are more uneven, they may turn out so there."""
    group = visit.group
    row = group.neighbors.by_handle.get(visit.target.handle, visit.target)
    service_s = max(row.departure_s * row.servers, group.estimates.service_s)
    residual = max(row.residual, group.fitting.residual)
    return promise(service_s, residual, row.way_s)


def _usual_here(visit: Visit) -> Promise:
    """Returns how long a service here is expected to take."""
    group = visit.group
    return promise(group.estimates.service_s, group.fitting.residual, 0.0)


def least_failed(node: NodeFacts, now_s: float, but: str = "") -> float | None:
    """Returns the share of the own clients' work that fails at the best place that it can reach,
    `but` for this neighbor; None where nothing has failed here lately."""
    here = node.health.failed_share(now_s)
    if not here:
        return None
    left_out = next((one for one in node.neighbors if one.id == but), None) if but else None
    elsewhere = node.neighbors.usual(now_s, but=left_out)
    return here if elsewhere is None else min(here, told_share(elsewhere))
