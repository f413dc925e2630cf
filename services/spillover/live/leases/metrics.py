"""The metrics of one lease member: built from `model.signals.leases`, in a registry of its own.

Counted as things happen, or read off the member when Prometheus asks, from whichever thread that
is. Besides, the usual metrics of the process.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from spillover.core.leases import events as ev
from spillover.live.engine.metric_types import Counters, Histogram, gauges
from spillover.live.leases.group import LeaseGroup
from spillover.model.signals import leases as signals
from spillover.model.signals.signal import LOOP_LAG

LABEL = "node"

EVENTS_TOLD = (
    *(ev.CHALLENGED, ev.GRABBED, ev.ACQUIRED, ev.RELEASING, ev.RELEASED, ev.LOST, ev.FENCED),
    *(ev.RENEWED_LATE, ev.REDIS_DOWN, ev.REDIS_UP),
)


class LeaseMetrics(Collector):
    """Observes the member from its making on. Labels are bounded: events by their kinds, epochs by
    the partitions that are held at the time."""

    def __init__(self, member: LeaseGroup) -> None:
        self._member = member
        moves = Counters(signals.MOVES, [()])
        events = Counters(signals.EVENTS, [(event,) for event in EVENTS_TOLD])
        failures = Counters(signals.HANDLER_FAILURES, [()])
        self._moves, self._events, self._failures = moves.counts, events.counts, failures.counts
        self._lag = Histogram(signals.RENEW_LAG)
        self._written = (moves, events, failures, self._lag)
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)
        member.events.observer = self

    def told(self, event: str) -> None:
        self._events[event,] += 1
        if event == ev.ACQUIRED:
            self._moves[()] += 1

    def handler_failed(self) -> None:
        self._failures[()] += 1

    def renewed(self, late_s: float) -> None:
        self._lag.observe(late_s)

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, at each scrape of `prometheus_client`."""
        member = self._member
        for written in self._written:
            yield written.collect(member.node, LABEL)
        held = member.held
        values = {
            signals.HELD: len(held),
            signals.REDIS_UP: not member.machine.is_down,
            LOOP_LAG: member.loop_lag.take_s(),
        }
        for signal, value in values.items():
            yield from gauges(signal, member.node, [((), value)], LABEL)
        epochs = [((str(partition),), epoch) for partition, epoch in sorted(held.items())]
        yield from gauges(signals.EPOCH, member.node, epochs, LABEL)
