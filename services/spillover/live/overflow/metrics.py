"""The metrics of one node: built from `model.signals.node`, in a registry of its own.

Counters and histograms are written as things happen; all that the machine knows is read when
Prometheus asks. The usual metrics of the process come besides: memory, CPU, open files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import product

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from spillover.core.overflow.idempotency import IdempotencyTable
from spillover.core.overflow.machine import NodeMachine
from spillover.core.overflow.pools import learned_servers
from spillover.live.engine.metric_types import (
    Counters,
    Histogram,
    counter,
    gauges,
)
from spillover.live.engine.timers import Timers
from spillover.live.overflow.gateway_metrics import GatewayMetrics
from spillover.live.overflow.recent import REFUSED, Recent
from spillover.live.overflow.relay import Relays
from spillover.live.overflow.shared_connection import SharedCounts
from spillover.live.overflow.size_metrics import size_metrics
from spillover.live.overflow.token_metrics import token_metrics
from spillover.model.ids import ClusterId
from spillover.model.request import DONE, Answer, Outcome, Refusal
from spillover.model.signals import node as signals
from spillover.policy.overflow.choosers import POLICY_NAMES

ENDS = (*(outcome.value for outcome in Outcome), REFUSED)
"""The ways in which a request can end."""

FORWARD_ENDS = ("answered", REFUSED, "lost", "recalled")
"""The ways in which a forward can end; see `peer_link`."""

REPORT, ANSWER, REQUEST, STATES = "report", "answer", "request", "states"
FRAME, RAISED = "frame", "raised"
LINE = "line"
PEER_MESSAGES = (REPORT, ANSWER, REQUEST, STATES, FRAME, RAISED)
"""The kinds of neighbors' messages that can be refused, with RAISED for those that made the machine
raise."""

SIBLING_MESSAGES = (LINE, RAISED)
"""The kinds of messages of other nodes of the cluster that can be refused, with RAISED as above."""

WAYS_TO_HAND = ("push", "pull")
"""The ways in which a forward can come about: a neighbor pulls what it has asked for, and anything
else is pushed."""


class NodeMetrics(Collector):
    """The metrics of the node. Every label set is bounded by neighbors, outcomes, and policies."""

    def __init__(self, machine: NodeMachine, timers: Timers, names: IdempotencyTable) -> None:
        self._machine = machine
        self._timers = timers
        self._names = names
        requests = Counters(signals.REQUESTS, [(end,) for end in ENDS])
        received = Counters(signals.RECEIVED, ())
        forwards = Counters(signals.FORWARDS, ())
        peer_refused = Counters(signals.PEER_REFUSED, ())
        refusals = Counters(signals.REFUSALS, [(reason.value,) for reason in Refusal])
        self._requests, self._received = requests.counts, received.counts
        self._refusals = refusals.counts
        self._forwards = forwards.counts
        self._peer_refused = peer_refused.counts
        self._system_time = Histogram(signals.SYSTEM_TIME)
        self._queue_wait = Histogram(signals.QUEUE_WAIT)
        self._hops = Histogram(signals.HOPS)
        self.passed_head = Histogram(signals.PASSED_HEAD)
        self.passed_ends: Mapping[str, int] = {}
        """The number of answers that had begun to pass through, by how they ended."""
        self.shared = SharedCounts()
        self.spans: Mapping[str, int] = {}
        """The number of spans of traces, by how they ended; empty where there are none."""
        self._written = (
            requests, refusals, received, forwards, peer_refused,
            self._system_time, self._queue_wait, self._hops, self.passed_head,
        )  # fmt: skip
        self.gateway = GatewayMetrics(names)
        self.tokens = token_metrics(machine)
        self.recent = Recent()
        self.forwards_left: dict[int, int] = {}
        """The number of forwards that left for each neighbor, by its handle, however they ended."""
        self.pulls_left: dict[int, int] = {}
        """The number of those forwards for which the neighbor had asked."""
        for neighbor in machine.neighbors:
            self.joined(neighbor.handle, neighbor.id)
        self.count_clients: Callable[[], tuple[int, int, int]] = lambda: (0, 0, 0)
        """Returns how many clients have a session here, how many have left for another server, and
        how many were put off."""
        self.engine_looks: Mapping[str, int] | None = None
        """The number of looks at engines' pages, by how they ended; None where no engine is
        watched."""
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def watched(self, relays: Relays) -> Relays:
        """Returns these relays, whose ends are counted from now on."""
        relays.on_head = self.passed_head.observe
        self.passed_ends = relays.ends
        return relays

    @property
    def answered(self) -> tuple[int, float]:
        """Returns how many clients' requests are done, and the sum of their system times in
        seconds."""
        return self._system_time.count, self._system_time.total

    def ended(self, *ends: str) -> int:
        """Returns how many clients' requests ended in one of these ways: an Outcome, or REFUSED."""
        return sum(self._requests[end,] for end in ends)

    def home_ended(self, answer: Answer) -> None:
        """Count a client's request that has its answer."""
        outcome = answer.outcome
        self._requests[outcome,] += 1
        if outcome is DONE:
            # As `Answer.total_s`, with one call less.
            total_s = answer.queued_s + answer.network_s + answer.service_s
            self._system_time.observe(total_s)
            self._queue_wait.observe(answer.queued_s)
            self._hops.observe(len(answer.path) - 1)
            self.recent.done(total_s)
        else:
            self.recent.ended(outcome)
            self.gateway.not_done(answer)

    def home_refused(self, reason: Refusal) -> None:
        """Count a client's request that was not accepted."""
        self._requests[REFUSED,] += 1
        self._refusals[reason,] += 1
        self.recent.ended(REFUSED)

    def foreign_ended(self, origin: int, outcome: str) -> None:
        """Count a neighbor's request that has its answer, unless the neighbor has left since."""
        neighbor = self._machine.neighbors.by_handle.get(origin)
        if neighbor is not None:
            self._received[neighbor.id, outcome] += 1

    def forwarded(self, neighbor: str, outcome: str) -> None:
        """Count the end of a forward, unless its neighbor has left since."""
        if (neighbor, outcome) in self._forwards:
            self._forwards[neighbor, outcome] += 1

    def sibling_refused(self, node: str, message: str) -> None:
        """Count a refused message of another node of the cluster, of a kind in SIBLING_MESSAGES."""
        self._peer_refused[node, message] = self._peer_refused.get((node, message), 0) + 1

    def peer_refused(self, neighbor: str, message: str) -> None:
        """Count a refused message of a neighbor, of a kind in PEER_MESSAGES, unless the neighbor
        has left since."""
        if (neighbor, message) in self._peer_refused:
            self._peer_refused[neighbor, message] += 1

    def handed_to(self, handle: int) -> tuple[int, int]:
        """Returns how many requests were handed to a neighbor: pushed, and pulled by it."""
        pulled = self.pulls_left[handle]
        return self.forwards_left[handle] - pulled, pulled

    def came_back(self, neighbor: str) -> dict[str, int]:
        """Returns how the forwards to a neighbor ended, by FORWARD_ENDS; all others are still
        away."""
        return {end: self._forwards[neighbor, end] for end in FORWARD_ENDS}

    def joined(self, handle: int, neighbor: str) -> None:
        self.forwards_left[handle] = self.pulls_left[handle] = 0
        self._received.update(dict.fromkeys(product([neighbor], ENDS), 0))
        self._forwards.update(dict.fromkeys(product([neighbor], FORWARD_ENDS), 0))
        self._peer_refused.update(dict.fromkeys(product([neighbor], PEER_MESSAGES), 0))

    def left(self, handle: int, neighbor: str) -> None:
        del self.forwards_left[handle], self.pulls_left[handle]
        for end in ENDS:
            del self._received[neighbor, end]
        for end in FORWARD_ENDS:
            del self._forwards[neighbor, end]
        for message in PEER_MESSAGES:
            del self._peer_refused[neighbor, message]

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, at each scrape of `prometheus_client`."""
        machine = self._machine
        cluster = machine.settings.cluster
        for written in self._written:
            yield written.collect(cluster)
        yield from self.gateway.collect(cluster)
        yield from self._pushes_and_pulls(cluster)
        yield from self._shadows(cluster)
        yield from self._shared_connections(cluster)
        passed = [((end,), count) for end, count in self.passed_ends.items()]
        yield counter(signals.PASSED_RESPONSES, cluster, passed)
        spans = [((end,), count) for end, count in self.spans.items()]
        yield counter(signals.SPANS, cluster, spans)
        if self.tokens is not None:
            yield from self.tokens.collect(cluster)
        values = {
            signals.QUEUE_LENGTH: machine.queue_length,
            signals.SERVERS: machine.servers.total,
            signals.SERVERS_BELIEVED: machine.servers.site_total,
            signals.SERVERS_BUSY: machine.servers.busy,
            signals.SERVERS_STUCK: len(machine.servers.stuck),
            signals.ACCEPT_PROBABILITY: machine.accept_probability,
            signals.NEIGHBORHOOD_ACCEPT_PROBABILITY: machine.neighborhood_accept_probability,
            signals.HELD_BYTES: machine.held.total_bytes + self._names.kept_bytes,
            signals.HELD_LIMIT_BYTES: machine.held.limit_bytes,
            signals.KEPT_BYTES: self._names.kept_bytes,
            signals.DEGRADED: float(machine.health.degraded),
            signals.RESTING: float(machine.servers.resting),
            signals.FOREIGN_WAITING: machine.servers.waiting_foreign,
            signals.FOREIGN_WAITING_LIMIT: machine.admission.foreign_waiting_limit,
            signals.HOME_LOAD: machine.home_load.load,
            signals.FAILED_SHARE: machine.health.failed_share(time.monotonic()),
            signals.LOOP_LAG: self._timers.take_lag_s(),
            signals.LEDGER_IMBALANCE: machine.ledger.imbalance(),
        }
        for signal, value in values.items():
            yield from gauges(signal, cluster, [((), value)])
        learned = learned_servers(machine.servers)
        moves = 0 if learned is None else learned.search.moves
        yield counter(signals.SERVERS_MOVES, cluster, [((), moves)])
        yield from size_metrics(machine, self.engine_looks, cluster)
        views = machine.neighbors.view(time.monotonic())
        ages = [((view.id,), view.age_s) for view in views if view.age_s is not None]
        yield from gauges(signals.NEIGHBOR_STATE_AGE, cluster, ages)
        ages = [((view.id,), view.load_age_s) for view in views if view.load_age_s is not None]
        yield from gauges(signals.NEIGHBOR_LOAD_AGE, cluster, ages)
        avoided = [((view.id,), float(view.avoided)) for view in views]
        yield from gauges(signals.NEIGHBOR_AVOIDED, cluster, avoided)
        missed = [((view.id,), view.missed) for view in views]
        yield counter(signals.FORWARDS_MISSED, cluster, missed)
        ledger = machine.ledger
        entries = [
            ((side, entry), count)
            for side, counts in (("home", ledger.home), ("foreign", ledger.foreign))
            for entry, count in counts.items()
        ]
        yield from gauges(signals.LEDGER, cluster, entries)

    def _pushes_and_pulls(self, cluster: ClusterId) -> Iterator[Metric]:
        machine = self._machine
        handed = [
            ((neighbor.id, by), count)
            for neighbor in machine.neighbors
            for by, count in zip(WAYS_TO_HAND, self.handed_to(neighbor.handle), strict=True)
        ]
        yield counter(signals.HANDED, cluster, handed)
        asks = [((end,), count) for end, count in machine.pulling.ends.items()]
        yield counter(signals.ASKS, cluster, asks)

    def _shared_connections(self, cluster: ClusterId) -> Iterator[Metric]:
        shared = self.shared
        connections = [((end,), float(len(found))) for end, found in shared.open.items()]
        yield from gauges(signals.SHARED_CONNECTIONS, cluster, connections)
        frames = [((way,), count) for way, count in shared.frames.items()]
        yield counter(signals.SHARED_FRAMES, cluster, frames)
        yield from gauges(signals.SHARED_UNSENT_BYTES, cluster, [((), shared.unsent_bytes)])

    def _shadows(self, cluster: ClusterId) -> Iterator[Metric]:
        """Yield the shadow's metrics for all policies, so that rates begin at 0 when one is asked
        along."""
        shadows = [self._machine.decider.shadow_of(policy) for policy in POLICY_NAMES]
        decisions = [
            ((one.policy, same), count)
            for one in shadows
            for same, count in (("true", one.same), ("false", one.other))
        ]
        yield counter(signals.SHADOW_DECISIONS, cluster, decisions)
        seconds = [
            ((one.policy, estimate), sum_s)
            for one in shadows
            for estimate, sum_s in (("saved", one.saved_s), ("lost", one.lost_s))
        ]
        yield counter(signals.SHADOW_SECONDS, cluster, seconds)
