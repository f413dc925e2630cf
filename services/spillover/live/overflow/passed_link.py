"""The way to a neighbor of a cluster through which requests pass: as `peer_link`, but requests are
handed over as they are, and an answer may begin before it ends.

As long as no answer has begun, all is as for any forward; so it is for an answer that comes at
once. If an answer begins before it ends, its head, pieces and end come in frames, of a shared
connection or of `passed_wire`, and go to the relay of the visit. Only the end makes it an answer:
one whose connection breaks before is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from spillover.core.overflow import events as ev
from spillover.core.overflow import link
from spillover.live.http1.client import Response
from spillover.live.http1.known_heads import Known
from spillover.live.http1.outgoing import OnBody
from spillover.live.overflow import passed_wire
from spillover.live.overflow.frames.frame import BEGIN, END, WHOLE
from spillover.live.overflow.frames.frame import PASS as PASS_FRAME
from spillover.live.overflow.metrics import ANSWER
from spillover.live.overflow.passed_wire import FrameReader, OnPiece
from spillover.live.overflow.peer_link import NO_TIMES, ForwardWay, PeerLink
from spillover.live.overflow.protocol import PASS, STREAM
from spillover.live.overflow.relay import Relay, Relays
from spillover.live.overflow.shared_calls import SharedCall
from spillover.live.overflow.wire import UNTIMED, MalformedMessage, within_wait
from spillover.model.causes import Cause
from spillover.model.passed import PassedHead


class PassedLink(PeerLink):
    """The sending side of a link over which requests pass."""

    PASSES = True

    def __init__(self, *, relays: Relays, **told: Any) -> None:
        super().__init__(**told)
        self._relays = relays
        self._heads: Known[PassedHead] = Known()
        """The heads of answers that have come before."""

    @property
    def forward_path(self) -> str:
        return PASS

    def _post(self, way: ForwardWay, now_s: float) -> None:
        command = way.command
        remaining_s = command.deadline_s - now_s
        told = command.request, remaining_s, command.load
        body = passed_wire.encode_pass(*told, pulled=command.pulled)
        if self._calls.version >= 3 and self.shared.is_shared:
            way.asked = self.shared.call(PASS_FRAME, body, partial(self._passed, way))
            return
        coming = _Coming(way, self._relays, self._heads, self._answered, self._obey)
        way.client, way.calls = self._client, self._calls
        way.asked = way.client.send(
            "POST",
            PASS,
            partial(self._came_back, way),
            body=body,
            timeout_s=None,
            on_head=coming.on_head,
        )

    def _passed(
        self, way: ForwardWay, kind: int, told: bytes, coming: _Coming | None = None
    ) -> None:
        """Take what has come back on a shared connection, or the news that nothing will. `coming`
        is the source of an answer that has begun."""
        try:
            if kind == BEGIN:
                assert isinstance(way.asked, SharedCall)  # noqa: S101 - it has come by it
                coming = _Coming(way, self._relays, self._heads, self._answered, self._obey)
                way.asked.on_told = partial(self._passed, way, coming=coming)
                way.asked.on_piece = coming.begin(told)
            elif kind == WHOLE:
                sent_s = 0.0 if way.asked is None else way.asked.sent_s
                self._came_at_once(way, told, sent_s, time.monotonic())
            elif kind == END:
                assert coming is not None  # noqa: S101 - its beginning has come
                coming.end(told)
            else:
                self._told(way, kind, told)
        except MalformedMessage as malformed:
            self._complain(ANSWER, malformed)
            if way.asked is not None:
                way.asked.cancel()
            self._obey(link.Broken(way.command.ref))

    def _answered(self, told: ev.ForwardAnswered) -> None:
        """Feed in an answer that was whole. Its connection may still have to be told so."""
        if self._is_awaited(told.ref):
            self._feed(told)

    def _is_awaited(self, ref: int) -> bool:
        """Returns whether an answer that has come now is still waited for."""
        if not self._machine.answered(ref):
            return False
        del self._ways[ref]
        self._on_forward(link.ANSWERED)
        return True

    def _came_back(self, way: ForwardWay, came_to: Response | BaseException) -> None:
        if way.command.ref not in self._ways:
            return
        if isinstance(came_to, Response) and came_to.headers.get(b"content-type") == STREAM:
            try:
                self._came_at_once(way, came_to.body, came_to.sent_s, came_to.received_s)
            except MalformedMessage as malformed:
                self._complain(ANSWER, malformed)
                self._obey(link.Broken(way.command.ref))
        else:
            super()._came_back(way, came_to)

    def _came_at_once(
        self, way: ForwardWay, message: bytes, sent_s: float, received_s: float
    ) -> None:
        """Feed in an answer that came at once. Raises MalformedMessage."""
        ref = way.command.ref
        whole = passed_wire.decode_whole(message, self._heads)
        answer = whole.answer
        if whole.stay is UNTIMED:
            self._complain(ANSWER, NO_TIMES)
        stay = within_wait(answer, whole.stay, received_s - sent_s)
        there_s, back_s = stay.legs(way.decided_s, sent_s, received_s)
        so_far = ev.SoFar(answer.path, answer.queued_s, answer.network_s, answer.service_s)
        if self._is_awaited(ref):
            began = ev.ResponseBegan(ref, so_far=so_far, leg_s=there_s)
            self._relays.whole(began, whole.head, whole.body, whole.trailers)
            opening_s = max(0.0, sent_s - way.left_s)
            self._feed(ev.ForwardAnswered(ref, answer, there_s, back_s, opening_s))


class _Coming:
    """The source of an answer that comes over a link in frames."""

    __slots__ = ("_end", "_heads", "_legs_s", "_obey", "_relay", "_relays", "_way")

    def __init__(
        self,
        way: ForwardWay,
        relays: Relays,
        heads: Known[PassedHead],
        end: Callable[[ev.ForwardAnswered], None],
        obey: Callable[[link.Broken], None],
    ) -> None:
        self._way = way
        self._relays = relays
        self._heads = heads
        """The heads that have come before."""
        self._end = end
        self._obey = obey
        self._relay: Relay | None = None
        self._legs_s = 0.0, 0.0, 0.0
        """The seconds of the way there, of the way back, and of opening a connection, which is a
        part of the way there."""

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> OnBody | None:
        """Returns what takes the frames of the answer, if any follow (`OutgoingRequest`)."""
        if status != 200 or headers.get(b"content-type") != STREAM:
            return None
        return FrameReader(self).feed

    # --- what frames tell ---------------------------------------------------------------------

    def begin(self, message: bytes) -> OnPiece:
        """Begin the relay with the head that a frame tells; returns what takes the body
        (`passed_wire.Messages`)."""
        head, began = self._read_head(message)
        self._relay = self._relays.begin(began, self, head)
        return self._relay.piece

    def _read_head(self, message: bytes) -> tuple[PassedHead, ev.ResponseBegan]:
        head, so_far, stay = passed_wire.decode_head(message, self._heads)
        way = self._way
        sent_s = 0.0 if way.asked is None else way.asked.sent_s
        there_s, back_s = stay.legs(way.decided_s, sent_s, time.monotonic())
        self._legs_s = there_s, back_s, max(0.0, sent_s - way.left_s)
        return head, ev.ResponseBegan(way.command.ref, so_far=so_far, leg_s=there_s)

    def end(self, message: bytes) -> None:
        """End the relay, and have the machine hear of the answer (`passed_wire.Messages`)."""
        assert self._relay is not None  # noqa: S101 - the head comes first
        trailers, answer = passed_wire.decode_end(message)
        within_wait(answer, UNTIMED, time.monotonic() - self._way.decided_s)
        self._relay.end(trailers)
        self.resume()  # the connection has its own end to read
        self._end(ev.ForwardAnswered(self._way.command.ref, answer, *self._legs_s))

    # --- a source -----------------------------------------------------------------------------

    def pause(self) -> None:
        """Stop reading from the neighbor (`relay.Source`)."""
        if self._way.asked is not None:
            self._way.asked.pause()

    def resume(self) -> None:
        """Read on from the neighbor (`relay.Source`)."""
        if self._way.asked is not None:
            self._way.asked.resume()

    def close(self, problem: str) -> None:
        """Break off what is read from the neighbor (`relay.Source`)."""
        if self._way.asked is not None:
            self._way.asked.cancel()
        self._obey(link.Broken(self._way.command.ref, Cause.TIMEOUT, problem))
