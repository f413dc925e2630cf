"""The other nodes of a site, as one node calls them: their messages to each other, and clients'
requests that belong to another node (decision 0049).

A node that has left the configuration is listened to until it has ended. `core.overflow.siblings`
decides which node has which share of the servers.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlencode

from spillover.core.overflow import events as ev
from spillover.core.overflow.names import owner_of
from spillover.core.overflow.quotas import Quotas, Use
from spillover.core.overflow.sibling_messages import NO_VIEW, SiblingLoad, SiblingMessage
from spillover.core.overflow.siblings import Siblings
from spillover.core.overflow.site_shares import FORM_ALIKE
from spillover.core.overflow.views import SILENCE_S
from spillover.live.http1.client import HttpClient, Response
from spillover.live.http1.lines import Pace
from spillover.live.http1.outgoing import StreamRefused
from spillover.live.overflow import sibling_wire
from spillover.live.overflow.configured import FIELD, Configured
from spillover.live.overflow.metrics import LINE, RAISED
from spillover.live.overflow.peer_clients import PeerClients
from spillover.live.overflow.protocol import AT_SIBLING, SIBLINGS
from spillover.live.overflow.report_streams import STREAMS_PER_NEIGHBOR_MAX, ReportStream
from spillover.live.overflow.sibling_wire import GoesBy, OfShells, Operated, Sessions, Uses
from spillover.live.overflow.wire import Caller, MalformedMessage
from spillover.live.process.logs import Message, OncePerPeriod
from spillover.model.errors import InputError, NotDelivered, OutcomeUnknown, PeerError
from spillover.model.ids import ClusterId
from spillover.model.topology import Cluster
from spillover.policy.overflow.choosers import POLICY_NAMES

AGAIN_S = 0.1
"""The pause, in seconds, before a stream that has ended is opened again."""

PASSED_ON_MAX = 10_000
"""The most clients' requests that wait for other nodes at a time, to be taken there or here.
Connections with TLS allow fewer."""

LOOKED_UP_MAX = 2000
"""The most questions about requests that wait for other nodes at a time, each perhaps for minutes.
They take at most a quarter of the connections to a sibling, so that a request that is passed on
finds one."""

FORGOTTEN_S = 60.0
"""The time, in seconds, for which a node that has left the configuration must be silent to be given
up. A node that takes no connections has ended and is given up at once."""

NOT_BELIEVED = 403
"""The status by which a node refuses a caller that is not of its federation, or does not prove its
cluster."""

NOT_OF_THE_SITE = frozenset({NOT_BELIEVED, 404, 422})
"""The statuses by which a node refuses a caller that is, by the node's own topology, no other node
of its cluster."""

NOT_YET = 409
"""The status by which a node refuses a caller with a later configuration, which the node has not
got yet."""

NOT_YET_S = 1.0
"""The time, in seconds, for which a node may answer NOT_YET before the two count as having nothing
in common. It is below ABSENT_S, after which a node goes on without the others."""

LINES = Pace(per_s=5000.0, burst=1000.0)
"""The pace at which a sibling is heard, in lines per second. A sibling tells its load 200 times a
second, and gives servers besides."""

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class SiteProcess(NamedTuple):
    """One of several processes on one machine that are the nodes of a cluster (decision 0050)."""

    number: int
    urls: tuple[str, ...]
    """The addresses at which they call each other, in the order of their numbers."""


class SharedSessions(Protocol):
    """The sessions of clients at this node, which count at all of them."""

    @property
    def here(self) -> Sessions:
        """Returns the sessions here, as siblings are told of them."""

    def hear(self, node: int, told: Sessions | None) -> None:
        """Take in what sibling `node` tells of its sessions; None once the sibling is not heard any
        more."""


class Site:
    """The siblings of node `number` of a cluster.

    `feed` takes the events that siblings' messages become. `caller` is the name that this node
    gives itself, `configured` the configuration that it goes by. `on_failure` takes an error for
    which this node cannot be one of them, and `on_refused` the kind of each sibling's message that
    was dropped. `urls` are the addresses of processes, which no configuration has.
    """

    def __init__(
        self,
        cluster: Cluster,
        siblings: Siblings,
        caller: Caller,
        clients: PeerClients,
        configured: Configured,
        *,
        urls: Sequence[str] = (),
        feed: Callable[[Any], None],
        on_failure: Callable[[BaseException], None],
        on_refused: Callable[[int, str], None],
        result_ttl_s: float,
    ) -> None:
        self.number = siblings.number
        self.siblings = siblings
        self._feed = feed
        self._on_failure, self._on_refused = on_failure, on_refused
        self._configured = configured
        self._call = partial(clients.of_link, caller=caller, away_max=PASSED_ON_MAX)
        self._group: asyncio.TaskGroup | None = None
        self._urls_fixed = tuple(urls)
        self._others: dict[int, _Other] = {}
        """The siblings by their numbers, including those that have left the configuration."""
        self._quotas: Quotas | None = None
        self._operated: Operated | None = None
        self._sessions: SharedSessions | None = None
        self._load: SiblingLoad | None = None
        """The load of this node as it was last told, the same to all siblings."""
        self.passed_on = self.looked_up = 0
        """The numbers of clients' requests, and of questions about requests, that wait for other
        nodes. The callers of `pass_on` and `ask_all` count them."""
        self._has_ended = False
        self._connections_max = clients.connections_max(PASSED_ON_MAX)
        self.looked_up_max = min(LOOKED_UP_MAX, self._connections_max // 4)
        self.go_by(cluster, result_ttl_s)

    def start(self, group: asyncio.TaskGroup) -> None:
        """Listen to all siblings, in this group of tasks."""
        self._group = group
        for number in self._others:
            self._begin(number)

    def _begin(self, number: int) -> None:
        if self._group is not None:
            self._group.create_task(self._listen(number), name=f"sibling {number}")

    def go_by(self, cluster: Cluster, result_ttl_s: float) -> None:
        """Go by this configuration from now on. New nodes are listened to, and those that leave are
        until they end."""
        self._cluster, self._remembered_s = cluster, result_ttl_s
        for number, url in enumerate(self._urls_fixed or cluster.peer_urls, start=1):
            if number != self.number and number not in self._others:
                self._others[number] = _Other(self._call(url, reads_small=False))
                self._begin(number)

    def say_configuration(self) -> None:
        """Tell all siblings which configuration this node goes by now."""
        self._say(self._others.values(), GoesBy(self._configured.told))

    def share_quotas(self, quotas: Quotas) -> None:
        """Take in what siblings tell of tenants from now on. What this node tells of them goes out
        by `say_uses`."""
        self._quotas = quotas

    def share_sessions(self, sessions: SharedSessions) -> None:
        """Tell siblings of clients' sessions here from now on, and take in what they tell of
        theirs."""
        self._sessions = sessions
        self.say_sessions()

    def say_sessions(self) -> None:
        """Tell all siblings how many clients have a session here now."""
        if self._sessions is not None:
            self._say(self._others.values(), self._sessions.here)

    def operate(self, policy: str, shadow: str | None, *, drains: bool) -> None:
        """Have processes that are started later do as operators have told this one, and have this
        one do as operators tell another process later."""
        before_ms = 0 if self._operated is None else self._operated.at_ms
        at_ms = max(time.time_ns() // 1_000_000, before_ms + 1)
        self._operated = Operated(at_ms, drains, policy, shadow)

    def _hear_operated(self, told: Operated) -> None:
        """Do what operators have told a sibling after they last told this node."""
        own = self._operated
        if not self._urls_fixed or (own is not None and own.at_ms >= told.at_ms):
            return
        self._operated = told
        told_before = None if own is None else (own.policy, own.shadow)
        if (told.policy, told.shadow) != told_before and _is_known(told):
            self._feed(ev.PolicySet(told.policy, told.shadow))
        if told.drains != (own is not None and own.drains):
            self._feed(ev.Drain() if told.drains else ev.Resume())

    def say_uses(self, news: Mapping[str, Use]) -> bool:
        """Tell all siblings how much these tenants use here; returns whether all have been told. A
        stream without room for these lines stays open: they are many, and may come later."""
        line = sibling_wire.encode(Uses(dict(news)))
        streams = [stream for other in self._others.values() for stream in other.streams]
        told = [stream.put(line) for stream in streams if not stream.ended]
        return all(told)

    def _say(self, others: Iterable[_Other], message: SiblingMessage | OfShells) -> None:
        """Send a message to these siblings. A stream that loses a line ends, since the line may
        have given servers; they are counted anew then."""
        line = sibling_wire.encode(message)
        for other in others:
            for stream in other.streams:
                if not (stream.ended or stream.put(line)):
                    stream.end()

    async def close(self) -> None:
        """Let go of all siblings. Streams are closed first: an open one holds up the server."""
        self._group, self._has_ended = None, True
        for other in self._others.values():
            for stream in other.streams:
                stream.end()
        for other in self._others.values():
            await other.client.close()

    # --- what siblings tell each other --------------------------------------------------------

    def open(
        self, number: int, put: Callable[[bytes], bool], form: str = ""
    ) -> ReportStream | None:
        """Opens a stream on which a sibling hears this node, and returns it; None if no sibling has
        this number, or it tells of other classes of tokens (`SiteShares.form`). If the
        sibling has too many streams, the oldest ends. The stream is to be `greeted` once it takes
        lines."""
        other = self._others.get(number)
        if other is None or (form or FORM_ALIKE) != self.siblings.own.form:
            return None
        streams = other.streams
        if len(streams) >= STREAMS_PER_NEIGHBOR_MAX:
            streams.pop(0).end()
        stream = ReportStream(put)
        streams.append(stream)
        return stream

    def greet(self, stream: ReportStream) -> None:
        """Say on a new stream what is not repeated by itself, or not soon: a node is not heard
        until it has told its load."""
        stream.put(sibling_wire.encode(GoesBy(self._configured.told)))
        if self._load is not None:
            stream.put(sibling_wire.encode(self._load))
        if self._operated is not None:
            stream.put(sibling_wire.encode(self._operated))
        if self._sessions is not None:
            stream.put(sibling_wire.encode(self._sessions.here))
        if self._quotas is not None:
            self._quotas.tell_all()

    def drop(self, number: int, stream: ReportStream) -> None:
        """Forget a stream whose reader has gone, or that has ended."""
        other = self._others.get(number)
        if other is not None and stream in other.streams:
            other.streams.remove(stream)

    def tell(self, command: ev.TellSibling) -> None:
        if isinstance(command.message, SiblingLoad):
            self._load = command.message
        other = self._others.get(command.sibling)
        if other is not None and other.streams:
            self._say([other], command.message)

    def distrust(self, command: ev.DistrustSibling) -> None:
        """Break off a sibling whose message made the machine raise. The message was within its
        ranges, so this is a bug."""
        said = Message("bug: dropped what a sibling told", node=command.sibling)
        _log.error(said, exc_info=command.error)
        self._on_refused(command.sibling, RAISED)
        if command.sibling in self._others:
            self._others[command.sibling].is_distrusted = True

    async def _listen(self, number: int) -> None:
        """Hear a sibling until it has ended for good, opening its stream again whenever that
        ends."""
        told, other = "", self._others[number]
        while True:
            reason, is_dead = "the stream was ended", False
            other.is_distrusted = False
            try:
                hear = partial(self.hear, number)
                await other.client.stream_lines(self._path(), hear, silence_s=SILENCE_S, pace=LINES)
            except MalformedMessage as error:
                reason = str(error)
                self._on_refused(number, LINE)
            except PeerError as error:
                reason = str(error)
                is_dead = isinstance(error.__cause__, ConnectionRefusedError)
                if isinstance(error, StreamRefused) and self.siblings.view == NO_VIEW:
                    self._refused_by(number, error)
            self._feed(ev.SiblingLost(number, is_dead))
            if self._quotas is not None:
                self._quotas.lost(number)
            if self._sessions is not None:
                self._sessions.hear(number, None)
            if reason != told:
                told = reason
                _log.info(Message("sibling is not heard", node=number, reason=reason))
            await asyncio.sleep(AGAIN_S)
            silent_s = time.monotonic() - other.heard_s
            if silent_s >= SILENCE_S:
                self._give_up(number)
            if number > self._node_count and (is_dead or silent_s >= FORGOTTEN_S):
                await self._forget(number)
                return

    @property
    def _node_count(self) -> int:
        return len(self._urls_fixed) or self._cluster.node_count

    async def _forget(self, number: int) -> None:
        """Forget a sibling that has left the configuration and has ended."""
        other = self._others.pop(number)
        for stream in other.streams:
            stream.end()
        await other.client.close()
        if number <= self._node_count:
            self.go_by(self._cluster, self._remembered_s)  # it is in the configuration again

    def _path(self) -> str:
        own = f"servers={self._cluster.server_count}&form={self.siblings.own.form}"
        return f"{SIBLINGS}?node={self.number}&{own}&{urlencode({FIELD: self._configured.told})}"

    def _give_up(self, number: int) -> None:
        """Wait no longer for the answers of a sibling that is silent, whose machine may be gone
        without a word. A sibling whose stream has merely broken is soon heard again, or its
        connections end too."""
        for asked in list(self._others[number].asked):
            if not asked.done():
                asked.set_exception(OutcomeUnknown(f"node {number} is silent"))
                asked.cancel()  # which ends its exchange

    def _refused_by(self, number: int, refused: StreamRefused) -> None:
        """End this node if a sibling that is there does not take it for one: alone it would take
        all servers of the site."""
        is_final = refused.status in NOT_OF_THE_SITE
        if refused.status == NOT_YET:
            now_s, other = time.monotonic(), self._others[number]
            other.refused_s = min(other.refused_s, now_s)
            is_final = now_s >= other.refused_s + NOT_YET_S
        if is_final:
            field, own = f"cluster {self._cluster.id}", f"node {self.number}"
            expected = f"expected that of its other nodes, node {number} does not know {own}"
            if refused.status == NOT_BELIEVED:
                expected = f"expected to be believed by node {number}, whose log says why it is not"
            self._on_failure(InputError("--topology", field, expected))

    def heard_servers(self, number: str, servers: str, configuration: str) -> None:
        """Warn that a sibling of the same configuration goes by another number of servers. The node
        that makes the next view decides which number holds."""
        own = str(self._cluster.server_count)
        if servers != own and configuration in ("", self._configured.told):
            _log.warning(Message("sibling has other servers", node=number, own=own, other=servers))

    def hear(self, number: int, line: bytes) -> None:
        """Take in a line of a sibling. Raises PeerError if the sibling is to be heard no more."""
        other = self._others[number]
        if other.is_distrusted:
            raise PeerError("what it told was dropped, by a bug")
        other.heard_s = time.monotonic()
        message = sibling_wire.decode(line)
        if isinstance(message, GoesBy):
            other.goes_by = message.stamp
        elif isinstance(message, Uses):
            if self._quotas is not None:
                self._quotas.hear(number, message.tenants, time.monotonic())
        elif isinstance(message, Operated):
            self._hear_operated(message)
        elif isinstance(message, Sessions):
            if self._sessions is not None:
                self._sessions.hear(number, message)
        elif message is not None:
            self._feed(ev.SiblingHeard(number, message))
        # Again and again, since whoever asks for it does so once a while.
        self._configured.heard(sibling_name(self._cluster.id, number), other.goes_by)

    # --- whose business a request is ----------------------------------------------------------

    @property
    def others(self) -> Sequence[int]:
        """Returns the numbers of the siblings that may know a name: those that this node hears, and
        those that are in its view, since a broken stream is no proof of death."""
        return sorted((self.siblings.up | self.siblings.members) - {self.number})

    def is_over(self, number: int, error: PeerError) -> bool:
        """Returns whether this error of a question means that a sibling is done draining."""
        refused = isinstance(error.__cause__, ConnectionRefusedError)
        return refused and self.siblings.is_done(number)

    @property
    def passed_on_max(self) -> int:
        """Returns how many clients' requests may wait for other nodes. The limit keeps connections
        for them, since a request that finds none is tried again and again."""
        return min(PASSED_ON_MAX, self._connections_max * max(1, len(self._others)))

    @property
    def asks_others(self) -> bool:
        """Returns whether clients here wait for other nodes."""
        return self.passed_on + self.looked_up > 0

    @property
    def staying(self) -> Sequence[int]:
        """Returns the siblings that are heard, hear this node, and do not drain."""
        return self.siblings.staying

    @property
    def gives_up(self) -> bool:
        """Returns whether a request that no node has taken yet is refused rather than offered
        again: no node can be asked any more (`Siblings.gives_up`)."""
        return self._has_ended or self.siblings.gives_up

    def owner(self, name: str) -> int | None:
        """Returns the node that new requests of this name belong to; None while that is being
        settled."""
        return owner_of(name, self.siblings.owners) if self.siblings.is_settled else None

    @property
    def may_have_moved(self) -> bool:
        """Returns whether a request may be remembered by another node than the one to which its
        name belongs now."""
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
        other = self._others.get(number)
        if other is None:
            raise NotDelivered(f"there is no node {number} any more")
        asked = other.client.request(
            method, f"{AT_SIBLING}{path}", headers=headers, body=body, timeout_s=timeout_s
        )
        other.asked.add(asked)
        asked.add_done_callback(other.asked.discard)
        return asked

    async def ask_all(
        self,
        method: str,
        path: str,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
        timeout_s: float,
        among: Collection[int] | None = None,
    ) -> list[tuple[int, int, bytes]]:
        """Have all siblings that are there answer, or those that are `among` these. Returns the
        number, the status and the body of each; the status is 504 for a sibling that has not
        answered."""
        told: dict[str, Any] = {"headers": headers, "body": body, "timeout_s": timeout_s}
        numbers = [number for number in self._others if among is None or number in among]
        asked = {number: self.pass_on(number, method, path, **told) for number in numbers}
        if asked:
            await asyncio.wait(asked.values())
        answers = []
        for number, answer in asked.items():
            failed = answer.exception()
            if failed is None:
                answers.append((number, answer.result().status, answer.result().body))
            elif not isinstance(failed, NotDelivered):
                answers.append((number, 504, b""))
        return answers


class _Other:
    """One sibling, as this node calls it."""

    def __init__(self, client: HttpClient) -> None:
        self.client = client
        self.streams: list[ReportStream] = []
        """The streams on which the sibling hears this node; each carries everything. A sibling
        reads one, but a caller that merely claims to be the sibling must not be able to end its
        stream at once."""
        self.is_distrusted = False
        """Whether its messages made the machine raise: its stream is to break off."""
        self.asked: set[asyncio.Future[Response]] = set()
        """The exchanges for clients that the sibling has not answered yet."""
        self.heard_s = -math.inf
        self.refused_s = math.inf
        """The time when the sibling first refused this node, which is of a later configuration."""
        self.goes_by = ""
        """The stamp of the configuration that it goes by, as it has said."""


def _is_known(told: Operated) -> bool:
    """Returns whether this version has the policies, which another one of the sibling's may not."""
    return {told.policy, told.shadow} <= {*POLICY_NAMES, None}


def sibling_name(cluster: ClusterId, node: int) -> str:
    """Returns what a node of a cluster is called where it is asked for its configuration."""
    return f"{cluster}/{node}"
