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
from typing import Any, NamedTuple

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
from spillover.live.overflow.report_streams import STREAMS_PER_NEIGHBOR_MAX, ReportStream
from spillover.live.overflow.wire import Caller, MalformedMessage
from spillover.live.process.logs import Message, OncePerPeriod
from spillover.model.errors import InputError, NotDelivered, OutcomeUnknown, PeerError
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


class SiteProcess(NamedTuple):
    """One of several processes on one machine that are the nodes of a cluster (decision 0050)."""

    number: int
    urls: tuple[str, ...]
    """The addresses at which they call each other, in the order of their numbers."""


class Site:
    """The siblings of a node of a cluster, and their `urls`, its own among them in its place.
    `feed` takes what they say; `caller` is how this node names itself. `on_failure` takes an error
    by which this node cannot be one of them."""

    def __init__(
        self,
        cluster: Cluster,
        siblings: Siblings,
        caller: Caller,
        clients: PeerClients,
        *,
        urls: Sequence[str],
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
        self._clients: dict[int, HttpClient] = {
            number: clients.of_link(url, caller, PASSED_ON_MAX, reads_small=False)
            for number, url in enumerate(urls, start=1)
            if number != self.number
        }
        self._streams: dict[int, list[ReportStream]] = {number: [] for number in self._clients}
        """The streams on which siblings hear this node, by their numbers: each says all. A sibling
        reads one, but whoever says that he is a sibling must not end its stream at once."""
        self._distrusted: set[int] = set()
        """Those whose messages made the machine raise: their streams are to break off."""
        self._tasks: list[asyncio.Task[None]] = []
        self._asked = {one: set[asyncio.Future[Response]]() for one in self._clients}
        """What siblings were asked for clients and have not answered."""
        self._heard_s = dict.fromkeys(self._clients, -math.inf)
        self.under_way = 0
        """Clients' requests and questions that wait for other nodes; whoever takes them counts."""

    @property
    def interpreters(self) -> Mapping[type[ev.Command], Callable[[Any], None]]:
        """Returns what carries out the commands about siblings."""
        return {ev.TellSibling: self._tell, ev.DistrustSibling: self._distrust}

    def start(self, group: asyncio.TaskGroup) -> None:
        """Listen to all siblings, in this group of tasks."""
        self._tasks = [
            group.create_task(self._listen(number), name=f"sibling {number}")
            for number in self._clients
        ]

    async def close(self) -> None:
        """Let go of all of them. Streams first: an open one holds up the server."""
        for streams in self._streams.values():
            for stream in streams:
                stream.end()
        for client in self._clients.values():
            await client.close()

    # --- what siblings tell each other --------------------------------------------------------

    def open(self, number: int, put: Callable[[bytes], bool]) -> ReportStream | None:
        """Opens a stream on which a sibling hears this node, and returns it; None for a number that
        no sibling has. If the sibling has too many, the oldest ends."""
        streams = self._streams.get(number)
        if streams is None:
            return None
        if len(streams) >= STREAMS_PER_NEIGHBOR_MAX:
            streams.pop(0).end()
        stream = ReportStream(put)
        streams.append(stream)
        return stream

    def drop(self, number: int, stream: ReportStream) -> None:
        """Its reader has gone, or it has ended."""
        streams = self._streams[number]
        if stream in streams:
            streams.remove(stream)

    def _tell(self, command: ev.TellSibling) -> None:
        """One that a line is lost on ends: it may have given servers, which are counted anew
        then."""
        for stream in self._streams[command.sibling]:
            if not (stream.ended or stream.put(sibling_wire.encode(command.message))):
                stream.end()

    def _distrust(self, command: ev.DistrustSibling) -> None:
        """What it told was within its ranges, so that this is a bug."""
        said = Message("bug: dropped what a sibling told", node=command.sibling)
        _log.error(said, exc_info=command.error)
        self._distrusted.add(command.sibling)

    async def _listen(self, number: int) -> None:
        """Hear a sibling for ever, opening its stream again whenever that ends."""
        told = ""
        path = f"{SIBLINGS}?node={self.number}&servers={self._cluster.server_count}"
        while True:
            reason, is_dead = "the stream was ended", False
            self._distrusted.discard(number)
            try:
                hear = partial(self._hear, number)
                await self._clients[number].stream_lines(
                    path, hear, silence_s=SILENCE_S, pace=LINES
                )
            except (PeerError, MalformedMessage) as error:
                reason = str(error)
                is_dead = isinstance(error.__cause__, ConnectionRefusedError)
                if isinstance(error, StreamRefused) and self.siblings.view == NO_VIEW:
                    self._refused_by(number, error)
            self._feed(ev.SiblingLost(number, is_dead))
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
        if number in self._distrusted:
            raise PeerError("what it told was dropped, by a bug")
        self._heard_s[number] = time.monotonic()
        message = sibling_wire.decode(line)
        if message is not None:
            self._feed(ev.SiblingHeard(number, message))

    # --- whose business a request is ----------------------------------------------------------

    @property
    def others(self) -> Sequence[int]:
        """Returns the numbers of the siblings that are heard and hear this node."""
        return sorted(self.siblings.up - {self.number})

    @property
    def staying(self) -> Sequence[int]:
        """Returns those of them that do not drain."""
        loads = {number: self.siblings.known[number].load for number in self.others}
        return [number for number, load in loads.items() if load is not None and not load.leaves]

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

    async def ask_all(
        self,
        method: str,
        path: str,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
        timeout_s: float,
    ) -> list[tuple[int, int, bytes]]:
        """Have all siblings that are there answer. Returns the number of each, the status and the
        body; 504 for one that has not answered."""
        told: dict[str, Any] = {"headers": headers, "body": body, "timeout_s": timeout_s}
        asked = {number: self.pass_on(number, method, path, **told) for number in self._clients}
        await asyncio.wait(asked.values())
        answers = []
        for number, answer in asked.items():
            failed = answer.exception()
            if failed is None:
                answers.append((number, answer.result().status, answer.result().body))
            elif not isinstance(failed, NotDelivered):
                answers.append((number, 504, b""))
        return answers
