"""The times at which a cluster speaks to its neighbors: a report in each period, a sign of life in
between.

The first report falls on a random phase: clusters started together must not speak in step forever.
"""

from __future__ import annotations

import math
from random import Random

from spillover.core.overflow.evidence import least_failed
from spillover.core.overflow.facts import NodeFacts
from spillover.core.overflow.groups import Group
from spillover.model.load import GroupLoad, LoadNow, LoadReport

HEARTBEAT_S = 0.25
"""The longest time, in seconds, between two signs of life (design, decision 3). They are beats
where reports are rarer, and otherwise reports; the shell may leave out reports that repeat others,
but not for longer."""


class Gossip:
    """The two timers. Periods that were slept through are left out, not made up for."""

    def __init__(self, period_s: float, random: Random, now_s: float) -> None:
        self._period_s = period_s
        self._report_s = now_s + random.random() * period_s
        self._beat_s = now_s + HEARTBEAT_S if period_s > HEARTBEAT_S else math.inf
        self.next_s = min(self._report_s, self._beat_s)
        """The time when one of the two is due next."""
        self.sequence = 0
        """The number of the last report, or of the last load told in another message."""

    def report(self, node: NodeFacts, now_s: float) -> LoadReport:
        """Returns what is reported now, in its turn or out of turn."""
        self.sequence += 1
        servers, admission = node.servers, node.admission
        relay_hops = admission.relay_hops
        relay_by = node.neighbors.only_best() if relay_hops else ""
        return LoadReport(
            epoch=node.settings.epoch,
            sequence=self.sequence,
            accept_probability=node.accept_probability,
            neighborhood_accept_probability=node.neighborhood_accept_probability,
            queue_length=max(0, node.ahead) if servers.counts_work else servers.site_waiting,
            servers=node.settings.servers,
            accepting=node.accepting,
            hears=node.neighbors.heard_now(),
            degraded=node.health.degraded or relay_hops > 0,
            failed_share=node.health.failed_share(now_s),
            least_failed=least_failed(node, now_s),
            next_failed=least_failed(node, now_s, but=relay_by) if relay_by else None,
            relay_hops=relay_hops,
            relay_by=relay_by,
            invites=relay_hops > 0 and admission.invites,
            ahead=node.ahead,
            load=node.home_load.at(now_s, servers.departure_s),
            departure_s=servers.departure_s,
            residual=servers.residual,
            groups=() if node.groups.only else self._groups(node, now_s),
            passes=node.settings.passes,
        )

    @staticmethod
    def _groups(node: NodeFacts, now_s: float) -> tuple[GroupLoad, ...]:
        """Returns the reports on the groups of types that are named and served here."""
        told = []
        for group in node.groups.named:
            fitting, accept = group.fitting, node.accept_probability_of(group)
            told.append(
                GroupLoad(
                    group.id,
                    accept,
                    group.neighbors.accept_probability_with(accept),
                    fitting.up,
                    node.admission.takes(fitting),
                    node.ahead_of(group),
                    group.home_load.at(now_s, fitting.departure_s),
                    fitting.departure_s,
                    fitting.residual,
                )
            )
        return tuple(told)

    def load_now(self, node: NodeFacts, group: Group, now_s: float) -> LoadNow:
        """Returns the load that a message to a neighbor about a request carries: that of the
        request's group."""
        self.sequence += 1
        fitting = group.fitting
        return LoadNow(
            node.settings.epoch,
            self.sequence,
            node.ahead_of(group),
            group.home_load.at(now_s, fitting.departure_s),
            node.admission.takes(fitting),
        )

    def report_due(self, now_s: float) -> bool:
        """Returns whether to report now; if so, the next one is a period later."""
        if self._report_s > now_s:
            return False
        self._report_s = _after(self._report_s, self._period_s, now_s)
        self.next_s = min(self._report_s, self._beat_s)
        return True

    def beat_due(self, now_s: float) -> bool:
        if self._beat_s > now_s:
            return False
        self._beat_s = _after(self._beat_s, HEARTBEAT_S, now_s)
        self.next_s = min(self._report_s, self._beat_s)
        return True


def _after(last_s: float, period_s: float, now_s: float) -> float:
    """Returns the first multiple of the period after `last_s` that is later than now."""
    due_s = last_s + period_s * (math.floor((now_s - last_s) / period_s) + 1)
    # Rounding may put it at this very time, which has had its report.
    return due_s if due_s > now_s else due_s + period_s
