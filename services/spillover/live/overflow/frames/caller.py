"""The end of a shared connection that hands requests over: bytes in, events out; calls in, bytes
out. There is no socket and no clock here.

Each request ends once. It ends with the event of its answer, of its refusal, or that none will
come; or by `drop`, after which no event about it comes. `lost` says how all others end when the
connection is lost.
"""

from __future__ import annotations

from typing import Final

from spillover.live.engine.write_batch import Buffer
from spillover.live.overflow.frames.frame import (
    ANSWER,
    BEGIN,
    BROKEN,
    CANCEL,
    DROP,
    END,
    FORWARD,
    HELD,
    HOLD,
    LEAVING,
    LENGTH,
    MORE,
    NUMBER_MAX,
    PASS,
    REFUSED,
    WHOLE,
    WINDOW,
    BadFrame,
    Frame,
    FrameReader,
)
from spillover.live.overflow.frames.outgoing import WINDOW_BYTES, Outgoing, RequestFrames

STREAMS_MAX: Final = 16_384
"""The most requests under way on one connection."""

UNSENT_MAX_BYTES: Final = 67_108_864
"""The most bytes that may wait to leave; while there are more, nothing else is handed over."""

WINDOW_MAX_BYTES: Final = 1_048_576
"""The widest window of a body, in bytes. Why: 10 MB/s over 100 ms. It doubles as long as its reader
keeps up, and is closed once the reader does not, so that not much more than WINDOW_BYTES waits for
the reader."""

WIDENED_MAX: Final = 8
"""The most bodies at a time with a window wider than WINDOW_BYTES. Why: all that was asked for may
come, and wait here for readers who have stopped meanwhile.

So a place is free again once no more than WINDOW_BYTES may come of its body: the other end gives
back what it was asked for beyond that (HOLD, HELD), whether the reader has stopped or others want
the place.
"""

ASKS_MISSED_MAX: Final = 128
"""The number of times that others have asked for more, since a body last did, after which it gives
up its place to one that wants it. Why: where windows are what holds bodies up, each asks twice per
round trip, however wide its own is. So up to 128 of them take no places from each other, only from
those that need none."""


