"""What policies are told and neighbors tell, with all that a test does not care about filled in."""

from spillover.core.overflow.neighbors import Neighbors
from spillover.policy.overflow import report_terms
from spillover.policy.overflow.base import NeighborLoads, OwnLoad


def own_load(
    queue_length=0,
    servers=1,
    may_keep=True,
    service_s=0.04,
    *,
    departure_s=None,
    residual=1.0,
    load=0.0,
    hops=0,
    now_s=0.0,
    unreported=(),
    still_s=0.0,
):
    """A cluster whose own clients bring nothing, at time 0. `departure_s` follows from the rest."""
    if departure_s is None:
        departure_s = service_s / servers
    return OwnLoad(
        queue_length,
        servers,
        may_keep,
        service_s,
        departure_s,
        residual,
        load,
        hops,
        now_s,
        unreported,
        still_s,
    )


def neighbor_loads(reject_near, queue_length, delays_s, *, servers=1, period_s=0.05, **by_neighbor):
    """Neighbors with so many servers each, that tell no departure, just heard unless told so."""
    count = len(reject_near)
    filled = {"ahead": queue_length, "load": [0.0] * count, "departure_s": [0.0] * count}
    filled |= {"residual": [1.0] * count, "told_s": [0.0] * count} | by_neighbor
    alike = [servers] * count if isinstance(servers, int) else servers
    filled |= worked_out(alike, filled["load"], filled["residual"])
    return NeighborLoads(reject_near, queue_length, delays_s, alike, period_s=period_s, **filled)


def worked_out(servers, load, residual):
    """The columns that follow from what was told, by neighbor."""
    first = tuple(map(report_terms.first_departure, residual, load, servers))
    drain = tuple(map(report_terms.sure_drain, load))
    return {
        "overload": tuple(map(report_terms.overload, load)),
        "sure_drain": drain,
        "first_departure": first,
    }


def neighbors_of(ids, delay_s=0.0, *, beat_s=0.05, period_s=0.05):
    """The table of cluster a, all of whose links are alike."""
    return Neighbors("a", list(ids), [delay_s] * len(ids), beat_s, period_s)
