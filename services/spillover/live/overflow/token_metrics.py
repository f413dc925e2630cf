"""The metrics of a node whose cluster has a pool of unlike servers, besides those of all nodes.

Every label set is bounded by the topology: requests of types that the pool does not name are all
counted as OTHER.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any

from prometheus_client.core import Metric

from spillover.core.overflow.machine import NodeMachine
from spillover.core.overflow.pools import unlike_servers
from spillover.live.engine.metric_types import Counters, counter, gauges
from spillover.live.overflow.recent import REFUSED
from spillover.model.ids import ClusterId
from spillover.model.request import DONE, Answer, Outcome
from spillover.model.signals import tokens as signals

if TYPE_CHECKING:
    from spillover.core.tokens.servers import TokenServers

OTHER = "other"

UP = "up"
"""The state of a server that takes jobs."""


def token_metrics(machine: NodeMachine) -> TokenMetrics | None:
    """Returns the token metrics of a node; None where its servers are alike."""
    servers = unlike_servers(machine.servers)
    return None if servers is None else TokenMetrics(machine, servers)


class TokenMetrics:
    """The counts by class, by server and by type."""

    def __init__(self, machine: NodeMachine, servers: TokenServers[Any]) -> None:
        self._machine = machine
        self._servers = servers
        self._types = frozenset(servers.kinds)
        types = [*servers.kinds, OTHER] if OTHER not in servers.kinds else [*servers.kinds]
        ends = (*(outcome.value for outcome in Outcome), REFUSED)
        self._ends = ends
        self._requests = Counters(signals.TYPE_REQUESTS, product(types, ends))
        self._wait_s = dict.fromkeys(types, 0.0)
        """The seconds that requests which are done spent in queues on their whole path, by type."""
        self._system_time_s = dict.fromkeys(types, 0.0)

    def home_ended(self, kind: str, answer: Answer) -> None:
        """Count a client's request of this type that has its answer."""
        label = kind if kind in self._types else OTHER
        self._requests.counts[label, answer.outcome] += 1
        if answer.outcome is DONE:
            self._wait_s[label] += answer.queued_s
            self._system_time_s[label] += answer.total_s

    def home_refused(self, kind: str) -> None:
        """Count a client's request of this type that was not accepted."""
        self._requests.counts[kind if kind in self._types else OTHER, REFUSED] += 1

    def ended(self) -> Counter[str]:
        """Returns how many clients' requests have ended or were refused, by type."""
        counts, ends = self._requests.counts, self._ends
        return Counter({kind: sum(counts[kind, end] for end in ends) for kind in self._types})

    def collect(self, cluster: ClusterId) -> Iterator[Metric]:
        told = self._servers.told_here()
        for signal, field in (
            (signals.TOKENS_AVAILABLE, "available"),
            (signals.TOKENS_HELD, "held"),
            (signals.TOKENS_LIMIT, "limit"),
        ):
            values = [((each["id"],), each[field]) for each in told["classes"]]
            yield from gauges(signal, cluster, values)
        yield from gauges(signals.TOKENS_UNACCOUNTED, cluster, [((), told["unaccounted"])])
        servers = told["servers"]
        jobs = [((each["id"],), each["jobs"]) for each in servers]
        yield from gauges(signals.SERVER_JOBS, cluster, jobs)
        up = [((each["id"],), float(each["state"] == UP)) for each in servers]
        yield from gauges(signals.SERVER_UP, cluster, up)
        blocked = self._machine.blocked
        counts = [((kind,), blocked[kind]) for kind in self._servers.kinds]
        yield counter(signals.BLOCKED, cluster, counts)
        yield self._requests.collect(cluster)
        for signal, sums_s in (
            (signals.TYPE_QUEUE_WAIT, self._wait_s),
            (signals.TYPE_SYSTEM_TIME, self._system_time_s),
        ):
            values = [((kind,), sum_s) for kind, sum_s in sums_s.items()]
            yield counter(signal, cluster, values)
