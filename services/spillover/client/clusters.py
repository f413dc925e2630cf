"""The knowledge of a client on which nodes are of one cluster. Each answer of a node of several
names its cluster, and after a broken connection the nodes that have not answered yet are asked.
`retrying` has what follows from it."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

from spillover.client import wire
from spillover.client.nodes import Nodes
from spillover.live.http1.client import HttpClient
from spillover.live.http1.outgoing import Response
from spillover.model.errors import PeerError

ASK_WHOSE_S = 2.0
"""The longest time, in seconds, for which a request that may be lost waits for the name of another
node to go on at."""

ASK_AGAIN_S = 5.0
"""The time, in seconds, after which a node that has not named its cluster is asked again: a server
in front of it may have answered while it was away."""


class ClusterLearner:
    """This learns the cluster of each of the `nodes`. `client_of` gives the client of a url."""

    def __init__(self, nodes: Nodes, client_of: Callable[[str], HttpClient]) -> None:
        self._nodes = nodes
        self._client_of = client_of
        self._asking = asyncio.Lock()
        self._asked_s: dict[str, float] = {}
        """The time when each node was last asked that has not named its cluster."""

    def note(self, url: str, answer: Response) -> None:
        """Note the cluster that an answer names. A server in front of a node may answer in its
        place, but not with a 200."""
        cluster = answer.headers.get(wire.CLUSTER)
        if cluster is not None or answer.status == 200:
            self._nodes.of_cluster(url, cluster or b"")

    async def find_others(self, node: str) -> None:
        """Have the nodes whose cluster is not known say whether they are of this node's, if that
        has several nodes: the node itself is asked if it has not answered yet. Many requests that
        break together ask once."""
        if len(self._nodes.urls) == 1:
            return
        async with self._asking:
            if node in self._to_be_asked():
                await self._ask(node)
            if self._nodes.cluster_of(node):
                await asyncio.gather(*map(self._ask, self._to_be_asked()))

    def _to_be_asked(self) -> list[str]:
        now_s = time.monotonic()
        unknown = self._nodes.to_be_asked_whose(now_s)
        self._asked_s = {url: self._asked_s[url] for url in unknown if url in self._asked_s}
        return [url for url in unknown if now_s >= self._asked_s.get(url, -math.inf) + ASK_AGAIN_S]

    async def _ask(self, url: str) -> None:
        try:
            answer = await self._client_of(url).request(
                "GET", wire.HEALTH_PATH, timeout_s=ASK_WHOSE_S / 2.0
            )
        except PeerError:
            self._nodes.failed(url, time.monotonic())
            return
        self._asked_s[url] = time.monotonic()
        self.note(url, answer)
