"""What work that has ended here says of the cluster's health: it is compared with what the same
clients' work does elsewhere.
"""

from __future__ import annotations

from spillover.core.overflow.facts import NodeFacts
from spillover.core.overflow.health import told_share
from spillover.core.overflow.visit import Visit
from spillover.model.request import FAILED, Outcome

EVIDENCE = frozenset({Outcome.DONE, Outcome.FAILED, Outcome.REJECTED})
"""Ends that tell whether work fails: what was stopped says nothing."""


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
    """Learns from how work has ended that a neighbor had. It is compared with the best of the
    others, this cluster included: what nobody can do is no fault of that one."""
    if outcome not in EVIDENCE:
        return
    neighbors, neighbor = node.neighbors, visit.target
    usual = neighbors.usual(now_s, but=neighbor)
    if not node.servers.down:
        here = node.health.here.failed_share(now_s)
        usual = here if usual is None else min(usual, here)
    kind = visit.request.kind or visit.request.type
    told = {"usual": 1.0 if usual is None else usual, "service_s": node.servers.service_s}
    was_degraded = neighbor.there.degraded
    neighbor.there.ended(now_s, kind, failed=outcome is FAILED, **told)
    if was_degraded or neighbor.there.degraded:
        neighbors.judged(neighbor, now_s)


def least_failed(node: NodeFacts, now_s: float) -> float | None:
    """Returns the share of the own clients' work that fails at the best place that it can reach;
    None where nothing has failed here lately."""
    here = node.health.failed_share(now_s)
    if not here:
        return None
    elsewhere = node.neighbors.usual(now_s)
    return here if elsewhere is None else min(here, told_share(elsewhere))
