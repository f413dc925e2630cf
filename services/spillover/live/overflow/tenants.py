"""The tenants of a running node: their quotas, which follow what the machine says, and their
metrics.

What a quota allows is in `core.overflow.quotas`. A node without API tokens has none of this.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from spillover.core.overflow import events as ev
from spillover.core.overflow.quotas import LIMITS, Quotas, TenantUse
from spillover.live.engine.metric_types import counter, gauges
from spillover.live.overflow.shell import NodeShell
from spillover.live.overflow.sibling_wire import TENANTS_MAX
from spillover.model.access import ApiToken
from spillover.model.signals import tenants as signals

TELL_S = 0.05
"""The time, in seconds, between two messages to other nodes of the cluster about what has changed.
What they let in meanwhile may be too much."""


class Tenants(Collector):
    """The tenants of one node; to be made before it runs."""

    def __init__(self, shell: NodeShell, tokens: Iterable[ApiToken]) -> None:
        self._shell = shell
        self._tells = False
        self._cluster = shell.cluster.id
        self._shown: list[str] = []
        self._quotas = shell.requests.home.quotas = Quotas()
        self.go_by(tokens)
        for kind in (ev.Start, ev.Forward):
            shell.interpreters[kind] = self._leaving_queue(shell.interpreters[kind])
        shell.metrics.registry.register(self)
        shell.on_change.append(self._share)
        self._share()

    def _share(self) -> None:
        """Have quotas count for the cluster where it has other nodes, now or from now on."""
        if self._shell.site is not None and not self._tells:
            self._tells = True
            self._shell.site.share_quotas(self._quotas)
            self._tell(time.monotonic())

    def _tell(self, due_s: float) -> None:
        if (site := self._shell.site) is not None:
            news = self._quotas.news(TENANTS_MAX)
            if news and not site.say_uses(news):
                self._quotas.not_told(news)
        self._shell.timers.at(due_s + TELL_S, self._tell)

    def go_by(self, tokens: Iterable[ApiToken]) -> None:
        quotas = {token.tenant: token.quota for token in tokens if token.tenant}
        self._shown = list(quotas)[: signals.TENANTS_SHOWN_MAX]
        self._quotas.go_by(quotas, time.monotonic())

    def _leaving_queue(self, interpret: Callable[[Any], None]) -> Callable[[Any], None]:
        leave_queue = self._quotas.leave_queue

        def interpreted(command: Any) -> None:
            leave_queue(command.ref)
            interpret(command)

        return interpreted

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics, at each scrape of `prometheus_client`."""
        shown = {tenant: [self._quotas.uses[tenant]] for tenant in self._shown}
        others = [use for tenant, use in self._quotas.uses.items() if tenant not in shown]
        rows: list[tuple[str, list[TenantUse]]] = list(shown.items())
        if signals.OTHER in shown:
            shown[signals.OTHER].extend(others)
        else:
            rows.append((signals.OTHER, others))
        cluster = self._cluster
        queued = [((tenant,), sum(use.queued for use in uses)) for tenant, uses in rows]
        yield from gauges(signals.TENANT_QUEUED, cluster, queued)
        running = [((tenant,), sum(use.running for use in uses)) for tenant, uses in rows]
        yield from gauges(signals.TENANT_RUNNING, cluster, running)
        requests = [((tenant,), sum(use.requests for use in uses)) for tenant, uses in rows]
        yield counter(signals.TENANT_REQUESTS, cluster, requests)
        limited = [
            ((tenant, limit), sum(use.limited[limit] for use in uses))
            for tenant, uses in rows
            for limit in LIMITS
        ]
        yield counter(signals.TENANT_LIMITED, cluster, limited)
