"""The counts of a node at its doors and of the services behind it, as `model.signals.gateway` has
them.

Counters are written where a request ends, without a call where most requests pass, and read when
Prometheus asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from spillover.core.overflow.idempotency import IdempotencyTable
from spillover.live.engine.metric_types import counter, gauges
from spillover.model.causes import UPSTREAM_ENDS, Cause, cause_of
from spillover.model.ids import ClusterId
from spillover.model.request import Answer, Outcome
from spillover.model.signals import gateway as signals

if TYPE_CHECKING:
    from spillover.live.handlers.http.upstreams import Upstream

_CLASSES = len(signals.STATUSES) - 1
"""The highest first digit of a status that is counted; 0 counts answers without one. HTTP knows
none beyond it."""


USUAL = {
    Outcome.FAILED: (
        *(Cause.CONNECTION, Cause.UPSTREAM_STATUS, Cause.UPSTREAM_ANSWER),
        *(Cause.TIMEOUT, Cause.WORKER, Cause.NEIGHBOR),
    ),
    Outcome.REJECTED: (Cause.UPSTREAM_STATUS, Cause.WORKER, Cause.CLIENT),
    Outcome.EXPIRED: (Cause.QUEUE, Cause.TIMEOUT, Cause.CONNECTION, Cause.NEIGHBOR),
    Outcome.CANCELLED: (Cause.CLIENT,),
    Outcome.UNKNOWN: (Cause.NEIGHBOR,),
}
"""The values that are reported from the start, so that rates begin at 0. A neighbor may tell of
others."""


class HttpCounts:
    """The counts of one method on one route."""

    def __init__(self) -> None:
        self.statuses = [0] * 10
        """The number of answers by the first digit of the status; 0 where the client had gone
        before."""
        self.received_bytes = self.sent_bytes = 0


NOT_COUNTED = HttpCounts()
"""The counts that nobody reads."""


class HttpByRoute(dict[tuple[str, str], HttpCounts]):
    """Counts by method and route. A method that is none of the usual ones is counted as another."""

    def __missing__(self, door: tuple[str, str]) -> HttpCounts:
        method, route = door
        if method not in signals.METHODS and method != signals.OTHER:
            return self[signals.OTHER, route]
        counts = self[door] = HttpCounts()
        return counts


class GatewayMetrics:
    """The metrics of one node's door. `names` keeps the answers that are fetched later."""

    def __init__(self, names: IdempotencyTable) -> None:
        self._names = names
        self.http = HttpByRoute()
        self.upstreams: Callable[[], Iterable[Upstream]] = tuple
        """The services behind the node."""
        self._failures = {
            (outcome.value, cause.value): 0 for outcome, causes in USUAL.items() for cause in causes
        }

    def not_done(self, answer: Answer) -> None:
        """Count the outcome of a client's request that was accepted and is not done."""
        cause = cause_of(answer) or Cause.WORKER
        both = answer.outcome.value, cause.value
        self._failures[both] = self._failures.get(both, 0) + 1

    def collect(self, cluster: ClusterId) -> Iterator[Metric]:
        """Yield all of these metrics, at each scrape."""
        yield from self._http(cluster)
        yield counter(signals.FAILURES, cluster, self._failures.items())
        ends: dict[tuple[str, str], int] = {}
        ups: dict[str, bool] = {}
        parts: dict[tuple[str, str], float] = {}
        for upstream in self.upstreams():  # the same one may be behind several servers
            ups[upstream.name] = ups.get(upstream.name, False) or upstream.up
            for end in UPSTREAM_ENDS:
                label = upstream.name, end
                ends[label] = ends.get(label, 0) + upstream.ends[end]
            for part, size_bytes in upstream.affinity_bytes.items():
                label = upstream.name, part
                parts[label] = parts.get(label, 0.0) + size_bytes
        yield counter(signals.UPSTREAM_REQUESTS, cluster, ends.items())
        yield counter(signals.AFFINITY_BYTES, cluster, parts.items())
        states = [((name,), float(is_up)) for name, is_up in ups.items()]
        yield from gauges(signals.UPSTREAM_UP, cluster, states)
        yield from gauges(signals.RESULTS_UNFETCHED, cluster, [((), self._names.unfetched)])
        lost = [((why,), count) for why, count in self._names.lost.items()]
        yield counter(signals.RESULTS_LOST, cluster, lost)

    def _http(self, cluster: ClusterId) -> Iterator[Metric]:
        requests: list[tuple[tuple[str, ...], float]] = []
        received: dict[tuple[str, ...], int] = {}
        sent: dict[tuple[str, ...], int] = {}
        for (method, route), counts in list(self.http.items()):
            told = [*counts.statuses[:_CLASSES], sum(counts.statuses[_CLASSES:])]
            for status, count in zip(signals.STATUSES, told, strict=True):
                requests.append(((method, route, status), count))
            label = (route,)
            received[label] = received.get(label, 0) + counts.received_bytes
            sent[label] = sent.get(label, 0) + counts.sent_bytes
        yield counter(signals.HTTP_REQUESTS, cluster, requests)
        yield counter(signals.HTTP_RECEIVED_BYTES, cluster, received.items())
        yield counter(signals.HTTP_SENT_BYTES, cluster, sent.items())
