"""The end of a shared connection to which requests are handed over: bytes in, events out; answers
in, bytes out. There is no socket and no clock here; times are given."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Final

from spillover.live.engine.write_batch import Buffer
from spillover.live.overflow.frames.caller import STREAMS_MAX, WINDOW_MAX_BYTES
from spillover.live.overflow.frames.frame import (
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
    PASS,
    REFUSED,
    WINDOW,
    BadFrame,
    Frame,
    FrameReader,
)
from spillover.live.overflow.frames.outgoing import WINDOW_BYTES, Outgoing, RequestFrames

TOO_LARGE: Final = b'{"reason":"too_large"}'


class Callee:
    """The callee's end of one connection. `limits_bytes` has the longest request of each kind."""

    def __init__(self, limits_bytes: dict[int, int]) -> None:
        self.limits_bytes = limits_bytes
        self.reader = FrameReader()
        """The reader of frames. Its `fault` is what the other end has sent that it may not."""
        self._streams: dict[int, RequestFrames] = {}
        self.begun: dict[int, RequestFrames] = {}
        """The requests that have not come whole, by number."""
        self.held_bytes = 0
        """The number of their bytes that have come."""
        self._last = 0
        self.is_leaving = False
        self.out = Outgoing()

    def __len__(self) -> int:
        """Returns how many requests are under way."""
        return len(self._streams)

    def receive(self, data: bytes, now_s: float) -> list[Frame]:
        """Returns what has come, in order: FORWARD or PASS with a whole request, CANCEL, DROP."""
        events: list[Frame] = []
        reader = self.reader
        if reader.fault is not None:
            return events
        for frame in reader.read(data):
            kind, number, told = frame
            if kind <= PASS and len(told) == LENGTH.unpack_from(told)[0] + LENGTH.size:
                # This is the usual case; `_take` would come to the same.
                is_next = number == self._last + 1 and len(self._streams) < STREAMS_MAX
                if is_next and not self.is_leaving and len(told) <= self.limits_bytes[kind]:
                    self._last = number
                    self._streams[number] = RequestFrames(number)
                    events.append((kind, number, told[LENGTH.size :]))
                    continue
            try:
                self._take(frame, events, now_s)
            except BadFrame as bad:
                reader.fault = str(bad)
                break
        return events

    def begun_s(self, number: int) -> float | None:
        """Returns when a request began to come, if it came in several frames; None if it has ended:
        it may be dropped in the read in which it has come."""
        stream = self._streams.get(number)
        return None if stream is None else stream.since_s

    def begun_before(self, since_s: float) -> list[int]:
        """Returns the requests that began to come before `since_s` and have not come whole."""
        return [n for n, stream in self.begun.items() if stream.since_s < since_s]

    def answer(self, number: int, kind: int, parts: tuple[Buffer, ...]) -> None:
        """Answer with ANSWER or WHOLE. This call, `refuse`, `break_off` and `end` end a request;
        none of them does anything for a request that has ended."""
        stream = self._streams.pop(number, None)
        if stream is not None:
            self.out.message(stream, kind, parts)

    def refuse(self, number: int, told: bytes = b"") -> None:
        """Say that the request surely has not run. It must not have begun to be answered."""
        if self._pop(number) is not None:
            self.out.frame(REFUSED, number, told)

    def break_off(self, number: int, told: bytes = b"") -> None:
        """Say that no answer comes, or no more of it, and perhaps why."""
        stream = self._pop(number)
        if stream is not None:
            self.out.forget(stream)
            self.out.frame(BROKEN, number, told)

    def begin(self, number: int, told: bytes, on_flow: Callable[[bool], None]) -> None:
        """Begin an answer whose body comes in pieces. `on_flow` is called with True when more waits
        here than the reader has asked for, and with False when nothing does."""
        stream = self._streams.get(number)
        if stream is not None:
            stream.window_bytes, stream.on_flow = WINDOW_BYTES, on_flow
            self.out.frame(BEGIN, number, told)

    def piece(self, number: int, data: bytes) -> None:
        stream = self._streams.get(number)
        if stream is not None:
            self.out.piece(stream, data)

    def end(self, number: int, told: bytes) -> None:
        """Send the end of the answer, behind all that waits of it."""
        stream = self._streams.get(number)
        if stream is None:
            return
        if stream.waiting_bytes:
            stream.on_flow = partial(self._has_left, number)
        else:
            del self._streams[number]
        self.out.behind(stream, END, told)

    def leave(self) -> None:
        """Take no more requests than have come: the other end is told that any others surely do not
        run."""
        if not self.is_leaving:
            self.is_leaving = True
            self.out.frame(LEAVING, self._last)

    # ------------------------------------------------------------------------------------------

    def _has_left(self, number: int, _: bool) -> None:  # noqa: FBT001 - as `on_flow`
        self._streams.pop(number, None)

    def _pop(self, number: int) -> RequestFrames | None:
        stream = self._streams.pop(number, None)
        if stream is not None and self.begun.pop(number, None) is not None:
            self.held_bytes -= sum(map(len, stream.told))
        return stream

    def _take(self, frame: Frame, events: list[Frame], now_s: float) -> None:
        kind, number, told = frame
        if kind in (FORWARD, PASS):
            self._begin(frame, events, now_s)
            return
        take = self._TAKES.get(kind)
        if take is None or not 0 < number <= self._last:
            raise BadFrame(f"expected a request, got kind {kind} for {number}")
        stream = self._streams.get(number)
        if stream is not None:  # else it has ended, which its caller may not know yet
            take(self, stream, told, events)

    def _begin(self, frame: Frame, events: list[Frame], now_s: float) -> None:
        kind, number, told = frame
        if number != self._last + 1 or len(self._streams) >= STREAMS_MAX:
            expected = f"expected request {self._last + 1}, and at most {STREAMS_MAX}"
            raise BadFrame(f"{expected}, got {number}")
        if self.is_leaving:
            self._last = number
            return  # the other end is told so
        self._last = number
        stream = RequestFrames(number)
        message = stream.begin(kind, told, now_s)
        size_bytes = len(told) - LENGTH.size + stream.left_bytes
        if size_bytes > self.limits_bytes[kind]:
            self.out.frame(REFUSED, number, TOO_LARGE)
            return
        self._streams[number] = stream
        if message is not None:
            events.append((kind, number, message))
        else:
            self.begun[number] = stream
            self.held_bytes += len(told) - LENGTH.size

    def _more(self, stream: RequestFrames, told: bytes, events: list[Frame]) -> None:
        message = stream.go_on(told)
        self.held_bytes += len(told)
        if message is not None:
            del self.begun[stream.number]
            self.held_bytes -= len(message)
            events.append((stream.kind, stream.number, message))

    def _cancel(self, stream: RequestFrames, told: bytes, events: list[Frame]) -> None:
        if stream.number in self.begun:
            raise BadFrame(f"expected the rest of request {stream.number}, got its cancel")
        events.append((CANCEL, stream.number, told))

    def _drop(self, stream: RequestFrames, told: bytes, events: list[Frame]) -> None:
        if stream.number not in self.begun:
            events.append((DROP, stream.number, told))
        self._pop(stream.number)
        self.out.forget(stream)

    def _widen(self, stream: RequestFrames, told: bytes, _: list[Frame]) -> None:
        (more_bytes,) = LENGTH.unpack(told)
        asked_bytes = stream.window_bytes + more_bytes
        if stream.on_flow is None or asked_bytes > WINDOW_MAX_BYTES:
            raise BadFrame(f"expected a window of {WINDOW_MAX_BYTES} bytes, got {more_bytes} more")
        self.out.widen(stream, more_bytes)

    def _hold(self, stream: RequestFrames, _: bytes, __: list[Frame]) -> None:
        if stream.on_flow is None:
            raise BadFrame(f"expected a body of {stream.number} to hold back, got none")
        self.out.frame(HELD, stream.number, LENGTH.pack(self.out.hold(stream)))

    _TAKES: ClassVar[dict[int, Callable[[Any, RequestFrames, bytes, list[Frame]], None]]] = {
        MORE: _more,
        WINDOW: _widen,
        HOLD: _hold,
        CANCEL: _cancel,
        DROP: _drop,
    }
    """The method that takes a frame about a request that has begun, by its kind."""
