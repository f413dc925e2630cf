"""The way to one neighbor: requests handed to it, and the stream of its reports.

Requests share a connection (`shared_calls`). With a neighbor that speaks version 2, each is one
POST instead, held open until the answer comes back on it. Requests leave through the emulated link
of this direction, which has the delay and the faults; the neighbor does the same with its answers
and reports.

A cancel whose answer is awaited is a frame, or a call of its own in version 2; its answer tells how
the request ended.

The rules of `core.overflow.link`, which are obeyed here, say how a forward ends, when a cancel is
sent again and what silence means.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from spillover.core.driver import Driver
from spillover.core.overflow import events as ev
from spillover.core.overflow import link
from spillover.core.overflow.link import LinkMachine
from spillover.live.engine.timers import Timers
from spillover.live.http1.client import HttpClient, Response
from spillover.live.http1.lines import Pace
from spillover.live.http1.outgoing import OutgoingRequest, StreamRefused
from spillover.live.overflow import wire
from spillover.live.overflow.agreement import Agreement
from spillover.live.overflow.emulated_link import EmulatedLink, Parcel
from spillover.live.overflow.frames.frame import ANSWER as ANSWER_FRAME
from spillover.live.overflow.frames.frame import FORWARD
from spillover.live.overflow.frames.frame import REFUSED as REFUSED_FRAME
from spillover.live.overflow.metrics import ANSWER, FRAME, RAISED, REPORT
from spillover.live.overflow.peer_clients import CANCELS_AT_ONCE_MAX, PeerClients
from spillover.live.overflow.protocol import SPOKEN, WRONG_VERSION, Calls
from spillover.live.overflow.report_lines import NothingToDo, Question, decode_line
from spillover.live.overflow.shared_calls import NOT_LEFT, SharedCall, SharedCalls
from spillover.live.process.logs import Message
from spillover.model.errors import NotBelieved, NotDelivered, PeerError
from spillover.model.ids import ClusterId
from spillover.model.load import LoadReport
from spillover.model.request import DONE

CANCEL_TIMEOUT_S = 2.0

REFUSAL_STATUSES = frozenset({400, 403, 404, 405, 408, 413, 422, 429, 503})
"""The statuses of a refused request that surely will not run there. A node gives them only before
it has accepted the request; 503 it also gives for an accepted request that surely has not run. 504
is not among them, since a gateway in between says so of requests that it has passed on."""

NO_TIMES = "times that cannot be: left out"
"""The log's words on an answer that is taken without its times."""

LINES = Pace(per_s=2000.0, burst=500.0)
"""The pace at which reports and questions of one neighbor are heard, in lines per second: a report
in each millisecond, which is the shortest period, and as many again. More lines would take
processor time from all other neighbors."""

COMPLAIN_AGAIN_S = 60.0
"""The least time, in seconds, between two log lines about malformed messages of one kind. A metric
counts all of them."""

LOOK_AGAIN_S = 1.0
"""The time, in seconds, between two looks at whether anything is under way to a node that has left
the neighbor."""

NOT_A_NEIGHBOR = 403
"""The status by which the server at the neighbor's address says that this node is no neighbor of
its own."""

NOT_READY = 503
"""The status by which the server at the neighbor's address wants nobody to listen to it, as it
drains or ends."""

_QUERY = re.compile(r"\?\S*(?=: )")
"""The query of a question for reports. The log leaves it out where it says why the question
ended."""

_log = logging.getLogger(__name__)

OnForward = Callable[[str], None]


@dataclass(slots=True, eq=False)
class ForwardWay:
    """The carrier of one forward, from the decision until the forward has come back in some way."""

    command: ev.Forward
    decided_s: float
    client: HttpClient
    """The client by which the forward leaves, and by which it is cancelled."""
    calls: Calls
    """The calls of the node to which the forward goes."""
    left_s: float
    """The time when the forward was given to a connection, or began to wait for one to open."""
    parcel: Parcel | None = None
    """The message on the emulated link; None where nothing is emulated."""
    asked: SharedCall | OutgoingRequest | None = None
    """The exchange of the forward; None as long as it has not left."""


