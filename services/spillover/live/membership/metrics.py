"""The metrics of a node's configuration, read when Prometheus asks."""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from spillover.core.membership.configuration import ConfigurationMachine
from spillover.live.engine.metric_types import counter, gauges
from spillover.model.signals import membership as signals


class ConfigurationMetrics(Collector):
    """The metrics of one node's configuration."""

    def __init__(self, cluster: str, machine: ConfigurationMachine) -> None:
        self._cluster = cluster
        self._machine = machine
        self.changes = 0
        self.superseded = 0
        self.refused = 0
        """The number of configurations that neighbors have told and that were not taken."""

    def collect(self) -> Iterator[Metric]:
        stamp = self._machine.current.stamp
        yield from gauges(signals.VERSION, self._cluster, [((), stamp.version)])
        yield from gauges(signals.ID, self._cluster, [((), crc32(stamp.told.encode()))])
        yield counter(signals.CHANGES, self._cluster, [((), self.changes)])
        yield counter(signals.REFUSED, self._cluster, [((), self.refused)])
        yield counter(signals.SUPERSEDED, self._cluster, [((), self.superseded)])
