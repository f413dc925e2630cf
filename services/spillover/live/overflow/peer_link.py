"""The way to one neighbor: requests handed to it, and the stream of its reports.

Each request is one POST that is held open until the answer comes back on it. It leaves through the
emulated link of this direction, which has the delay and the faults; the neighbor does the
same with its answers and reports.

A cancel that somebody waits for is a call of its own, since closing the connection would close the
way for the answer too, and the answer tells what came of it. Nothing relies on the cancel to come
through: it is tried a few times, and what became of the forward is told by the forward alone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from spillover.core.overflow import events as ev
from spillover.live.engine.moving import Moving
from spillover.live.engine.timers import Timers
from spillover.live.engine.write_batch import WriteBatch
from spillover.live.http.client import HttpClient, Response
from spillover.live.http.connection import OutgoingRequest, StreamRefused
from spillover.live.overflow import wire
from spillover.live.overflow.agreement import Agreement
from spillover.live.overflow.emulated_link import GIVEN_UP_AFTER_S, EmulatedLink, Parcel
from spillover.live.process.logs import Message
from spillover.model.errors import NotDelivered, PeerError
from spillover.model.ids import ClusterId
from spillover.policy.backoff import backoff_s

STREAM_SILENCE_S = 2.5
"""A stream on which nothing arrives for this long, beyond the link's delay both ways, is broken off
and opened anew. The machine has long made the neighbor unknown; this is about what it holds: if it
says nothing on the new stream either, that is given up, some 5 s after its last sign of life. Long,
since a neighbor that was only slow may still answer."""

RETRY_FIRST_S = 0.05
RETRY_LONGEST_S = 1.0

CONNECTIONS_WARM = 8

CONNECTIONS_SPARE = 16
"""Beyond one for each request away: the stream of reports, and the warm ones."""

CANCELS_AT_ONCE_MAX = 64
"""Cancels that await their answer, each on a connection of its own. Others wait for one of them."""

CANCEL_ATTEMPTS_MAX = 5
CANCEL_AGAIN_S = 0.1
"""Until the second attempt; doubles with each. A cancel may overtake its forward, or be lost."""

CANCEL_TIMEOUT_S = 2.0

REFUSAL_STATUSES = frozenset({400, 403, 404, 405, 408, 413, 422, 429, 503})
"""Answers that a node gives only before it has accepted, and 503 also for what it accepted and has
surely not run: the request surely will not run there. 504 is none of them: a gateway in between
says so of what it has passed on."""

NOT_A_NEIGHBOR = 403
"""Whoever is at the neighbor's address does not take this node for its neighbor."""

_log = logging.getLogger(__name__)

OnForward = Callable[[str], None]


class _Away:
    """One forward, from the decision until something has come back."""

    __slots__ = ("asked", "cancels", "command", "decided_s", "parcel")

    def __init__(self, command: ev.Forward, decided_s: float) -> None:
        self.command = command
        self.decided_s = decided_s
        self.parcel: Parcel | None = None
        self.asked: OutgoingRequest | None = None
        """None as long as it has not left."""
        self.cancels = 0
        """How often its cancel was sent."""


