"""The choice whether a client's request leaves for a place at a neighbor, where the cluster has
affinity: by the costs there and here (`core.affinity.sites`). The shells know what a place is."""

from __future__ import annotations

from spillover.core.affinity.sites import Away, Near, Sites
from spillover.core.overflow.facts import NodeFacts
from spillover.core.overflow.knowledge import Knowledge
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
    known, unreported = neighbors.known_now or neighbors.knowledge(), neighbors.unreported()
    takes = known.takes if visit.request.keyed else known.takes_unkeyed
    if (limits_bytes := known.limits_bytes) is not None:
        size_bytes = visit.request.size_bytes
        fits = [size_bytes < limit for limit in limits_bytes]
        takes = tuple([one and fit for one, fit in zip(takes, fits, strict=True)])
    kept = sites.kept  # mostly nothing has been heard or sent since the last choice
    if kept is not None and kept[0] is known and kept[1] is takes and kept[2] == unreported:
        near = kept[3]
    else:
        near = near_of(known, takes, unreported)
        sites.kept = known, takes, unreported, near
    return sites.cheaper(asked, near, queue_s)


def near_of(known: Knowledge, takes: tuple[bool, ...], unreported: tuple[int, ...]) -> list[Near]:
    """Returns the neighbors that may get the request."""
    loads = known.loads
    columns = known.handles, takes, known.ranks, unreported
    told = loads.ahead, loads.departure_s, loads.delays_s
    near = []
    for handle, may, rank, sent, ahead, departure_s, delay_s in zip(*columns, *told, strict=True):
        if may and not rank:
            beyond = ahead + sent + 1
            queued_s = beyond * departure_s if beyond > 0 else 0.0
            near.append((handle, 2.0 * delay_s, queued_s))
    return near
