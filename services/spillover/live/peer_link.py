"""The way to one neighbor: requests handed to it, and the stream of its reports.

Each request is one POST that is held open until the answer comes back on it. The link's delay is
emulated by sending late; the neighbor does the same with its answers and reports.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from random import Random
from typing import Any
from urllib.parse import quote

from spillover.core import node_events as ev
from spillover.live import wire
from spillover.live.http1 import HttpClient, Response
from spillover.live.timers import Timer, Timers
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

REFUSAL_STATUSES = frozenset({400, 403, 404, 405, 413, 422, 429, 503})
"""Answers that a node gives only before it has accepted: the request surely will not run there."""

_log = logging.getLogger(__name__)

OnForward = Callable[[str], None]


class PeerLink:
    """The sending side of a link, from `sender` to the neighbor with index `neighbor`.

    `feed` takes the events that come of it; `on_forward` hears what became of each forward:
    answered, refused, lost or recalled.
    """

    def __init__(
        self,
        *,
        neighbor: int,
        cluster: ClusterId,
        url: str,
        delay_s: float,
        away_max: int,
        sender: ClusterId,
        timers: Timers,
        random: Random,
        feed: Callable[[Any], None],
        on_forward: OnForward,
    ) -> None:
        self.neighbor = neighbor
        self.cluster = cluster
        self._delay_s = delay_s
        self._sender = sender
        self._timers = timers
        self._random = random
        self._feed = feed
        self._on_forward = on_forward
        self._client = HttpClient(url, connections_max=away_max + CONNECTIONS_SPARE)
        self._leaving: dict[int, Timer] = {}
        self._asked: dict[int, asyncio.Future[Response]] = {}
        self._heard = False
        self._malformed = False

    async def warm(self) -> None:
        """Open some connections ahead of need. A neighbor that is not there yet is no error."""
        try:
            await self._client.warm(CONNECTIONS_WARM)
        except PeerError as error:
            _log.info("cluster %s is not reachable yet: %s", self.cluster, error)

    async def close(self) -> None:
        for timer in self._leaving.values():
            timer.cancel()
        self._leaving.clear()
        await self._client.close()

    def ask(self, method: str, path: str, body: bytes, timeout_s: float) -> asyncio.Future[Response]:
        """A question that is not a request: to cancel one, or about the federation."""
        return self._client.request(method, path, body=body, timeout_s=timeout_s)

    # --- requests -----------------------------------------------------------------------------

    def forward(self, command: ev.Forward) -> None:
        decided_s = time.monotonic()
        if self._delay_s > 0.0:
            self._leaving[command.ref] = self._timers.at(
                decided_s + self._delay_s, lambda _: self._send(command, decided_s)
            )
        else:
            self._send(command, decided_s)

    def recall(self, ref: int) -> None:
        """Cancel a forward: unsent it never leaves, else its connection is closed, which is how
        the neighbor learns that nobody waits any more."""
        timer = self._leaving.pop(ref, None)
        asked = self._asked.pop(ref, None)
        if timer is not None:
            timer.cancel()
        elif asked is not None:
            asked.cancel()
        else:
            return  # it has come back, and what came is on its way to the machine
        self._on_forward("recalled")

    def _send(self, command: ev.Forward, decided_s: float) -> None:
        ref = command.ref
        self._leaving.pop(ref, None)
        remaining_s = command.deadline_s - time.monotonic()
        body = wire.encode_forward(command.request, self._sender, remaining_s)
        asked = self._client.request("POST", wire.FORWARD_PATH, body=body, timeout_s=None)
        self._asked[ref] = asked
        asked.add_done_callback(lambda future: self._came_back(ref, decided_s, future))

    def _came_back(self, ref: int, decided_s: float, asked: asyncio.Future[Response]) -> None:
        error = None if asked.cancelled() else asked.exception()
        if self._asked.pop(ref, None) is None or asked.cancelled():
            return
        if isinstance(error, NotDelivered):
            self._end("refused", ev.ForwardRefused(ref))
        elif error is not None:
            _log.debug("lost a request at cluster %s: %s", self.cluster, error)
            self._end("lost", ev.ForwardLost(ref))
        else:
            self._end(*self._read(ref, decided_s, asked.result()))

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
        for ref in list(self._leaving):
            self._leaving.pop(ref).cancel()
            self._end("refused", ev.ForwardRefused(ref))
        for ref in list(self._asked):
            self._asked.pop(ref).cancel()
            self._end("lost", ev.ForwardLost(ref))

    # --- reports ------------------------------------------------------------------------------

    async def listen(self) -> None:
        """Read the neighbor's reports for ever, connecting again whenever the stream ends."""
        attempt = 0
        told = ""
        path = f"{wire.REPORTS_PATH}?from={quote(self._sender, safe='')}"
        silence_s = STREAM_SILENCE_S + 2 * self._delay_s
        while True:
            self._heard = self._malformed = False
            try:
                await self._client.stream_lines(path, self._hear, silence_s=silence_s)
                reason = "the stream was ended"
            except PeerError as error:
                reason = str(error)
            if self._heard:
                attempt = 0
                self._feed(ev.LinkDown(self.neighbor))
            else:
                self._give_up()
            if self._heard or reason != told:
                told = reason
                _log.info("no reports of cluster %s: %s", self.cluster, reason)
            pause_s = backoff_s(attempt, RETRY_FIRST_S, RETRY_LONGEST_S, self._random.random())
            attempt += 1
            await asyncio.sleep(pause_s)

    def _hear(self, line: bytes) -> None:
        try:
            report = wire.decode_report(line)
        except wire.MalformedMessage as malformed:
            self._complain("reports", malformed)
            return
        self._heard = True
        self._feed(ev.Heard(self.neighbor, report))

    def _complain(self, does_what: str, malformed: wire.MalformedMessage) -> None:
        """Once for each stream of reports: a neighbor at fault may send many."""
        if not self._malformed:
            _log.warning("cluster %s %s malformed: %s", self.cluster, does_what, malformed)
        self._malformed = True