class PeerLink:
    """The sending side of a link, to the neighbor with the handle `neighbor`. `agreement` has what
    the two have said of each other.

    Everything leaves through `emulated_link`. `feed` takes the events that result. `on_forward`
    gets the end of each forward: answered, refused, lost or recalled. `on_refused` gets the kind,
    one of `metrics.PEER_MESSAGES`, of each message of the neighbor that was not taken. `on_failure`
    gets an error for which nothing more can be said over the link.
    """

    PASSES = False
    """Whether requests pass through, so that answers are read as they come."""

    def __init__(
        self,
        *,
        neighbor: int,
        cluster: ClusterId,
        url: str,
        emulated_link: EmulatedLink,
        away_max: int,
        agreement: Agreement,
        timers: Timers,
        clients: PeerClients,
        random: Random,
        feed: Callable[[Any], None],
        on_forward: OnForward,
        on_refused: Callable[[str], None],
        on_failure: Callable[[BaseException], None] | None = None,
        more_urls: Sequence[str] = (),
    ) -> None:
        self.neighbor = neighbor
        self.cluster = cluster
        self._urls = deque((url, *more_urls))
        """The addresses of the neighbor's nodes; the first is called."""
        self._away_max = away_max
        self._emulated_link = emulated_link
        self._agreement = agreement
        self._timers = timers
        self._machine = LinkMachine(neighbor, random, len(self._urls))
        self._feed = feed
        self._on_forward = on_forward
        self._on_refused = on_refused
        self._clients = clients
        self._clients_of: dict[str, HttpClient] = {}
        self._shared_of: dict[str, SharedCalls] = {}
        for one in self._urls:
            self._know(one)
        self._client, self.shared = self._clients_of[self.url], self._shared_of[self.url]
        self._gone: str | None = None
        """The address that is called, if the neighbor no longer has a node there; else None."""
        self._looks_again = False
        self._closing = set[asyncio.Task[None]]()
        """The tasks that end the connections to nodes that have left the neighbor."""
        self._ways: dict[int, ForwardWay] = {}
        self._cancels_asked = 0
        self._cancels_waiting: deque[int] = deque()
        self._complained: dict[str, float] = {}
        """The time of the last log line on malformed messages, by their kind."""
        self._is_distrusted = False
        """Whether a message of the neighbor made the machine raise: its stream is to break off."""
        self._last_line = b""
        """The last line of the neighbor's stream of reports."""
        self._calls = SPOKEN[0]
        """The calls of the newest version that both speak, as far as is known."""
        self._opens = asyncio.Event()
        """Set when the next stream of reports is to be opened."""
        interpreters: dict[type, Callable[[Any], None]] = {
            link.LetGo: self._let_go,
            link.Ended: self._ended,
            link.SendCancel: self._send_cancel,
            link.Tell: lambda command: self._feed(command.event),
            link.CallNext: self._call_next,
            link.OpenStream: lambda _: self._opens.set(),
        }
        driver = Driver[Any, Any](self._machine, timers, interpreters, on_failure)
        driver.start(ev.TimerFired())
        self._obey = driver.feed

    @property
    def url(self) -> str:
        """Returns the address of the node of the neighbor that is called."""
        return self._urls[0]

    @property
    def forward_path(self) -> str:
        return self._calls.forward

    def warm(self) -> None:
        """Open a connection ahead of need. It is no error if the neighbor is not there yet: another
        connection is opened once it reports."""
        self.shared.open()

    async def close(self) -> None:
        for way in self._ways.values():
            if way.parcel is not None:
                way.parcel.withdraw()
        self._cancels_waiting.clear()
        for shared in self._shared_of.values():
            shared.close()
        for client in list(self._clients_of.values()):
            await client.close()
        await asyncio.gather(*self._closing)

    def ask_federation(self, body: bytes, timeout_s: float) -> asyncio.Future[Response]:
        """Ask about the federation. The link's delay does not apply, but a link that is cut carries
        nothing: the future then raises NotDelivered, and else as that of HttpClient."""
        if self._emulated_link.cut:
            cut: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
            cut.set_exception(NotDelivered(f"the link to cluster {self.cluster} is cut"))
            return cut
        if self._agreement.is_turned_away:
            stranger: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
            stranger.set_exception(NotDelivered(f"cluster {self.cluster} is not at its address"))
            return stranger
        path = self._calls.federation
        return self._client.request("POST", path, body=body, timeout_s=timeout_s)

    # --- what the cluster says ----------------------------------------------------------------

    def forward(self, command: ev.Forward) -> None:
        ref, now_s = command.ref, time.monotonic()
        way = self._ways[ref] = ForwardWay(command, now_s, self._client, self._calls, now_s)
        emulated_link = self._emulated_link
        self._machine.hand_over(ref, has_left=emulated_link.is_clear)
        if emulated_link.is_clear:
            self._post(way, now_s)
        else:
            way.parcel = emulated_link.send(partial(self._leave, way), partial(self._lose, ref))

    def recall(self, ref: int) -> None:
        """Cancel a forward whose answer nobody waits for."""
        self._obey(link.Recalled(ref))

    def ask_cancel(self, ref: int) -> None:
        """Cancel a forward whose answer is waited for."""
        self._obey(link.CancelAsked(ref))

    def allow(self, away_max: int) -> None:
        """Let up to so many requests be away from now on."""
        self._away_max = away_max
        for client in self._clients_of.values():
            client.connections_max = self._clients.connections_max(away_max)

    def disconnect(self) -> None:
        """Give up all that is away at a neighbor that has left. `close` comes next."""
        self._obey(link.Disconnected())

    # --- what the machine says ----------------------------------------------------------------

    def _let_go(self, command: link.LetGo) -> None:
        way = self._ways[command.ref]
        if way.asked is not None:
            way.asked.cancel()
        elif way.parcel is not None:
            way.parcel.withdraw()

    def _ended(self, command: link.Ended) -> None:
        del self._ways[command.ref]
        self._on_forward(command.how)
        if command.event is not None:
            self._feed(command.event)

    def _send_cancel(self, command: link.SendCancel) -> None:
        failed = partial(self._obey, link.CancelFailed(command.ref))
        self._emulated_link.send(partial(self._post_cancel, command.ref), failed)

    # --- requests -----------------------------------------------------------------------------

    def _lose(self, ref: int) -> None:
        self._obey(link.Broken(ref))

    def _leave(self, way: ForwardWay) -> None:
        """Send a forward that has come through the emulated link."""
        self._machine.left(way.command.ref)
        way.left_s = time.monotonic()
        self._post(way, way.left_s)

    def _post(self, way: ForwardWay, now_s: float) -> None:
        command = way.command
        remaining_s = command.deadline_s - now_s
        told = command.request, remaining_s, command.load
        body = wire.encode_forward(*told, pulled=command.pulled)
        if self._calls.version >= 3 and self.shared.is_shared:
            way.asked = self.shared.call(FORWARD, body, partial(self._told, way))
            return
        came_back = partial(self._came_back, way)
        way.client, way.calls = self._client, self._calls
        way.asked = way.client.send("POST", way.calls.forward, came_back, body=body, timeout_s=None)

    def _told(self, way: ForwardWay, kind: int, told: bytes) -> None:
        """Take what has come back on a shared connection, or the news that nothing will."""
        ref = way.command.ref
        if kind == ANSWER_FRAME:
            sent_s = 0.0 if way.asked is None else way.asked.sent_s
            self._take_answer(way, told, sent_s, time.monotonic())
        elif kind == REFUSED_FRAME:
            self._obey(link.Refused(ref, *wire.decode_refused(told)))
        elif kind == NOT_LEFT:
            self._machine.left(ref)  # only now, and perhaps to another node
            self._post(way, time.monotonic())
        else:
            self._obey(link.Broken(ref, *wire.decode_broken(told)))

    def _came_back(self, way: ForwardWay, came_to: Response | BaseException) -> None:
        ref = way.command.ref
        if not isinstance(came_to, Response):
            is_sure = isinstance(came_to, NotDelivered)
            if not is_sure:
                _log.debug(Message("request lost", neighbor=self.cluster, reason=str(came_to)))
            self._obey(link.Refused(ref) if is_sure else link.Broken(ref))
        elif came_to.status == 200:
            self._take_answer(way, came_to.body, came_to.sent_s, came_to.received_s)
        elif came_to.status in REFUSAL_STATUSES:
            load = wire.decode_load(came_to.headers.get(wire.LOAD))
            status = wire.decode_status(came_to.headers.get(wire.UPSTREAM_STATUS))
            self._obey(link.Refused(ref, load, status))
        else:
            self._obey(link.Broken(ref))

    def _take_answer(
        self, way: ForwardWay, message: bytes, sent_s: float, received_s: float
    ) -> None:
        """Feed in the answer that a message has, if it is still waited for."""
        ref = way.command.ref
        try:
            answer, stay = wire.decode_answer(message)
        except wire.MalformedMessage as malformed:
            self._complain(ANSWER, malformed)
            self._obey(link.Broken(ref))
            return
        if self.PASSES and answer.outcome is DONE:  # that comes with a head and a body
            self._obey(link.Broken(ref))
            return
        if stay is wire.UNTIMED:
            self._complain(ANSWER, NO_TIMES)
        stay = wire.within_wait(answer, stay, received_s - sent_s)
        there_s, back_s = stay.legs(way.decided_s, sent_s, received_s)
        if self._machine.answered(ref):
            del self._ways[ref]
            self._on_forward(link.ANSWERED)
            opening_s = max(0.0, sent_s - way.left_s)
            size_bytes = len(message)
            self._feed(ev.ForwardAnswered(ref, answer, there_s, back_s, opening_s, size_bytes))

    # --- cancels ------------------------------------------------------------------------------

    def _post_cancel(self, ref: int) -> None:
        way = self._ways.get(ref)
        if way is not None and isinstance(way.asked, SharedCall):
            if not way.asked.ask_cancel():
                self._obey(link.Refused(ref))
        elif self._cancels_asked >= CANCELS_AT_ONCE_MAX:
            self._cancels_waiting.append(ref)
        elif self._machine.awaits(ref):
            self._cancels_asked += 1
            way = self._ways[ref]
            body = wire.encode_cancel(way.command.request.id)
            told = way.client.request(
                "POST", way.calls.cancel, body=body, timeout_s=CANCEL_TIMEOUT_S
            )
            told.add_done_callback(partial(self._cancel_told, ref))

    def _cancel_told(self, ref: int, told: asyncio.Future[Response]) -> None:
        self._cancels_asked -= 1
        if not _found(told):
            self._obey(link.CancelFailed(ref))
        while self._cancels_waiting and self._cancels_asked < CANCELS_AT_ONCE_MAX:
            self._post_cancel(self._cancels_waiting.popleft())

    # --- reports ------------------------------------------------------------------------------

    async def listen(self) -> None:
        """Read the neighbor's reports for ever, connecting again whenever the stream ends."""
        told = ""
        while True:
            is_there = self._is_distrusted = False
            self._last_line = b""
            self._complained.clear()
            self._opens.clear()
            self._obey(link.StreamBegun())
            try:
                await self._read_reports(self._machine.silence_s(self._emulated_link.delay_s))
                reason = "the stream was ended"
            except StreamRefused as refused:
                reason = str(refused)
                if refused.status == NOT_A_NEIGHBOR:
                    self._agreement.turned_away(refused.headers)
                    is_there = self._clients.is_secure  # it has proved to be the neighbor
                elif refused.status == WRONG_VERSION:
                    self._agreement.refused_version(refused.headers)
                elif refused.status == NOT_READY:
                    is_there = len(self._urls) > 1
            except PeerError as error:
                reason = str(error)
                if not self._machine.has_heard:
                    self._agreement.unanswered()
                is_there = isinstance(error, NotBelieved)
            except Exception:  # noqa: BLE001 - a bug, for which no neighbor is to end the node
                reason = "it could not be read, by a bug"
                _log.exception(Message("bug: a neighbor's reports", neighbor=self.cluster))
                self._on_refused(RAISED)
                is_there = True
            self._obey(link.StreamEnded(is_there))
            reason = _QUERY.sub("", reason)
            if self._machine.has_heard or reason != told:
                told = reason
                _log.info(Message("no reports", neighbor=self.cluster, reason=reason))
            await self._opens.wait()

    def _know(self, url: str) -> None:
        caller = self._agreement.caller
        client = self._clients.of_link(url, caller, self._away_max, reads_small=self.PASSES)
        complain = partial(self._complain, FRAME)
        self._clients_of[url] = client
        self._shared_of[url] = SharedCalls(client, self._clients.shared, complain)

    def use_urls(self, urls: Sequence[str]) -> None:
        """Use these addresses of the neighbor's nodes from now on.

        The node that is called now is called until it is silent, or wants another one to be called.
        That holds too for a node that has left the neighbor: it drains, and has what is away there.
        """
        called = self.url
        if called in urls:
            first = urls.index(called)
            others, self._gone = (*urls[first + 1 :], *urls[:first]), None
        else:
            others, self._gone = tuple(urls), called
        if (called, *others) == tuple(self._urls):
            return
        for url in others:
            if url not in self._clients_of:
                self._know(url)
        self._urls = deque((called, *others))
        self._machine.use_nodes(len(self._urls))
        self._look_for_unused()

    def _call_next(self, _: link.CallNext) -> None:
        self._urls.rotate(-1)
        if self._gone is not None:
            self._urls.remove(self._gone)
            self._gone = None
            self._machine.use_nodes(len(self._urls))
            self._look_for_unused()
        self._client = self._clients_of[self.url]
        self.shared = self._shared_of[self.url]

    def _look_for_unused(self) -> None:
        if not self._looks_again and self._clients_of.keys() - set(self._urls):
            self._looks_again = True
            self._timers.at(time.monotonic() + LOOK_AGAIN_S, self._close_unused)

    def _close_unused(self, _: float) -> None:
        """Close the connections to nodes that have left the neighbor, once nothing is under way
        there."""
        self._looks_again = False
        for url in self._clients_of.keys() - set(self._urls):
            self._shared_of[url].retire()
            if self._clients_of[url].is_unused:
                del self._shared_of[url]
                closing = asyncio.ensure_future(self._clients_of.pop(url).close())
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)
        self._look_for_unused()

    async def _read_reports(self, silence_s: float) -> None:
        """Read the reports in the newest version that both speak. Each time this node's newest
        version is tried first, since the neighbor may have been started anew with another
        version."""
        for calls in SPOKEN:
            path = f"{calls.reports}?{self._agreement.query()}"
            try:
                hear = partial(self._hear, calls)
                await self._client.stream_lines(path, hear, silence_s=silence_s, pace=LINES)
            except StreamRefused as refused:
                if refused.status != WRONG_VERSION or calls is SPOKEN[-1]:
                    raise
            else:
                return

    def _hear(self, calls: Calls, line: bytes) -> None:
        if self._is_distrusted:
            raise PeerError("what it told was dropped, by a bug")
        if line == self._last_line and self._machine.has_heard:
            self._feed(ev.ReportReceived(self.neighbor, None))  # it was read already
            return
        try:
            said = decode_line(line)
        except wire.MalformedMessage as malformed:
            self._complain(REPORT, malformed)
            return
        self._last_line = line
        if not self._machine.has_heard:
            self._obey(link.StreamHeard())
            self._agreement.heard()
            self._speak(calls)
        if type(said) is LoadReport:
            self._agreement.configured.heard(self.cluster, said.configuration)
        self._feed(_event_of(self.neighbor, said))

    def _speak(self, calls: Calls) -> None:
        """Use this version for everything from now on."""
        if calls is not self._calls:
            version = calls.version
            _log.info(Message("neighbor speaks", neighbor=self.cluster, protocol=version))
        self._calls = calls
        if calls.version >= 3:
            self.shared.is_shared = True
            self.shared.open()

    def distrust(self) -> None:
        """Break the stream of reports off; it begins anew after a pause."""
        self._is_distrusted = True

    def _complain(self, what: str, malformed: wire.MalformedMessage | str) -> None:
        """Log a malformed message, once in a while for each kind and each stream of reports: a
        neighbor at fault may send many."""
        self._on_refused(what)
        now_s = time.monotonic()
        if now_s >= self._complained.get(what, -math.inf) + COMPLAIN_AGAIN_S:
            self._complained[what] = now_s
            told = {"neighbor": self.cluster, "message": what, "reason": str(malformed)}
            _log.warning(Message("neighbor is not understood", **told))


def _event_of(neighbor: int, said: LoadReport | Question | NothingToDo | None) -> ev.Event:
    """Returns the event that a line of the neighbor means to the machine."""
    if isinstance(said, Question):
        return ev.WorkAsked(neighbor, said.load, said.group)
    if isinstance(said, NothingToDo):
        return ev.NoWorkThere(neighbor, said.load, said.group)
    return ev.ReportReceived(neighbor, said)


def _found(told: asyncio.Future[Response]) -> bool:
    if told.cancelled() or told.exception() is not None:
        return False
    response = told.result()
    try:
        return response.status == 200 and wire.decode_cancel_answer(response.body)
    except wire.MalformedMessage:
        return False
