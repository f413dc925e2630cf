"""The other nodes of a site, as one node calls them: what they tell each other, and requests of
clients that are another node's business (decision 0049).

Who has which share of the servers is decided in `core.overflow.siblings`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from spillover.core.overflow import events as ev
from spillover.core.overflow.names import owner_of
from spillover.core.overflow.sibling_messages import NO_VIEW
from spillover.core.overflow.siblings import SILENCE_S, Siblings
from spillover.live.http1.client import HttpClient, Response
from spillover.live.http1.lines import Pace
from spillover.live.http1.outgoing import StreamRefused
from spillover.live.overflow import sibling_wire
from spillover.live.overflow.peer_clients import PeerClients
from spillover.live.overflow.protocol import AT_SIBLING, SIBLINGS
from spillover.live.overflow.report_streams import ReportStream
from spillover.live.overflow.wire import Caller, MalformedMessage
from spillover.live.process.logs import Message, OncePerPeriod
from spillover.model.errors import InputError, OutcomeUnknown, PeerError
from spillover.model.topology import Cluster

AGAIN_S = 0.1
"""A stream that has ended is opened again after so long."""

PASSED_ON_MAX = 10_000
"""So many requests at most are passed on to one sibling at a time."""

NOT_OF_THE_SITE = frozenset({403, 404, 422})
"""By these a node refuses one that is no other node of its cluster, by its own topology."""

LINES = Pace(per_s=5000.0, burst=1000.0)
"""The pace at which a sibling is heard: it tells its load 200 times a second, and gives servers."""

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class Site:
    """The siblings of node `number` of a cluster. `feed` takes what they say; `caller` is how this
    node names itself. `on_failure` takes an error by which this node cannot be one of them."""

    def __init__(
        self,
        cluster: Cluster,
        siblings: Siblings,
        caller: Caller,
        clients: PeerClients,
        *,
        feed: Callable[[Any], None],
        on_failure: Callable[[BaseException], None],
        result_ttl_s: float,
    ) -> None:
        self._cluster = cluster
        self.number = siblings.number
        self.siblings = siblings
        self._feed = feed
        self._on_failure = on_failure
        self._remembered_s = result_ttl_s
        urls = enumerate(cluster.peer_urls, start=1)
        self._clients: dict[int, HttpClient] = {
            number: clients.of_link(url, caller, PASSED_ON_MAX, reads_small=False)
            for number, url in urls
            if number != self.number
        }
        self._streams: dict[int, ReportStream] = {}
        """The streams on which siblings hear this node, by their numbers."""
        self._tasks: list[asyncio.Task[None]] = []
        self._asked = {one: set[asyncio.Future[Response]]() for one in self._clients}
        """What siblings were asked for clients and have not answered."""
        self._heard_s = dict.fromkeys(self._clients, -math.inf)
        self.under_way = 0
        """Clients' requests and questions that wait for other nodes; whoever takes them counts."""

    @property
    def interpreters(self) -> Mapping[type[ev.Command], Callable[[Any], None]]:
        """Returns what carries out the command about siblings."""
        return {ev.TellSibling: self._tell}

    def start(self, group: asyncio.TaskGroup) -> None:
        """Listen to all siblings, in this group of tasks."""
        self._tasks = [
            group.create_task(self._listen(number), name=f"sibling {number}")
            for number in self._clients
        ]

    async def close(self) -> None:
        """Let go of all of them. Streams first: an open one holds up the server."""
        for stream in self._streams.values():
            stream.end()
        for client in self._clients.values():
            await client.close()

    # --- what siblings tell each other --------------------------------------------------------

    def open(self, number: int, put: Callable[[bytes], None]) -> ReportStream | None:
        """Opens the stream on which a sibling hears this node, in place of one that there was, and
        returns it; None for a number that no sibling has."""
        if number not in self._clients:
            return None
        self.drop(number, self._streams.get(number))
        stream = self._streams[number] = ReportStream(put)
        return stream

    def drop(self, number: int, stream: ReportStream | None) -> None:
        """Its reader has gone, or another stream takes its place."""
        if stream is not None and self._streams.get(number) is stream:
            stream.end()
            del self._streams[number]

    def _tell(self, command: ev.TellSibling) -> None:
        stream = self._streams.get(command.sibling)
        if stream is not None and not stream.ended:
            stream.put(sibling_wire.encode(command.message))

    async def _listen(self, number: int) -> None:
        """Hear a sibling for ever, opening its stream again whenever that ends."""
        told = ""
        path = f"{SIBLINGS}?node={self.number}&servers={self._cluster.server_count}"
        while True:
            reason = "the stream was ended"
            try:
                hear = partial(self._hear, number)
                await self._clients[number].stream_lines(
                    path, hear, silence_s=SILENCE_S, pace=LINES
                )
            except (PeerError, MalformedMessage) as error:
                reason = str(error)
                if isinstance(error, StreamRefused) and self.siblings.view == NO_VIEW:
                    self._refused_by(number, error)
            self._feed(ev.SiblingLost(number))
            if reason != told:
                told = reason
                _log.info(Message("sibling is not heard", node=number, reason=reason))
            await asyncio.sleep(AGAIN_S)
            if time.monotonic() >= self._heard_s[number] + SILENCE_S:
                self._give_up(number)

    def _give_up(self, number: int) -> None:
        """Wait for no answer of a sibling that is silent: its machine may be gone without a word.
        One whose stream has merely broken is soon heard again, or its connections end too."""
        for asked in list(self._asked[number]):
            if not asked.done():
                asked.set_exception(OutcomeUnknown(f"node {number} is silent"))
                asked.cancel()  # which ends its exchange

    def _refused_by(self, number: int, refused: StreamRefused) -> None:
        """End this node if a sibling that is there does not take it for one: alone it would take
        all servers of the site."""
        if refused.status in NOT_OF_THE_SITE:
            field, own = f"cluster {self._cluster.id}", f"node {self.number}"
            expected = f"expected that of its other nodes, node {number} does not know {own}"
            self._on_failure(InputError("--topology", field, expected))

    def heard_servers(self, number: str, servers: str) -> None:
        """Say that a sibling goes by another number of servers: the node that makes the next view
        decides which holds."""
        own = str(self._cluster.server_count)
        if servers != own:
            _log.warning(Message("sibling has other servers", node=number, own=own, other=servers))

    def _hear(self, number: int, line: bytes) -> None:
        self._heard_s[number] = time.monotonic()
        message = sibling_wire.decode(line)
        if message is not None:
            self._feed(ev.SiblingHeard(number, message))

    # --- whose business a request is ----------------------------------------------------------

    @property
    def others(self) -> Sequence[int]:
        """Returns the numbers of the siblings that are heard and hear this node."""
        return sorted(self.siblings.up - {self.number})

    def owner(self, name: str) -> int | None:
        """Returns the node that new requests of this name belong to; None while that is being
        settled."""
        return owner_of(name, self.siblings.owners) if self.siblings.is_settled else None

    @property
    def may_have_moved(self) -> bool:
        """Returns whether a request that is remembered may be remembered by another node than the
        one that its name belongs to now."""
        return time.monotonic() < self.siblings.viewed_s + self._remembered_s

    def pass_on(
        self,
        number: int,
        method: str,
        path: str,
        *,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
        timeout_s: float,
    ) -> asyncio.Future[Response]:
        """Have a sibling answer a client's request. The future raises PeerError, also once the
        sibling is silent. Raises ValueError for a head that cannot be sent."""
        asked = self._clients[number].request(
            method, f"{AT_SIBLING}{path}", headers=headers, body=body, timeout_s=timeout_s
        )
        self._asked[number].add(asked)
        asked.add_done_callback(self._asked[number].discard)
        return asked
