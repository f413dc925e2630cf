"""The choice whether a client's request leaves for a place at a neighbor, where the cluster has
affinity: by the costs there and here (`core.affinity.sites`). The shells know what a place is."""

from __future__ import annotations

from spillover.core.affinity.sites import Away, Sites
from spillover.core.overflow.facts import NodeFacts
from spillover.core.overflow.visit import Visit
from spillover.model.affinity import SessionWork


def cheaper_there(
    node: NodeFacts, sites: Sites, asked: SessionWork, visit: Visit, now_s: float
) -> Away | None:
    """Returns the place for which the request leaves; None if it is to be kept, or if the policy
    decides."""
    admission, neighbors = node.admission, visit.group.neighbors
    if not admission.hands_on or admission.elsewhere_first or node.health.degraded:
        return None
    if not (node.settings.max_hops and node.may_send_away()):
        return None
    queue_s = 0.0
    if not node.servers.may_start(visit):
        if admission.objection(visit, now_s) is not None:
            return None
        queue_s = (node.servers.waiting + 1) * visit.group.fitting.departure_s
    known, size_bytes = neighbors.known_now or neighbors.knowledge(), visit.request.size_bytes
    takes = known.takes if visit.request.keyed else known.takes_unkeyed
    loads, limits_bytes, unreported = known.loads, known.limits_bytes, neighbors.unreported()
    near = []
    for y, handle in enumerate(known.handles):
        if not takes[y] or known.ranks[y]:
            continue
        if limits_bytes is None or size_bytes < limits_bytes[y]:
            beyond = loads.ahead[y] + unreported[y] + 1
            queued_s = beyond * loads.departure_s[y] if beyond > 0 else 0.0
            near.append((handle, 2.0 * loads.delays_s[y], queued_s))
    return sites.cheaper(asked, near, queue_s)
