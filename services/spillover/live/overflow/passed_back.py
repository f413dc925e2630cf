"""Answers that pass through, on their way back over a link as they come: the answer to a neighbor's
request, once it has begun.

Each frame leaves through the emulated link, in order. A frame that is lost there breaks the answer
off, as a lost connection of TCP would: what comes after it means nothing. Bytes that wait on the
link count as unsent, and so do those that the neighbor has not read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from spillover.core.overflow import events as ev
from spillover.live.overflow.emulated_link import EmulatedLink
from spillover.live.overflow.passed_wire import encode_end, encode_head, encode_whole
from spillover.live.overflow.relay import Flow
from spillover.live.overflow.waiters import Told
from spillover.live.overflow.wire import Stay, encode_broken
from spillover.model.causes import Cause, cause_of
from spillover.model.passed import Fields, PassedHead
from spillover.model.request import Answer

UNSENT_MAX_BYTES = 65_536
"""A source is paused while more than this is on the emulated link. The link so carries at most that
much in each of its delays."""

UNSENT_RESUME_BYTES = 16_384
"""A paused source goes on when less than this is on the emulated link."""

FRAMES_MAX = 1024
"""The largest number of frames on the emulated link before their source is paused.

Why: small frames take more memory than their bytes."""


class Outlet(Protocol):
    """The connection on which a neighbor waits for an answer. Its calls do nothing once it has
    gone."""

    def begin(self, frame: bytes, on_flow: Callable[[bool], None]) -> None:
        """Say that frames follow, this one first. `on_flow` is called with True when the neighbor
        stops reading, and with False when it reads again."""

    def write(self, data: bytes) -> None:
        """Write a piece of the body."""

    def end(self, frame: bytes) -> None:
        """Write the last frame."""

    def whole(self, message: bytes) -> None:
        """Write a whole answer at once, before any frame of it has left."""

    def break_off(self, why: bytes) -> None:
        """Break the answer off. The neighbor is told why (`wire.encode_broken`), unless all that
        can be done is to close the connection."""

    def stay(self, now_s: float, waited_s: float) -> Stay:
        """Returns how long the request has been here by now; `waited_s` of it was on the way
        back."""


class WayBack(NamedTuple):
    """The way back to a neighbor, and the calls that report how the answer fares on it."""

    link: EmulatedLink | None
    """The emulated link to the neighbor; None if it is no neighbor any more."""
    settle: Callable[[Told], None]
    """Called if no answer has begun, with the outcome of the request."""
    began: Callable[[], None]
    """Called when the head has left before the end: all that follows leaves by the outlet."""
    left: Callable[[], None]
    """Called when the end has left."""
    broke: Callable[[], None]
    """Called when the link has lost a frame, so that the answer is broken off."""


class PassedBack:
    """The sink of one neighbor's request."""

    __slots__ = ("_flow", "_frames", "_held", "_is_behind", "_is_over", "_outlet", "_unsent_bytes",
                 "_way", "_whole")  # fmt: skip

    def __init__(self, outlet: Outlet, way: WayBack) -> None:
        self._outlet = outlet
        self._way = way
        self._flow: Flow | None = None
        self._frames = 0
        """The number of frames on the emulated link."""
        self._unsent_bytes = 0
        """The number of bytes of the body in these frames."""
        self._is_behind = False
        """True while the neighbor does not read."""
        self._is_over = False
        """True once the frames that are still on the link mean nothing."""
        self._whole: PassedHead | None = None
        """The head of an answer that is there at once. Such an answer is one message, like that to
        any other forward."""
        self._held = b""
        """The body of an answer that is there at once."""

    # --- a sink -------------------------------------------------------------------------------

    def hint(self, head: PassedHead) -> None:
        """Drop an interim answer (`relay.Sink`): there is no frame for it, so it goes no further
        than here."""

    def begin(self, head: PassedHead, so_far: ev.SoFar, flow: Flow) -> None:
        """Send the head, or hold it where all of the answer is there (`relay.Sink`)."""
        self._flow = flow
        if flow.is_whole:
            self._whole = head
        else:
            self._send(partial(self._write_head, head, so_far, time.monotonic()))

    def piece(self, data: bytes) -> None:
        """Send a piece of the body (`relay.Sink`)."""
        if self._whole is not None:
            self._held += data
            return
        link = self._way.link
        if link is None or link.is_clear:
            self._outlet.write(data)
            return
        self._unsent_bytes += len(data)
        self._send(partial(self._write_piece, data))
        if self._unsent_bytes > UNSENT_MAX_BYTES or self._frames > FRAMES_MAX:
            self._pause()

    def end(self, trailers: Fields, answer: Answer) -> None:
        """Send the end (`relay.Sink`)."""
        write = self._write_end if self._whole is None else self._write_whole
        self._send(partial(write, trailers, answer, time.monotonic()))

    def break_off(self, answer: Answer | None) -> None:
        """Break the answer off behind what has come (`relay.Sink`), or at once if the node ends."""
        if answer is None:
            self._break(encode_broken(Cause.NODE, "the node ended"))
        else:
            cause = cause_of(answer) or Cause.NODE
            self._send(partial(self._break, encode_broken(cause, answer.problem)))

    def settle(self, told: Told) -> None:
        """Settle a request whose answer has not begun (`relay.Sink`)."""
        self._way.settle(told)

    # --- the emulated link --------------------------------------------------------------------

    def _send(self, leave: Callable[[], None]) -> None:
        link = self._way.link
        if link is None or link.is_clear:
            leave()
        else:
            self._frames += 1
            link.send(partial(self._leave, leave), self._break)

    def _leave(self, leave: Callable[[], None]) -> None:
        self._frames -= 1
        if not self._is_over:
            leave()

    def _write_head(self, head: PassedHead, so_far: ev.SoFar, sent_s: float) -> None:
        self._outlet.begin(encode_head(head, so_far, self._stay(sent_s)), self._on_flow)
        self._way.began()

    def _write_piece(self, data: bytes) -> None:
        self._unsent_bytes -= len(data)
        self._outlet.write(data)
        self._resume()

    def _write_end(self, trailers: Fields, answer: Answer, sent_s: float) -> None:
        self._is_over = True
        self._outlet.end(encode_end(trailers, answer, self._stay(sent_s)))
        self._way.left()

    def _write_whole(self, trailers: Fields, answer: Answer, sent_s: float) -> None:
        assert self._whole is not None  # noqa: S101 - it was taken for one
        self._is_over = True
        told = answer, self._stay(sent_s)
        self._outlet.whole(encode_whole(self._whole, self._held, trailers, *told))
        self._way.left()

    def _stay(self, sent_s: float) -> Stay:
        now_s = time.monotonic()
        return self._outlet.stay(now_s, now_s - sent_s)

    def _break(self, why: bytes = b"") -> None:
        if not self._is_over:
            self._is_over = True
            self._outlet.break_off(why)
            self._way.broke()

    # --- who reads more slowly than it comes --------------------------------------------------

    def _on_flow(self, is_behind: bool) -> None:  # noqa: FBT001 - as it is told
        self._is_behind = is_behind
        if is_behind:
            self._pause()
        else:
            self._resume()

    def _pause(self) -> None:
        if self._flow is not None:
            self._flow.pause()

    def _resume(self) -> None:
        is_little = self._unsent_bytes < UNSENT_RESUME_BYTES and self._frames < FRAMES_MAX // 2
        if self._flow is not None and is_little and not self._is_behind:
            self._flow.resume()
