"""The metrics of a node's configuration, read when Prometheus asks."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from spillover.core.membership.configuration import ConfigurationMachine
from spillover.live.engine.metric_types import counter, gauges
from spillover.model.signals import membership as signals


class ConfigurationMetrics(Collector):
    """Of one node."""

    def __init__(self, cluster: str, machine: ConfigurationMachine) -> None:
        self._cluster = cluster
        self._machine = machine
        self.changes = 0
        self.superseded = 0

    def collect(self) -> Iterator[Metric]:
        version = self._machine.current.stamp.version
        yield from gauges(signals.VERSION, self._cluster, [((), version)])
        yield counter(signals.CHANGES, self._cluster, [((), self.changes)])
        yield counter(signals.SUPERSEDED, self._cluster, [((), self.superseded)])
