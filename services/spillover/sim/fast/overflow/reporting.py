"""Reports between the clusters of a kernel, and loads that come with all else.

A report is made at its instant and put into the sender's ring; no event carries it to a neighbor.
The neighbor looks into the ring when it needs to know, and takes the newest whose way has ended:
the delay of a link is constant, so that reports cannot overtake each other. Only the first report
over each link is an event, since its receiver, who now hears a new neighbor, reports at once.

Exactness: a neighbor is never silent without faults (reports or signs of life come at most 0.25 s
apart, and `core.overflow.neighbors` waits for at least two), so that it is known from its first
report on.
"""

from __future__ import annotations

from typing import Any

from spillover.policy.overflow.base import accept_probability, neighborhood_reject_probability
from spillover.policy.overflow.estimate import residual
from spillover.sim.fast.compile import inlined, inner
from spillover.sim.fast.overflow.heap import push
from spillover.sim.fast.overflow.loads import accepts, departure_s, take_load, tell, work_out
from spillover.sim.fast.overflow.state import ByLoad, KernelState


@inlined
def has_arrived(s: KernelState, at_s: float, made: int) -> bool:
    """Returns whether what was due at `at_s` comes before the event that is handled, or is it."""
    run = s.run[0]
    if at_s == run.now_s:
        return bool(made <= run.now_made)
    return bool(at_s < run.now_s)


@inner
def refresh(s: KernelState, link: int) -> None:
    """Take over the newest report that has arrived over this link, if there is a newer one."""
    end = s.links[link]
    sender = s.clusters[end.peer]
    if end.seen == sender.sequence or not s.table.known[link]:
        return
    delay_s = s.table.delays_s[link]
    place = end.mirror - sender.links_from
    # What has left the ring arrived long ago.
    newest = max(end.seen, sender.sequence - sender.ring_mask - 1)
    while newest < sender.sequence:
        report = s.reports[sender.ring_from + ((newest + 1) & sender.ring_mask)]
        if not has_arrived(s, report.at_s + delay_s, report.made + place):
            break
        newest += 1
    if newest > end.seen:
        end.seen = newest
        _believe(s, link, s.reports[sender.ring_from + (newest & sender.ring_mask)])


@inlined
def hears_us(s: KernelState, link: int) -> bool:
    """Returns whether the report held says that the neighbor hears the owner of the link."""
    end = s.links[link]
    return bool(end.seen >= s.links[end.mirror].hears_from)


@inlined
def _believe(s: KernelState, link: int, report: Any) -> None:
    """One that does not hear us accepts nothing from us, whatever it says of itself."""
    table, is_heard = s.table, hears_us(s, link)
    table.lengths[link] = report.waiting
    table.departure_s[link] = report.departure_s
    table.residual[link] = report.residual
    if report.told > s.links[link].told:
        take_load(s, s.by_load, link, report, report.at_s + table.delays_s[link])
    work_out(s, s.by_load, link)
    table.accepting[link] = report.accepting and is_heard
    table.accept[link] = report.accept if is_heard else 0.0
    table.reject_near[link] = 1.0 - (report.near if is_heard else 0.0)


@inner
def hear(s: KernelState, by_load: ByLoad | None, link: int, message: Any) -> None:
    """A message that came over this link tells the neighbor's load: `Neighbors.heard_load`."""
    if by_load is None:
        return
    refresh(s, link)
    if s.table.known[link] and message.told > s.links[link].told:
        take_load(s, by_load, link, message, s.run[0].now_s)
        work_out(s, by_load, link)
        s.table.accepting[link] = message.accepting and hears_us(s, link)


@inlined
def hear_with(s: KernelState, by_load: ByLoad | None, link: int, slot: int) -> None:
    """The same of what a request has taken along."""
    if by_load is None:
        return
    hear(s, by_load, link, by_load.told[slot])


@inner
def publish(s: KernelState, x: int) -> None:
    """Report (P, R) and the queue to every neighbor."""
    run, cluster, table = s.run[0], s.clusters[x], s.table
    start, stop = cluster.links_from, cluster.links_to
    for link in range(start, stop):
        refresh(s, link)
    accepting = accepts(cluster)
    accept = accept_probability(cluster.waiting, cluster.servers) if accepting else 0.0
    reject = neighborhood_reject_probability(
        accept, table.accept[start:stop], table.known[start:stop]
    )
    cluster.sequence += 1
    report = s.reports[cluster.ring_from + (cluster.sequence & cluster.ring_mask)]
    report.at_s = run.now_s
    report.made = run.made + 1
    report.accept = accept
    report.near = 1.0 - reject
    report.waiting = cluster.waiting
    report.accepting = accepting
    tell(s, s.by_load, x, report)
    report.departure_s = departure_s(cluster)
    report.residual = residual(cluster.service_s, cluster.variance_s2)
    run.reports += stop - start
    if cluster.sequence > 1:
        run.made += stop - start
        return
    for link in range(start, stop):
        push(s, run.now_s + table.delays_s[link], first_heard(s, s.links[link].mirror))


@inlined
def first_heard(s: KernelState, link: int) -> int:
    """Returns the number of the event that the first report has come over this link. It is
    negative, since it belongs to no slot."""
    return -1 - len(s.clusters) - link


@inner
def hear_first(s: KernelState, link: int) -> None:
    """The owner of the link hears its neighbor from now on, and says so."""
    x = s.links[link].owner
    s.table.known[link] = True
    s.links[link].hears_from = s.clusters[x].sequence + 1
    publish(s, x)
