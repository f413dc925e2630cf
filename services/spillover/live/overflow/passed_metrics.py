"""The metrics of a node through which requests pass, besides those of all nodes."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from spillover.live.engine.metric_types import Histogram, counter, gauges
from spillover.live.overflow.relay import Relays
from spillover.model.ids import ClusterId
from spillover.model.signals import passed as signals


class PassedMetrics:
    """What passes, and how long heads take."""

    def __init__(self, relays: Relays) -> None:
        self._relays = relays
        self._head = Histogram(signals.PASSED_HEAD)
        relays.on_head = self._head.observe

    def collect(self, cluster: ClusterId) -> Iterator[Metric]:
        ends = [((end,), count) for end, count in self._relays.ends.items()]
        yield counter(signals.PASSED_RESPONSES, cluster, ends)
        yield self._head.collect(cluster)
        yield from gauges(signals.PASSING, cluster, [((), self._relays.begun)])
