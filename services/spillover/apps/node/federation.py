"""`GET /federation`: the states of all clusters that can be reached along the links, by an echo
wave. No node need reach others than its neighbors, and none has more to say than the rest.

A node that is asked asks its own neighbors, with less time than it has itself, and answers with all
that came together. A node that has been asked before answers at once with nothing, so that every
cluster is in one answer only, and a way around a dead or slow node is found if there is one.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import OrderedDict
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from pydantic import BaseModel, Field, ValidationError

from spillover.apps.node.views import (
    ClusterName,
    FederationFlow,
    FederationLink,
    FederationState,
    NeighborState,
    NodeState,
    Unreachable,
    node_state,
)
from spillover.core.overflow.neighbor import Neighbor
from spillover.live.http1.client import Response
from spillover.live.overflow.metrics import FORWARD_ENDS, STATES
from spillover.live.overflow.shell import NodeShell
from spillover.live.process.logs import Message, OncePerPeriod
from spillover.model.errors import UNREADABLE, PeerError
from spillover.model.ids import ClusterId

LIMIT_S = 1.0
"""The longest time that the whole wave takes, from the first question to the last answer."""

MARGIN_SHARE, MARGIN_S_MIN = 0.1, 0.02
"""The share of its time that a node keeps, and the least of it in seconds, so that its own answer
is back before the caller gives up. Half of it is for the way, half for the work."""

SILENT_S = 0.25
"""The time, in seconds, for a neighbor that has been silent for a second: it is most likely dead or
frozen, and would use up the time of all who wait."""

CLUSTERS_MAX = 1000
QUERY_LIMIT_BYTES = 128 * 1024
ANSWER_LIMIT_BYTES = 4 * 1024 * 1024
QUERIES_MAX = 1024
"""The most questions that are remembered. A node that remembers as many answers a new one for
itself alone."""
REMEMBERED_S = 2 * LIMIT_S
WAVES_MAX = 8
"""The most waves under way that began here. A caller beyond that shares the newest."""

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class FederationQuery(BaseModel, strict=True):
    """A question about the federation on its way. `visited` is the path that it came."""

    query: Annotated[str, Field(min_length=1, max_length=64)]
    visited: Annotated[list[ClusterName], Field(max_length=CLUSTERS_MAX)]
    remaining_ms: Annotated[float, Field(ge=0.0, le=LIMIT_S * 1e3)]


class GatheredStates(BaseModel):
    """The states that came together at one node, its own among them; none if it was asked
    before."""

    clusters: Annotated[dict[ClusterName, NodeState], Field(max_length=CLUSTERS_MAX)]


class Federation:
    """The part of one node in waves that begin here, and in those that come by."""

    def __init__(self, shell: NodeShell) -> None:
        self._shell = shell
        self._own = shell.cluster.id
        self._seen: OrderedDict[str, float] = OrderedDict()
        self._waves: OrderedDict[str, asyncio.Task[FederationState]] = OrderedDict()

    async def show(self) -> FederationState:
        """Returns the federation as a client sees it, within LIMIT_S."""
        if len(self._waves) >= WAVES_MAX:
            wave = next(reversed(self._waves.values()))
        else:
            query = os.urandom(12).hex()
            wave = asyncio.create_task(self._begin(query), name=f"federation {query}")
            self._waves[query] = wave
            wave.add_done_callback(lambda _: self._waves.pop(query))
        return await asyncio.shield(wave)

    async def answer(self, query: FederationQuery, neighbor: int) -> GatheredStates:
        """Returns the states for a neighbor that asks."""
        if self._shell.neighborhood.emulated[neighbor].faults.cut:
            return GatheredStates(clusters={})  # as if it had not come: no answer gets through
        first, room = self._remember(query.query)
        if not first:
            return GatheredStates(clusters={})
        if not room:
            _log.warning("too many questions about the federation at a time: not asked on")
            return GatheredStates(clusters=self._own_state())
        return GatheredStates(clusters=await self._gather(query))

    async def _begin(self, query: str) -> FederationState:
        self._remember(query)
        whole = FederationQuery(query=query, visited=[], remaining_ms=LIMIT_S * 1e3)
        return self._as_shown(await self._gather(whole))

    def _remember(self, query: str) -> tuple[bool, bool]:
        """Returns whether a question is new here, and whether there was room to remember it."""
        now_s = self._shell.now_s
        while self._seen and next(iter(self._seen.values())) <= now_s:
            self._seen.popitem(last=False)
        if query in self._seen:
            return False, True
        if len(self._seen) >= QUERIES_MAX:
            return True, False
        self._seen[query] = now_s + REMEMBERED_S
        return True, True

    # --- asking on ----------------------------------------------------------------------------

    async def _gather(self, query: FederationQuery) -> dict[str, NodeState]:
        """Returns the own state, and those of all neighbors that were not asked on the way and
        answer in time."""
        limit_s = query.remaining_ms / 1e3
        visited = [*query.visited, self._own]
        asked: dict[asyncio.Future[Response], ClusterId] = {}
        if len(visited) < CLUSTERS_MAX:
            for neighbor in self._shell.machine.neighbors:
                if neighbor.id not in visited:
                    future = self._ask(neighbor, query.query, visited, limit_s)
                    if future is not None:
                        asked[future] = neighbor.id
        if asked:
            await asyncio.wait(asked)
        states: dict[str, NodeState] = self._own_state()
        for future, asked_one in asked.items():
            for cluster, state in self._read(asked_one, future).items():
                states.setdefault(cluster, state)
        return dict(list(states.items())[:CLUSTERS_MAX])

    def _ask(
        self, neighbor: Neighbor, query: str, visited: list[str], limit_s: float
    ) -> asyncio.Future[Response] | None:
        """Asks a neighbor. Returns None if there is no time left for an answer."""
        if not neighbor.known:
            limit_s = min(limit_s, SILENT_S)
        margin_s = max(MARGIN_SHARE * limit_s, MARGIN_S_MIN)
        remaining_ms = (limit_s - margin_s) * 1e3
        if remaining_ms <= 0.0:
            return None
        question = FederationQuery(query=query, visited=visited, remaining_ms=remaining_ms)
        body = question.model_dump_json().encode()
        link = self._shell.neighborhood.links[neighbor.handle]
        return link.ask_federation(body, limit_s - margin_s / 2)

    def _read(self, neighbor: str, asked: asyncio.Future[Response]) -> dict[str, NodeState]:
        if asked.cancelled() or isinstance(asked.exception(), PeerError):
            return {}
        response = asked.result()
        if response.status != 200 or len(response.body) > ANSWER_LIMIT_BYTES:
            self._complain(neighbor, f"status {response.status}, {len(response.body)} bytes")
            return {}
        try:
            # Also fields that are not known here are shown on: no number is beyond a float.
            told = msgspec.json.decode(response.body)
            gathered = GatheredStates.model_validate(told)
        except UNREADABLE as error:
            if not isinstance(error, ValidationError):
                self._complain(neighbor, str(error))
                return {}
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            self._complain(neighbor, f"{where}: {first['msg']}")
            return {}
        return {c: state for c, state in gathered.clusters.items() if state.cluster == c}

    def _complain(self, neighbor: str, what: str) -> None:
        what = what.encode("ascii", "backslashreplace").decode()[:200]
        self._shell.metrics.peer_refused(neighbor, STATES)
        said = Message("neighbor told no states of the federation", neighbor=neighbor, reason=what)
        _log.warning(said)

    def _own_state(self) -> dict[str, NodeState]:
        return {self._own: node_state(self._shell, self._shell.now_s)}

    # --- what is shown ------------------------------------------------------------------------

    def _as_shown(self, states: dict[str, NodeState]) -> FederationState:
        """Returns the federation with all that the topology or a state has heard of, in the order
        of their ids."""
        topology = self._shell.topology
        delays_ms = {_pair(link.between): link.delay_ms for link in topology.links}
        seen_s: dict[str, float] = {}
        for cluster, state in states.items():
            for neighbor in state.neighbors:
                delays_ms.setdefault(_pair((cluster, neighbor.id)), neighbor.delay_ms)
                if neighbor.age_ms is not None:
                    age_s = neighbor.age_ms / 1e3
                    seen_s[neighbor.id] = min(age_s, seen_s.get(neighbor.id, age_s))
        known = {*topology.cluster_ids, *states, *(c for pair in delays_ms for c in pair)}
        clusters: dict[str, Any] = {
            cluster: states.get(cluster) or Unreachable(last_seen_s=seen_s.get(cluster))
            for cluster in sorted(known)
        }
        links = [
            FederationLink(between=pair, delay_ms=delay_ms)
            for pair, delay_ms in sorted(delays_ms.items())
        ]
        flows = [_flow(c, row) for c, state in sorted(states.items()) for row in state.neighbors]
        return FederationState(clusters=clusters, links=links, flows=flows)


def _flow(cluster: str, neighbor: NeighborState) -> FederationFlow:
    """Returns the flow to a neighbor. An older node tells only how many requests there were: these
    count as pushed."""
    ends = {end: neighbor.came_back.get(end, 0) for end in FORWARD_ENDS}
    pushed = max(0, neighbor.forwards - neighbor.pulls)
    return FederationFlow(
        cluster=cluster, neighbor=neighbor.id, pushed=pushed, pulled=neighbor.pulls, **ends
    )


def _pair(between: Iterable[str]) -> tuple[str, str]:
    one, other = sorted(between)
    return one, other
