"""What a client learns of which nodes are of one cluster: each answer of a node of several says it,
and after a broken connection those are asked that have not answered yet. What follows from it is
in `retrying`."""

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
"""Who may have lost a request waits at most so long to be told of another node to go on at."""

ASK_AGAIN_S = 5.0
"""A node that has not said whose it is, is asked again after so long: what stands before it may
have answered while it was away."""


class ClusterLearner:
    """This keeps `nodes` told of the cluster of each. `client_of` gives the client of a url."""

    def __init__(self, nodes: Nodes, client_of: Callable[[str], HttpClient]) -> None:
        self._nodes = nodes
        self._client_of = client_of
        self._asking = asyncio.Lock()
        self._asked_s: dict[str, float] = {}
        """When each node was asked last that has not said whose it is."""

    def note(self, url: str, answer: Response) -> None:
        """Note what an answer says. What stands before a node may answer in its place, but not with
        a 200."""
        cluster = answer.headers.get(wire.CLUSTER)
        if cluster is not None or answer.status == 200:
            self._nodes.of_cluster(url, cluster or b"")

    async def find_others(self, node: str) -> None:
        """Have the nodes that are not known yet say whether they are of this one's cluster, if that
        has several, as it says itself where its first answer is still to come. Many requests that
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
