"""The metrics of a node's clients, read when Prometheus asks."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from spillover.live.engine.metric_types import counter, gauges
from spillover.live.membership.clients import Clients
from spillover.model.signals import clients as signals


class ClientMetrics(Collector):
    """Of one node."""

    def __init__(self, cluster: str, clients: Clients) -> None:
        self._cluster = cluster
        self._clients = clients

    def collect(self) -> Iterator[Metric]:
        yield from gauges(signals.CLIENTS, self._cluster, [((), len(self._clients))])
        yield counter(signals.MOVES, self._cluster, [((), self._clients.moves)])
        yield counter(signals.CONNECTS_REFUSED, self._cluster, [((), self._clients.refused)])
