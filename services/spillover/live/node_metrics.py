"""The metrics of one node: built from `model.signals`, in a registry of its own.

Counters and histograms are written as things happen; everything that can be read off the machine
is read when Prometheus asks. Besides, the usual metrics of the process: memory, CPU, open files.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import product

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from spillover.core.node import NodeMachine
from spillover.live.timers import Timers
from spillover.model import signals
from spillover.model.request import Answer, Outcome
from spillover.model.signals import Signal

REFUSED = "refused"

FORWARD_ENDS = ("answered", REFUSED, "lost", "recalled")
"""What can become of a forward; see `peer_link`."""


class NodeMetrics:
    """What the node counts. Every label set is bounded by the neighbors and the outcomes."""

    def __init__(self, machine: NodeMachine, timers: Timers) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_MachineCollector(machine, timers))
        ProcessCollector(registry=self.registry)
        self._cluster = machine.settings.cluster
        # Made ahead: rates start at 0 instead of out of nothing, and counting looks nothing up.
        ends = [*(outcome.value for outcome in Outcome), REFUSED]
        neighbors = machine.neighbors.ids
        self._requests = self._counters(signals.REQUESTS, [(end,) for end in ends])
        self._received = self._counters(signals.RECEIVED, product(neighbors, ends))
        self._forwards = self._counters(signals.FORWARDS, product(neighbors, FORWARD_ENDS))
        self._system_time = self._histogram(signals.SYSTEM_TIME)
        self._queue_wait = self._histogram(signals.QUEUE_WAIT)
        self._hops = self._histogram(signals.HOPS)
        self.forwards_left = 0
        """Forwards since the start, whatever came back."""

    def home_ended(self, answer: Answer) -> None:
        """A client's request has its answer."""
        self._requests[answer.outcome.value,].inc()
        if answer.outcome is Outcome.DONE:
            self._system_time.observe(answer.total_s)
            self._queue_wait.observe(answer.queued_s)
            self._hops.observe(len(answer.path) - 1)

    def home_refused(self) -> None:
        self._requests[REFUSED,].inc()

    def foreign_ended(self, neighbor: str, outcome: str) -> None:
        self._received[neighbor, outcome].inc()

    def forwarded(self, neighbor: str, outcome: str) -> None:
        self._forwards[neighbor, outcome].inc()

    def _counters(
        self, signal: Signal, label_values: Iterable[tuple[str, ...]]
    ) -> dict[tuple[str, ...], Counter]:
        # The client library appends _total itself.
        name = signal.name.removesuffix("_total")
        labels = ("cluster", *signal.labels)
        counter = Counter(name, signal.help, labels, registry=self.registry)
        return {values: counter.labels(self._cluster, *values) for values in label_values}

    def _histogram(self, signal: Signal) -> Histogram:
        histogram = Histogram(
            signal.name,
            signal.help,
            ("cluster",),
            buckets=signal.buckets,
            registry=self.registry,
        )
        return histogram.labels(self._cluster)


class _MachineCollector(Collector):
    """Reads the machine's state at each scrape."""

    def __init__(self, machine: NodeMachine, timers: Timers) -> None:
        self._machine = machine
        self._timers = timers

    def collect(self) -> Iterator[Metric]:
        machine = self._machine
        values = {
            signals.QUEUE_LENGTH: machine.queue_length,
            signals.SERVERS: machine.settings.servers,
            signals.SERVERS_BUSY: machine.busy,
            signals.SERVERS_STUCK: machine.stuck,
            signals.ACCEPT_PROBABILITY: machine.accept_probability,
            signals.NEIGHBORHOOD_ACCEPT_PROBABILITY: machine.neighborhood_accept_probability,
            signals.LOOP_LAG: self._timers.take_lag_s(),
            signals.LEDGER_IMBALANCE: machine.ledger.imbalance(),
        }
        for signal, value in values.items():
            family = _gauge(signal)
            family.add_metric([machine.settings.cluster], value)
            yield family
        yield self._neighbor_ages()
        yield self._ledger()

    def _neighbor_ages(self) -> Metric:
        family = _gauge(signals.NEIGHBOR_STATE_AGE)
        for view in self._machine.neighbors.view(time.monotonic()):
            if view.age_s is not None:
                family.add_metric([self._machine.settings.cluster, view.id], view.age_s)
        return family

    def _ledger(self) -> Metric:
        family = _gauge(signals.LEDGER)
        ledger = self._machine.ledger
        for side, entries in (("home", ledger.home), ("foreign", ledger.foreign)):
            for entry, count in entries.items():
                family.add_metric([self._machine.settings.cluster, side, entry], count)
        return family


def _gauge(signal: Signal) -> GaugeMetricFamily:
    return GaugeMetricFamily(signal.name, signal.help, labels=["cluster", *signal.labels])
