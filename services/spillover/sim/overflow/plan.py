"""How many servers each site needs to keep p99 under a limit: each alone, and networked.

The search only; what a set of servers comes to is asked of `Judge`, which simulates. A site's p99
is that of the requests that came in there, wherever they ran.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from spillover.model.errors import InputError
from spillover.model.ids import ClusterId
from spillover.model.schedule import Schedule
from spillover.model.topology import Topology

Servers: TypeAlias = tuple[int, ...]
"""How many at each cluster, in the order of the topology."""

Judge: TypeAlias = Callable[[Servers, bool], Sequence[float]]
"""judge(servers, networked) -> p99 of each cluster's own requests in ms, infinity where more than
one in a hundred was not done; 0 where none came in, which keeps every limit."""

OnProgress: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """The fewest servers found, alone and networked; `judged` is how many runs that took."""

    cluster_ids: tuple[ClusterId, ...]
    isolated: Servers
    networked: Servers
    isolated_p99_ms: Sequence[float | None]
    networked_p99_ms: Sequence[float | None]
    """The p99 by cluster; None at clusters where no request comes in."""
    judged: int

    @property
    def saved_share(self) -> float:
        """Returns the share of the servers that the sites need alone which networking makes
        unnecessary."""
        return 1.0 - sum(self.networked) / sum(self.isolated)

    def as_dict(self) -> dict[str, object]:
        def side(servers: Servers, p99_ms: Sequence[float | None]) -> dict[str, object]:
            return {
                "servers": dict(zip(self.cluster_ids, servers, strict=True)),
                "total": sum(servers),
                "p99_ms": dict(zip(self.cluster_ids, p99_ms, strict=True)),
            }

        return {
            "isolated": side(self.isolated, self.isolated_p99_ms),
            "networked": side(self.networked, self.networked_p99_ms),
            "saved_share": self.saved_share,
            "runs": self.judged,
        }


class Planner:
    """Searches for the fewest servers under `limit_ms` at every cluster."""

    def __init__(
        self,
        topology: Topology,
        schedule: Schedule,
        limit_ms: float,
        judge: Judge,
        on_progress: OnProgress | None = None,
    ) -> None:
        self._topology = topology
        self._limit_ms = limit_ms
        self._judge = judge
        self._on_progress = on_progress
        self._known: dict[tuple[Servers, bool], Sequence[float]] = {}
        self._most = _never_waiting(topology, schedule)
        asked = {arrival.cluster for arrival in schedule}
        self._asked = [cluster in asked for cluster in topology.cluster_ids]

    def plan(self) -> ServerPlan:
        """Raises InputError where no number of servers keeps the limit."""
        p99_ms = self._judged(self._most, networked=False)
        worst_ms = max(p99_ms)
        if worst_ms > self._limit_ms:
            cluster = self._topology.cluster_ids[list(p99_ms).index(worst_ms)]
            raise InputError(
                "--p99-ms",
                "",
                f"expected at least {worst_ms:g}: what requests at cluster {cluster} take without "
                f"any waiting; got {self._limit_ms:g}",
            )
        isolated = self._isolated()
        networked = self._networked(isolated)
        return ServerPlan(
            self._topology.cluster_ids,
            isolated,
            networked,
            self._p99_ms(isolated, networked=False),
            self._p99_ms(networked, networked=True),
            len(self._known),
        )

    def _isolated(self) -> Servers:
        """Each cluster by bisection, all of them in the same runs: none matters to another."""
        low, high = [1] * len(self._most), list(self._most)
        while any(a < b for a, b in zip(low, high, strict=True)):
            middle = tuple((a + b) // 2 for a, b in zip(low, high, strict=True))
            for k, p99_ms in enumerate(self._judged(middle, networked=False)):
                if low[k] == high[k]:
                    continue
                if p99_ms <= self._limit_ms:
                    high[k] = middle[k]
                else:
                    low[k] = middle[k] + 1
            self._say(f"alone: {sum(high)} servers or fewer")
        return tuple(high)

    def _networked(self, start: Servers) -> Servers:
        """First all sites in proportion, by bisection; then one server less wherever that still
        keeps the limit, where there are most first, until that is nowhere."""
        best = self._in_proportion(start)
        while True:
            order = sorted(range(len(best)), key=lambda k: -best[k])
            for k in order:
                fewer = (*best[:k], best[k] - 1, *best[k + 1 :])
                if fewer[k] >= 1 and self._keeps(fewer):
                    best = fewer
                    break
            else:
                return best
            self._say(f"networked: {sum(best)} servers or fewer")

    def _in_proportion(self, start: Servers) -> Servers:
        """The smallest share of `start` that keeps the limit; `start` itself if nothing less does.

        Some other number of servers may do worse networked than alone: then the start is larger.
        """
        high, low = 1.0, 0.0
        best = start
        while not self._keeps(best):
            high *= 1.25
            best = _scaled(start, high)
        while _scaled(start, high) != _scaled(start, low) and high - low > 0.5 / sum(start):
            share = (low + high) / 2
            servers = _scaled(start, share)
            if self._keeps(servers):
                best, high = servers, share
            else:
                low = share
            self._say(f"networked: {sum(best)} servers or fewer")
        return best

    def _keeps(self, servers: Servers) -> bool:
        return max(self._judged(servers, networked=True)) <= self._limit_ms

    def _p99_ms(self, servers: Servers, *, networked: bool) -> list[float | None]:
        p99_ms = self._judged(servers, networked=networked)
        return [x if asked else None for x, asked in zip(p99_ms, self._asked, strict=True)]

    def _judged(self, servers: Servers, *, networked: bool) -> Sequence[float]:
        key = servers, networked
        if key not in self._known:
            self._known[key] = self._judge(servers, networked)
        return self._known[key]

    def _say(self, what: str) -> None:
        if self._on_progress is not None:
            self._on_progress(what)


def _scaled(servers: Servers, share: float) -> Servers:
    return tuple(max(1, round(m * share)) for m in servers)


def _never_waiting(topology: Topology, schedule: Schedule) -> Servers:
    """Returns at each cluster as many servers as ever serve at once if nothing has to wait."""
    changes: Mapping[ClusterId, list[tuple[float, int]]] = {c: [] for c in topology.cluster_ids}
    usual_ms = {c.id: c.service_ms for c in topology.clusters}
    for arrival in schedule:
        service_ms = arrival.service_ms
        taken_s = (usual_ms[arrival.cluster] if service_ms is None else service_ms) / 1e3
        changes[arrival.cluster] += [(arrival.time_s, 1), (arrival.time_s + taken_s, -1)]
    most = []
    for steps in changes.values():
        running = peak = 0
        for _, step in sorted(steps):
            running += step
            peak = max(peak, running)
        most.append(max(1, peak))
    return tuple(most)
