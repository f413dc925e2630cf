"""A frame of protocol version 3: how long its parts may be, and how bytes are taken apart.

A frame is a head of nine bytes (length of the rest, number of the request, kind) and the rest. The
two ends know what it means: `caller`, `callee`. There is no socket and no clock here.
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

FRAME: Final = struct.Struct(">IIB")
"""The head of a frame: the length of the rest, the number of the request, the kind."""

MESSAGE: Final = struct.Struct(">IIBI")
"""The head of a frame with which a message begins: it goes on with the length of all of it."""

LENGTH: Final = struct.Struct(">I")

CHUNK_BYTES: Final = 32_768
"""The most bytes of a message or a body in one frame, where others wait. Why: a frame holds up what
is behind it, 32 KiB for 3 ms at 100 Mbit/s, and costs both ends some 2 us."""

MORE_MAX_BYTES: Final = 131_072
"""The most bytes of it in one frame where no other waits: as much as is written at once."""

TOLD_LIMIT_BYTES: Final = 262_144
"""The most bytes that the beginning or the end of an answer that passes through may take, which
makes the largest frame."""

REFUSED_LIMIT_BYTES: Final = 4096
"""The most bytes that the reason of a refusal, or of an answer that breaks off, may take."""

NUMBER_MAX: Final = 2**31
"""The last number of a request on one connection; the next one gets another connection."""

# From the caller: a request that is handed over; one that passes through; that a request is to be
# cancelled; that nobody waits for it any more.
FORWARD, PASS, CANCEL, DROP = 1, 2, 3, 4
# From both: more of a message or a body. From the caller: how much more of a body may be sent; that
# nothing of it is to be sent before the next WINDOW. From the callee: how much might have been
# sent, which does not count any more.
MORE, WINDOW, HOLD, HELD = 5, 6, 14, 15
# From the callee: an answer; one that passes through and is there at once; that a request surely
# has not run; that no answer will come, or no more of it.
ANSWER, WHOLE, REFUSED, BROKEN = 7, 8, 9, 10
# From the callee: how an answer that passes through begins, and ends; that no request of a higher
# number is taken.
BEGIN, END, LEAVING = 11, 12, 13

LENGTHS: Final = {
    FORWARD: (LENGTH.size, LENGTH.size + CHUNK_BYTES),
    PASS: (LENGTH.size, LENGTH.size + CHUNK_BYTES),
    CANCEL: (0, 0),
    DROP: (0, 0),
    MORE: (1, MORE_MAX_BYTES),
    WINDOW: (LENGTH.size, LENGTH.size),
    HOLD: (0, 0),
    HELD: (LENGTH.size, LENGTH.size),
    ANSWER: (LENGTH.size, LENGTH.size + CHUNK_BYTES),
    WHOLE: (LENGTH.size, LENGTH.size + CHUNK_BYTES),
    REFUSED: (0, REFUSED_LIMIT_BYTES),
    BROKEN: (0, REFUSED_LIMIT_BYTES),
    BEGIN: (1, TOLD_LIMIT_BYTES),
    END: (1, TOLD_LIMIT_BYTES),
    LEAVING: (0, 0),
}
"""The lengths that the rest of a frame may have, by its kind."""

NO_FRAME: Final = (1, 0)
"""The lengths of an unknown kind."""

Frame: TypeAlias = tuple[int, int, bytes]
"""A kind, the number of a request, and the content of the frame."""


class BadFrame(ValueError):
    """The bytes are no frame that may come now."""


class FrameReader:
    """A reader that takes the bytes of one direction apart, however they come."""

    __slots__ = ("_kept", "fault")

    def __init__(self) -> None:
        self._kept = bytearray()
        """The beginning of a frame that has not come whole."""
        self.fault: str | None = None
        """The reason why nothing is read any more; None while all is well."""

    def read(self, data: bytes) -> list[Frame]:
        """Returns the frames that are whole now. Bytes that are no frame set the `fault`: frames
        before them count, and nothing behind them does."""
        frames: list[Frame] = []
        at = self._complete(data, frames) if self._kept else 0
        end = len(data)
        while end - at >= FRAME.size:
            length, number, kind = FRAME.unpack_from(data, at)
            shortest, longest = LENGTHS.get(kind, NO_FRAME)
            if not (shortest <= length <= longest and number <= NUMBER_MAX):
                self.fault = f"expected a frame, got kind {kind} of {length} bytes, {number}"
                return frames
            upto = at + FRAME.size + length
            if upto > end:
                break
            frames.append((kind, number, data[at + FRAME.size : upto]))
            at = upto
        if at < end:
            self._kept += data[at:]
        return frames

    def _complete(self, data: bytes, frames: list[Frame]) -> int:
        """Go on with the frame whose beginning is kept, and with nothing behind it, so that no more
        of a large one is copied. Returns how many of the bytes that took."""
        kept, at = self._kept, 0
        if len(kept) < FRAME.size:
            at = FRAME.size - len(kept)
            kept += data[:at]
            if len(kept) < FRAME.size:
                return len(data)
        length, number, kind = FRAME.unpack_from(kept)
        shortest, longest = LENGTHS.get(kind, NO_FRAME)
        if not (shortest <= length <= longest and number <= NUMBER_MAX):
            self.fault = f"expected a frame, got kind {kind} of {length} bytes, {number}"
            return len(data)
        upto: int = at + FRAME.size + length - len(kept)
        kept += data[at:upto]
        if upto > len(data):
            return len(data)
        frames.append((kind, number, bytes(memoryview(kept)[FRAME.size :])))
        self._kept = bytearray()
        return upto