class PeerLink:
    """The sending side of a link, to the neighbor with index `neighbor`. `agreement` has what the
    two have said of each other.

    Everything leaves through `emulated_link`. `feed` takes the events that come of it; `on_forward`
    hears what became of each forward: answered, refused, lost or recalled.
    """

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
        writes: WriteBatch | None = None,
        moving: Moving | None = None,
        random: Random,
        feed: Callable[[Any], None],
        on_forward: OnForward,
    ) -> None:
        self.neighbor = neighbor
        self.cluster = cluster
        self._emulated_link = emulated_link
        self._agreement = agreement
        self._timers = timers
        self._random = random
        self._feed = feed
        self._on_forward = on_forward
        connections_max = away_max + CANCELS_AT_ONCE_MAX + CONNECTIONS_SPARE
        self._client = HttpClient(
            url,
            connections_max=connections_max,
            user_timeout_s=GIVEN_UP_AFTER_S,
            writes=writes,
            moving=moving,
        )
        self._away: dict[int, _Away] = {}
        self._cancels_asked = 0
        self._cancels_waiting: deque[_Away] = deque()
        self._heard = False
        self._malformed = False

    async def warm(self) -> None:
        """Open some connections ahead of need. A neighbor that is not there yet is no error."""
        try:
            await self._client.warm(CONNECTIONS_WARM)
        except PeerError as error:
            _log.info(
                Message("neighbor is not reachable yet", neighbor=self.cluster, reason=str(error))
            )

    async def close(self) -> None:
        for away in self._away.values():
            if away.parcel is not None:
                away.parcel.withdraw()
        self._cancels_waiting.clear()
        await self._client.close()

    def ask(
        self, method: str, path: str, body: bytes, timeout_s: float
    ) -> asyncio.Future[Response]:
        """A question about the federation. It is not delayed, but no link that is cut carries it:
        the future raises NotDelivered then, and else as that of HttpClient."""
        if self._emulated_link.cut:
            cut: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
            cut.set_exception(NotDelivered(f"the link to cluster {self.cluster} is cut"))
            return cut
        if self._agreement.is_turned_away:
            stranger: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
            stranger.set_exception(NotDelivered(f"cluster {self.cluster} is not at its address"))
            return stranger
        return self._client.request(method, path, body=body, timeout_s=timeout_s)

    # --- requests -----------------------------------------------------------------------------

    def forward(self, command: ev.Forward) -> None:
        away = self._away[command.ref] = _Away(command, time.monotonic())
        away.parcel = self._emulated_link.send(partial(self._send, away), partial(self._lose, away))

    def recall(self, ref: int) -> None:
        """Cancel a forward whose answer nobody waits for: unsent it never leaves, else its
        connection is closed, which is how the neighbor learns of it."""
        away = self._away.pop(ref, None)
        if away is None:
            return  # it has come back, and what came is on its way to the machine
        if away.asked is not None:
            away.asked.cancel()
        elif away.parcel is not None:
            away.parcel.withdraw()
        self._on_forward("recalled")

    def ask_cancel(self, ref: int) -> None:
        """Cancel a forward whose answer is waited for: unsent it never leaves and comes back as
        refused, else the neighbor is asked to cancel it, and its answer is what it comes to."""
        away = self._away.get(ref)
        if away is None or away.cancels:
            return
        if away.asked is None and away.parcel is not None and away.parcel.withdraw():
            del self._away[ref]
            self._end("recalled", ev.ForwardRefused(ref))
        else:
            self._cancel(away)

    def _send(self, away: _Away) -> None:
        command = away.command
        remaining_s = command.deadline_s - time.monotonic()
        body = wire.encode_forward(command.request, self._agreement.caller, remaining_s)
        came_back = partial(self._came_back, away)
        away.asked = self._client.send(
            "POST", wire.FORWARD_PATH, came_back, body=body, timeout_s=None
        )

    def _lose(self, away: _Away) -> None:
        """The link has lost it: as after a reset, whether it arrived is not known here."""
        if self._away.pop(away.command.ref, None) is not None:
            self._end("lost", ev.ForwardLost(away.command.ref))

    def _came_back(self, away: _Away, came_to: Response | BaseException) -> None:
        ref = away.command.ref
        if self._away.pop(ref, None) is None:
            return
        if isinstance(came_to, Response):
            self._end(*self._read(ref, away.decided_s, came_to))
        elif isinstance(came_to, NotDelivered):
            self._end("refused", ev.ForwardRefused(ref))
        else:
            _log.debug(Message("request lost", neighbor=self.cluster, reason=str(came_to)))
            self._end("lost", ev.ForwardLost(ref))

    def _end(self, outcome: str, event: Any) -> None:
        self._on_forward(outcome)
        self._feed(event)

    def _read(self, ref: int, decided_s: float, response: Response) -> tuple[str, Any]:
        if response.status in REFUSAL_STATUSES:
            return "refused", ev.ForwardRefused(ref)
        if response.status != 200:
            return "lost", ev.ForwardLost(ref)
        try:
            answer, stay = wire.decode_answer(response.body)
        except wire.MalformedMessage as malformed:
            self._complain("answered", malformed)
            return "lost", ev.ForwardLost(ref)
        round_trip_s = max(0.0, response.received_s - response.sent_s - stay.held_s)
        leg_s = (response.sent_s - decided_s) + round_trip_s / 2 + stay.reading_s
        return_leg_s = stay.answer_delay_s + round_trip_s / 2
        return "answered", ev.ForwardAnswered(ref, answer, leg_s, return_leg_s)

    def _give_up(self) -> None:
        """The neighbor fell silent and says nothing on a new connection either: frozen, cut off,
        or gone without a word. What it holds is lost; what has not left surely is not there."""
        for ref in list(self._away):
            away = self._away.pop(ref, None)
            if away is None:
                continue  # recalled by what came of the one before
            if away.asked is not None:
                away.asked.cancel()
                self._end("lost", ev.ForwardLost(ref))
            elif away.parcel is not None:
                away.parcel.withdraw()
                self._end("refused", ev.ForwardRefused(ref))

    # --- cancels ------------------------------------------------------------------------------

    def _cancel(self, away: _Away) -> None:
        """Send the next attempt, if the forward is still unanswered."""
        if self._awaits(away):
            away.cancels += 1
            again = partial(self._cancel_later, away)
            self._emulated_link.send(partial(self._post_cancel, away), again)

    def _awaits(self, away: _Away) -> bool:
        return self._away.get(away.command.ref) is away

    def _cancel_later(self, away: _Away) -> None:
        """This attempt came to nothing: the forward was overtaken, has just ended, or the way is
        bad. Which of these, its own answer tells."""
        if away.cancels < CANCEL_ATTEMPTS_MAX and self._awaits(away):
            pause_s = CANCEL_AGAIN_S * 2.0 ** (away.cancels - 1)
            self._timers.at(time.monotonic() + pause_s, lambda _: self._cancel(away))

    def _post_cancel(self, away: _Away) -> None:
        if self._cancels_asked >= CANCELS_AT_ONCE_MAX:
            self._cancels_waiting.append(away)
        elif self._awaits(away):
            self._cancels_asked += 1
            body = wire.encode_cancel(away.command.request.id, self._agreement.caller)
            told = self._client.request(
                "POST", wire.CANCEL_PATH, body=body, timeout_s=CANCEL_TIMEOUT_S
            )
            told.add_done_callback(partial(self._cancel_told, away))

    def _cancel_told(self, away: _Away, told: asyncio.Future[Response]) -> None:
        self._cancels_asked -= 1
        if not _found(told):
            self._cancel_later(away)
        while self._cancels_waiting and self._cancels_asked < CANCELS_AT_ONCE_MAX:
            self._post_cancel(self._cancels_waiting.popleft())

    # --- reports ------------------------------------------------------------------------------

    async def listen(self) -> None:
        """Read the neighbor's reports for ever, connecting again whenever the stream ends."""
        attempt = 0
        told = ""
        query = f"?{self._agreement.query()}"
        path = wire.REPORTS_PATH + query
        while True:
            self._heard = self._malformed = False
            try:
                silence_s = STREAM_SILENCE_S + 2 * self._emulated_link.delay_s
                await self._client.stream_lines(path, self._hear, silence_s=silence_s)
                reason = "the stream was ended"
            except StreamRefused as refused:
                reason = str(refused)
                if refused.status == NOT_A_NEIGHBOR:
                    self._agreement.turned_away(refused.headers)
            except PeerError as error:
                reason = str(error)
                if not self._heard:
                    self._agreement.unanswered()
            if self._heard:
                attempt = 0
                self._feed(ev.LinkDown(self.neighbor))
            else:
                self._give_up()
            reason = reason.replace(query, "")
            if self._heard or reason != told:
                told = reason
                _log.info(Message("no reports", neighbor=self.cluster, reason=reason))
            pause_s = backoff_s(attempt, RETRY_FIRST_S, RETRY_LONGEST_S, self._random.random())
            attempt += 1
            await asyncio.sleep(pause_s)

    def _hear(self, line: bytes) -> None:
        try:
            report = wire.decode_report(line)
        except wire.MalformedMessage as malformed:
            self._complain("reports", malformed)
            return
        if not self._heard:
            self._heard = True
            self._agreement.heard()
        self._feed(ev.ReportReceived(self.neighbor, report))

    def _complain(self, does_what: str, malformed: wire.MalformedMessage) -> None:
        """Once for each stream of reports: a neighbor at fault may send many."""
        if not self._malformed:
            reason = f"it {does_what}: {malformed}"
            said = Message("neighbor is not understood", neighbor=self.cluster, reason=reason)
            _log.warning(said)
        self._malformed = True


def _found(told: asyncio.Future[Response]) -> bool:
    """Whether the neighbor says that it cancels the request."""
    if told.cancelled() or told.exception() is not None:
        return False
    response = told.result()
    try:
        return response.status == 200 and wire.decode_cancel_answer(response.body)
    except wire.MalformedMessage:
        return False
