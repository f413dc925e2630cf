"""The metrics of a service's certificates, read when Prometheus asks."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from spillover.live.engine.metric_types import counter, gauges
from spillover.live.tls.rotation import Credentials
from spillover.model.signals import tls as signals


class TlsMetrics(Collector):
    """The metrics of one service's certificates; `labelled` is the label that all of them carry,
    and its value."""

    def __init__(self, labelled: tuple[str, str], credentials: Credentials) -> None:
        self._label, self._service = labelled
        self._credentials = credentials

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, at each scrape of `prometheus_client`."""
        material = self._credentials.material
        ends = [(("own",), material.not_after_s), (("ca",), material.cas_not_after_s)]
        if material.between:
            ends.append((("chain",), material.between_not_after_s))
        yield from gauges(signals.NOT_AFTER, self._service, ends, self._label)
        failures = self._credentials.failures.items()
        yield counter(signals.HANDSHAKE_FAILURES, self._service, failures, self._label)
