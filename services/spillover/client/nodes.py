"""The choice among several nodes: the current one is asked, then the rest in order; those that
failed are passed over for a while. Nodes say themselves which of them are of one cluster, where
names are known to all. There is no I/O here: time and draws are arguments. A session that follows
membership changes the list by `replace` and `use`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from random import Random

from spillover.policy.backoff import backoff_s

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
TRIAL_S = 2.0
"""The time, in seconds, for which one request tries a node whose pause is over while others still
go elsewhere."""


@dataclass(slots=True)
class _Pause:
    failures: int
    until_s: float
    on_trial: bool = False


class Nodes:
    """The nodes of one client, by their base URLs. The first is the current one."""

    def __init__(self, urls: Sequence[str], rng: Random) -> None:
        self._rng = rng
        self._pauses: dict[str, _Pause] = {}
        self._clusters: dict[str, bytes] = {}
        """The name of each node's cluster; empty if it is a cluster of one node."""
        self.replace(urls)

    @property
    def urls(self) -> tuple[str, ...]:
        """Returns all nodes, in the order in which they were given."""
        return self._urls

    @property
    def current(self) -> str:
        """Returns the node that is asked while it does not fail."""
        return self._current

    @property
    def is_calm(self) -> bool:
        """Returns whether the current node is asked, since none has failed."""
        return not self._pauses

    def replace(self, urls: Sequence[str]) -> None:
        """Take another list. The current node stays if it is in the list; else the first one
        becomes it."""
        if not urls:
            raise ValueError("expected at least one node")
        self._urls = tuple(dict.fromkeys(urls))
        for url in self._pauses.keys() - set(self._urls):
            del self._pauses[url]
        for url in self._clusters.keys() - set(self._urls):
            self._clusters.pop(url, None)
        self._current = getattr(self, "_current", "")
        if self._current not in self._urls:
            self._current = self._urls[0]

    def use(self, url: str) -> None:
        """Make this the current node; it joins the list if it was not there."""
        if url not in self._urls:
            self._urls = (url, *self._urls)
        self._current = url

    def choose(self, now_s: float, asked: Collection[str] = ()) -> str | None:
        """Returns the node to ask now, of those not in `asked`; None if all are. A node that failed
        is passed over until its pause ends, then one request tries it. If none is left but those,
        it is the one whose pause ends first."""
        if not self._pauses and self._current not in asked:
            return self._current
        resting: list[tuple[float, str]] = []
        for url in self._in_turn():
            if url in asked:
                continue
            pause = self._pauses.get(url)
            if pause is None:
                return url
            if now_s >= pause.until_s:
                pause.until_s, pause.on_trial = now_s + TRIAL_S, True
                return url
            resting.append((pause.until_s, url))
        return min(resting)[1] if resting else None

    def of_cluster(self, url: str, cluster: bytes) -> None:
        """Note the cluster of a node; the name is empty if the cluster has one node."""
        if self._clusters.get(url) != cluster and url in self._urls:
            self._clusters[url] = cluster

    def cluster_of(self, url: str) -> bytes:
        """Returns the cluster of a node; empty if it is not known, or has one node."""
        return self._clusters.get(url, b"")

    def choose_of(self, cluster: bytes, now_s: float, asked: Collection[str]) -> str | None:
        """Returns the node of this cluster to ask now, as `choose` does."""
        return self.choose(now_s, {*self._urls, *asked} - self._left(cluster, asked))

    def are_all_asked(self, cluster: bytes, asked: Collection[str]) -> bool:
        """Returns whether `choose_of` has none."""
        return not self._left(cluster, asked)

    def to_be_asked_whose(self, now_s: float) -> list[str]:
        """Returns the nodes whose cluster is not known, except those that failed lately."""
        unknown = [url for url in self._urls if url not in self._clusters]
        return [url for url in unknown if self._is_over(url, now_s)]

    def succeeded(self, url: str) -> None:
        if self._pauses:
            self._pauses.pop(url, None)

    def failed(self, url: str, now_s: float, at_least_s: float = 0.0) -> None:
        """Note that the node was not reached, or does not take requests now. Many failures at the
        same time, for one reason, count once."""
        if url not in self._urls:
            return
        pause = self._pauses.get(url)
        if pause is not None and now_s < pause.until_s and not pause.on_trial:
            return
        failures = 0 if pause is None else pause.failures + 1
        rest_s = backoff_s(failures, FIRST_PAUSE_S, LONGEST_PAUSE_S, self._rng.random())
        self._pauses[url] = _Pause(failures, now_s + max(rest_s, at_least_s))

    def _left(self, cluster: bytes, asked: Collection[str]) -> set[str]:
        if not cluster:
            return set()
        return {url for url in self._urls if self.cluster_of(url) == cluster}.difference(asked)

    def _is_over(self, url: str, now_s: float) -> bool:
        pause = self._pauses.get(url)
        return pause is None or now_s >= pause.until_s

    def _in_turn(self) -> list[str]:
        at = self._urls.index(self._current)
        return [*self._urls[at:], *self._urls[:at]]
