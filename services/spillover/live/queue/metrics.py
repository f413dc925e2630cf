"""The metrics of one producer: built from `model.signals.queue`, in a registry of its own.

Counted as things happen, or read off the machine when Prometheus asks. Besides, the usual metrics
of the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from spillover.core.queue import events as ev
from spillover.core.queue.producer import ProducerMachine
from spillover.live.engine.metric_types import Counters, Histogram, counter, gauges
from spillover.live.queue.bodies import Bodies
from spillover.model.signals import queue as signals

LABEL = "node"

TAKE_ENDS: dict[type, str] = {
    ev.Give: "here",
    ev.Direct: "elsewhere",
    ev.NoObject: "nothing",
    ev.RefuseTake: "refused",
}
ACCEPTED = "accepted"
OFFER_ENDS = (ACCEPTED, *(reason.value for reason in ev.Reason))


class QueueMetrics(Collector):
    """The metrics of one producer. Labels are bounded: outcomes only."""

    def __init__(
        self, machine: ProducerMachine, bodies: Bodies, oldest_s: Callable[[], dict[str, float]]
    ) -> None:
        self._machine = machine
        self._oldest_s = oldest_s
        self._bodies = bodies
        takes = Counters(signals.TAKES_ENDED, [(end,) for end in TAKE_ENDS.values()])
        offers = Counters(signals.OFFERS_ENDED, [(end,) for end in OFFER_ENDS])
        self._takes, self._offers = takes.counts, offers.counts
        self._wait = Histogram(signals.WAIT)
        self._written = (takes, offers, self._wait)
        self.sent_bytes = 0
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def count(self, command: Any) -> None:
        """An answer has gone to whoever called."""
        if isinstance(command, ev.Accept):
            self._offers[ACCEPTED,] += 1
        elif isinstance(command, ev.RefuseOffer):
            self._offers[command.reason.value,] += 1
        elif isinstance(command, ev.Give) and command.probes == 0:
            return  # of a grant that is fetched: its take ended elsewhere
        elif (end := TAKE_ENDS.get(type(command))) is not None:
            self._takes[end,] += 1

    def waited(self, wait_s: float) -> None:
        """A take has come to an object after this time."""
        self._wait.observe(wait_s)

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, at each scrape of `prometheus_client`."""
        machine, name = self._machine, self._machine.settings.id
        for written in self._written:
            yield written.collect(name, LABEL)
        objects = machine.objects
        values = {
            signals.BUFFERED: objects.buffered,
            signals.GRANTED: len(objects.granted),
            signals.DEAD: len(objects.dead),
            signals.RESTING: len(objects.resting),
            signals.BUFFERS: machine.settings.buffers,
            signals.PARKED: len(machine.parked_probes),
            signals.TAKES: len(machine.takes),
            signals.OFFERS_WAITING: machine.waiting,
            signals.HELD_BYTES: self._bodies.memory_bytes,
            signals.HELD_LIMIT: machine.settings.held_limit_bytes,
            signals.DURABLE: int(self._bodies.is_durable),
        }
        for signal, value in values.items():
            yield from gauges(signal, name, [((), value)], LABEL)
        oldest = [((what,), wait_s) for what, wait_s in self._oldest_s().items()]
        yield from gauges(signals.OLDEST, name, oldest, LABEL)
        counts = {
            signals.PRODUCED: objects.produced,
            signals.ACKNOWLEDGED: objects.acknowledged,
            signals.RETURNED: machine.returned,
            signals.SENT_BYTES: self.sent_bytes,
        }
        for signal, value in counts.items():
            yield counter(signal, name, [((), value)], LABEL)
        probes = [((end,), count) for end, count in machine.probes.items()]
        yield counter(signals.PROBES, name, probes, LABEL)
