"""What work that has ended here says of the cluster's health: it is compared with what the same
clients' work does elsewhere.
"""

from __future__ import annotations

from spillover.core.overflow.facts import NodeFacts
from spillover.core.overflow.visit import Visit
from spillover.model.request import Outcome

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
    health, is_home = node.health, visit.is_home
    usual = health.elsewhere.at(now_s) if is_home else node.neighbors.failed_share(visit.origin)
    return health.ended(
        now_s,
        failed=failed,
        usual=usual,
        is_home=is_home,
        not_run=not_run,
        rest_s=rest_s,
        service_s=node.servers.service_s,
    )
