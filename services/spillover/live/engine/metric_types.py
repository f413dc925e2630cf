"""Counters and histograms that cost a list index to write: read out only when Prometheus asks.

The client library's own take a lock and a method call or two for each write, which is more than the
decision that they count.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from spillover.model.signals.signal import Signal


class Counters:
    """A counter with one count for each set of label values, all known ahead: rates start at 0
    instead of out of nothing, and the label sets are bounded by what is listed here."""

    def __init__(self, signal: Signal, label_values: Iterable[tuple[str, ...]]) -> None:
        self._signal = signal
        self.counts = dict.fromkeys(label_values, 0)

    def collect(self, source: str, label: str = "cluster") -> Metric:
        """`source` is the value of the label that all metrics of a process carry."""
        return counter(self._signal, source, self.counts.items(), label)


class Histogram:
    """A histogram without labels of its own. Buckets are upper bounds, inclusive."""

    def __init__(self, signal: Signal) -> None:
        self.signal = signal
        self.bounds = signal.buckets
        self.counts = [0] * (len(signal.buckets) + 1)
        self.total = 0.0
        """The sum of all values."""

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def collect(self, source: str, label: str = "cluster") -> Metric:
        family = HistogramMetricFamily(self.signal.name, self.signal.help, labels=[label])
        bounds = [*(str(float(bound)) for bound in self.bounds), "+Inf"]
        buckets = list(zip(bounds, accumulate(self.counts), strict=True))
        family.add_metric([source], buckets=buckets, sum_value=self.total)
        return family


def counter(
    signal: Signal,
    source: str,
    values: Iterable[tuple[tuple[str, ...], float]],
    label: str = "cluster",
) -> Metric:
    """One counter that is kept by something else, read now; `values` by the signal's own labels."""
    # The client library appends _total itself.
    name = signal.name.removesuffix("_total")
    family = CounterMetricFamily(name, signal.help, labels=[label, *signal.labels])
    for labels, count in values:
        family.add_metric([source, *labels], count)
    return family


def gauges(
    signal: Signal,
    source: str,
    values: Iterable[tuple[tuple[str, ...], float]],
    label: str = "cluster",
) -> Iterator[Metric]:
    """One gauge, read now; `values` by the signal's own labels."""
    family = GaugeMetricFamily(signal.name, signal.help, labels=[label, *signal.labels])
    for labels, value in values:
        family.add_metric([source, *labels], value)
    yield family
