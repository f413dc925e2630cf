"""The load of the clusters of a kernel: measured, told with all that is sent, and taken over.

It stands for `core.overflow.home_load`, `Gossip.load_now` and the loads of
`core.overflow.neighbors`. Functions that are given `by_load` do nothing where it is None
(`state.KernelState`): what the own clients bring is 0 then.
"""

from __future__ import annotations

from typing import Any

from spillover.core.overflow.neighbor import SENDS_MAX
from spillover.policy.overflow.admission import takes_foreign
from spillover.policy.overflow.home_load import home_rate, load_of
from spillover.policy.overflow.report_terms import first_departure, overload, sure_drain
from spillover.sim.fast.compile import inlined, inner
from spillover.sim.fast.overflow.state import ByLoad, KernelState


@inlined
def departure_s(cluster: Any) -> float:
    """Returns how long the queue takes, on average, to become one shorter."""
    return cluster.service_s / cluster.servers  # type: ignore[no-any-return]


@inlined
def accepts(cluster: Any) -> bool:
    """Returns whether a neighbor's request would be accepted now."""
    free = cluster.free
    return takes_foreign(free, cluster.waiting, cluster.foreign_limit) and (
        free > 0 or cluster.waiting_foreign < cluster.foreign_waiting_max
    )


@inner
def measure(s: KernelState, by_load: ByLoad | None, x: int) -> None:
    """Bring the load of cluster x up to date. How often that is done changes its last bits."""
    if by_load is None:
        return
    run, cluster = s.run[0], s.clusters[x]
    one_s = departure_s(cluster)
    since_s = run.now_s - cluster.rated_s
    cluster.rate_hz = home_rate(cluster.rate_hz, cluster.came, since_s, one_s)
    cluster.rated_s = run.now_s
    cluster.came = 0
    cluster.load = load_of(cluster.rate_hz, one_s)


@inner
def tell(s: KernelState, by_load: ByLoad | None, x: int, message: Any) -> None:
    """Put into a message what it tells of the load of cluster x."""
    if by_load is None:
        return
    measure(s, by_load, x)
    cluster = s.clusters[x]
    cluster.told += 1
    message.told = cluster.told
    message.ahead = cluster.waiting - cluster.free
    message.load = cluster.load
    message.accepting = accepts(cluster)


@inlined
def tell_with(s: KernelState, by_load: ByLoad | None, slot: int, x: int) -> None:
    """Let a request take the load of cluster x along."""
    if by_load is None:
        return
    tell(s, by_load, x, by_load.told[slot])


@inlined
def take_load(
    s: KernelState, by_load: ByLoad | None, link: int, message: Any, heard_s: float
) -> None:
    """Take over what is newer than the load held."""
    if by_load is None:
        return
    sends, unreported = by_load.sends, by_load.unreported
    s.links[link].told = message.told
    by_load.told_s[link] = heard_s
    by_load.ahead[link] = message.ahead
    by_load.load[link] = message.load
    unknown_s = heard_s - 2.0 * s.table.delays_s[link]
    while unreported[link] > 0 and sends[link, s.links[link].sends_from] <= unknown_s:
        _drop_send(s, by_load, link)


@inlined
def work_out(s: KernelState, by_load: ByLoad | None, link: int) -> None:
    """`Neighbor._work_out`: after a load, or a report, was taken over."""
    if by_load is None:
        return
    load, table = by_load.load[link], s.table
    by_load.overload[link] = overload(load)
    by_load.sure_drain[link] = sure_drain(load)
    first = first_departure(table.residual[link], load, table.servers[link])
    by_load.first_departure[link] = first


@inlined
def _drop_send(s: KernelState, by_load: ByLoad, link: int) -> None:
    """Forget the oldest. The ring begins anew when it is empty, so that little of it is touched."""
    end, unreported = s.links[link], by_load.unreported
    unreported[link] -= 1
    end.sends_from = (end.sends_from + 1) % SENDS_MAX if unreported[link] > 0 else 0


@inlined
def note_send(s: KernelState, by_load: ByLoad | None, link: int) -> None:
    """A request leaves by this link, about which all that was heard is taken over."""
    if by_load is None:
        return
    unreported = by_load.unreported
    if unreported[link] == SENDS_MAX:
        _drop_send(s, by_load, link)
    place = (s.links[link].sends_from + unreported[link]) % SENDS_MAX
    by_load.sends[link, place] = s.run[0].now_s
    unreported[link] += 1