class Caller:
    """The caller's end of one connection. A message is an answer of at most `limit_bytes`."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.reader = FrameReader()
        """The reader of frames. Its `fault` is what the other end has sent that it may not."""
        self._streams: dict[int, RequestFrames] = {}
        self._last = 0
        """The number of the last request."""
        self._asks = 0
        """The number of times that more of a body was asked for."""
        self._widened: dict[int, int] = {}
        """The requests whose bodies have a wider window than at first, and the count of such times
        at which each last asked; the one that asked longest ago is the first."""
        self.is_leaving = False
        """Whether the other end takes no more requests."""
        self.out = Outgoing()

    def __len__(self) -> int:
        """Returns how many requests are under way."""
        return len(self._streams)

    @property
    def is_over(self) -> bool:
        """Returns whether no request will be handed over here any more."""
        return bool(self.is_leaving or self._last >= NUMBER_MAX or self.reader.fault)

    def call(self, kind: int, parts: tuple[Buffer, ...]) -> int:
        """Hand a request over: FORWARD or PASS. Returns its number; 0 if this connection can take
        none."""
        if (
            self.is_leaving
            or len(self._streams) >= STREAMS_MAX
            or self._last >= NUMBER_MAX
            or self.out.soon_bytes + self.out.waiting_bytes > UNSENT_MAX_BYTES
            or self.reader.fault
        ):
            return 0
        self._last = number = self._last + 1
        self._streams[number] = stream = RequestFrames(number)
        self.out.message(stream, kind, parts)
        return number

    def cancel(self, number: int) -> bool:
        """Ask for a request to be cancelled. Returns whether its answer will tell how it ended. If
        not, a part of it has not left and never will: it surely has not run."""
        stream = self._streams.get(number)
        if stream is None:
            return True  # it has ended by now
        if stream.waiting_bytes:
            self.drop(number)
            return False
        self.out.frame(CANCEL, number)
        return True

    def drop(self, number: int) -> None:
        """Forget a request: nobody waits for its answer. This does nothing if it has ended."""
        stream = self._streams.pop(number, None)
        if stream is not None:
            self._widened.pop(number, None)
            self.out.forget(stream)
            self.out.frame(DROP, number)

    def pause(self, number: int) -> None:
        """Ask for no more of a body than may be sent already. If that is more than a first window,
        take it all back, so that no more than such a window waits for the reader."""
        stream = self._streams.get(number)
        if stream is not None and not stream.paused:
            stream.paused = True
            self._narrow(stream)

    def resume(self, number: int) -> None:
        """Ask for more of a body again."""
        stream = self._streams.get(number)
        if stream is not None and stream.paused:
            stream.paused = False
            self._ask(stream)

    def receive(self, data: bytes) -> list[Frame]:
        """Returns what has come, in order. For each request that is ANSWER or WHOLE with the whole
        message, REFUSED or BROKEN with its reason, or BEGIN, MORE, END (or BROKEN) in this
        order."""
        events: list[Frame] = []
        reader = self.reader
        if reader.fault is not None:
            return events
        for frame in reader.read(data):
            kind, number, told = frame
            stream = self._streams.get(number)
            is_fresh = stream is not None and not (stream.kind or stream.waiting_bytes)
            if (
                is_fresh
                and kind in (ANSWER, WHOLE)
                and LENGTH.unpack_from(told)[0] == len(told) - 4
            ):
                # This is the usual case; `_take` would come to the same.
                del self._streams[number]
                events.append((kind, number, told[LENGTH.size :]))
                continue
            if kind == MORE and stream is not None and stream.kind == BEGIN:
                allowed_bytes = stream.allowed_bytes - len(told)
                if 2 * allowed_bytes > stream.wide_bytes:  # as above
                    stream.allowed_bytes = allowed_bytes
                    events.append(frame)
                    continue
            try:
                self._take(frame, events)
            except BadFrame as bad:
                reader.fault = str(bad)
                break
        return events

    def lost(self, left_bytes: float) -> tuple[list[int], list[int]]:
        """End the connection, of which at most `left_bytes` have left. Returns the requests of
        which all had left, so that they may run, and those that surely do not."""
        streams, self._streams = self._streams, {}
        left = [n for n, stream in streams.items() if stream.ends_at_bytes <= left_bytes]
        return left, [n for n, stream in streams.items() if stream.ends_at_bytes > left_bytes]

    # ------------------------------------------------------------------------------------------

    def _take(self, frame: Frame, events: list[Frame]) -> None:
        kind, number, told = frame
        stream = self._streams.get(number)
        if kind == LEAVING:
            self._leave(number, events)
        elif kind in (FORWARD, PASS, CANCEL, DROP, WINDOW, HOLD) or not 0 < number <= self._last:
            raise BadFrame(f"expected an answer to a request, got kind {kind} for {number}")
        elif stream is None:
            return  # nobody waits for it any more
        elif kind == MORE:
            self._more(stream, told, events)
        elif kind == HELD:
            self._held(stream, told)
        elif kind in (REFUSED, BROKEN):
            if kind == REFUSED and stream.kind:
                raise BadFrame(f"expected the rest of answer {number}, got a refusal")
            self._end(stream, frame, events)
        elif kind == END:
            if stream.kind != BEGIN:
                raise BadFrame(f"expected the beginning of answer {number}, got its end")
            self._end(stream, frame, events)
        else:
            self._begin(stream, frame, events)

    def _begin(self, stream: RequestFrames, frame: Frame, events: list[Frame]) -> None:
        """Take the first frame of an answer."""
        kind, number, told = frame
        if stream.kind or stream.waiting_bytes:
            raise BadFrame(f"expected no other answer to {number}")
        if kind == BEGIN:
            stream.kind = kind
            events.append(frame)
            return
        message = stream.begin(kind, told, 0.0)
        if message is not None:
            self._end(stream, (kind, number, message), events)
        elif stream.left_bytes > self._limit_bytes:
            self.drop(number)
            events.append((BROKEN, number, b""))

    def _more(self, stream: RequestFrames, data: bytes, events: list[Frame]) -> None:
        if stream.kind != BEGIN:
            message = stream.go_on(data)
            if message is not None:
                self._end(stream, (stream.kind, stream.number, message), events)
            return
        stream.allowed_bytes -= len(data)
        if stream.allowed_bytes < 0:
            raise BadFrame(f"expected no more of {stream.number} than was asked for")
        events.append((MORE, stream.number, data))
        if not (stream.paused or stream.is_held) and 2 * stream.allowed_bytes <= stream.wide_bytes:
            self._widen(stream)
            self._ask(stream)

    def _widen(self, stream: RequestFrames) -> None:
        """Double the window of a body whose reader keeps up, if there is a place for it."""
        self._asks += 1
        self._widened.pop(stream.number, 0)
        if len(self._widened) >= WIDENED_MAX:
            self._narrow_one()
        if len(self._widened) < WIDENED_MAX:
            self._widened[stream.number] = self._asks
            stream.wide_bytes = min(2 * stream.wide_bytes, WINDOW_MAX_BYTES)

    def _narrow_one(self) -> None:
        """Take the place of the body that asked longest ago."""
        for number, asked in self._widened.items():
            stream = self._streams[number]
            if self._asks - asked < ASKS_MISSED_MAX:
                return
            if not stream.is_held:
                self._narrow(stream)
                return

    def _narrow(self, stream: RequestFrames) -> None:
        """Make a body's window as wide as at first: now, or once the other end has said how much it
        gives back."""
        stream.wide_bytes = WINDOW_BYTES
        if stream.allowed_bytes <= WINDOW_BYTES:
            self._widened.pop(stream.number, None)
        elif not stream.is_held:
            stream.is_held, stream.anew_bytes = True, 0
            self.out.frame(HOLD, stream.number)
            if not stream.paused:
                self._ask(stream)

    def _held(self, stream: RequestFrames, told: bytes) -> None:
        """Note that all of a body that was on its way has come, and that no more comes except what
        was asked for anew."""
        held_bytes = stream.allowed_bytes - stream.anew_bytes
        if not stream.is_held or LENGTH.unpack(told)[0] != held_bytes:
            raise BadFrame(f"expected {held_bytes} bytes held back of {stream.number}")
        stream.is_held, stream.allowed_bytes = False, stream.anew_bytes
        self._widened.pop(stream.number, None)
        if not stream.paused:
            self._ask(stream)

    def _ask(self, stream: RequestFrames) -> None:
        """Ask for as much more as makes a window. For a body that is held back, ask behind HOLD for
        a first one, so that its reader does not wait for HELD."""
        may_come_bytes = stream.anew_bytes if stream.is_held else stream.allowed_bytes
        more_bytes = stream.wide_bytes - may_come_bytes
        if more_bytes > 0:
            stream.allowed_bytes += more_bytes
            if stream.is_held:
                stream.anew_bytes += more_bytes
            self.out.frame(WINDOW, stream.number, LENGTH.pack(more_bytes))

    def _end(self, stream: RequestFrames, event: Frame, events: list[Frame]) -> None:
        del self._streams[stream.number]
        self._widened.pop(stream.number, None)
        if stream.waiting_bytes:  # it was answered before all of it had come
            self.out.forget(stream)
        events.append(event)

    def _leave(self, last: int, events: list[Frame]) -> None:
        """Give up the requests that the other end has not taken, and surely never will."""
        if last > self._last or self.is_leaving:
            raise BadFrame(f"expected to hear once of at most {self._last}, got {last}")
        self.is_leaving = True
        for number in [one for one in self._streams if one > last]:
            self._end(self._streams[number], (REFUSED, number, b""), events)
