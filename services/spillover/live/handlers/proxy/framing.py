"""HTTP/1.1 as it stands on a connection, for both ends of a passed request: where a head ends, its
lines taken apart, and bodies by length, in chunks, or to the end of the connection.

Strict: what two readers might read differently is malformed (RFC 9112, sections 2.2, 5, 6, 7). What
headers mean is in `heads`. A parser of requests or of answers alone, such as httptools has, would
be another reader than that of the other end, knows only some methods, and cannot be told that an
answer has no body.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from typing import Protocol, TypeAlias

from spillover.model.passed import Fields

HEAD_LIMIT_BYTES = 65_536
"""Of a head; trailers are held to it too."""

FIELDS_MAX = 256
"""Lines of one head."""

CHUNK_LINE_MAX_BYTES = 256
"""Of the line with a chunk's length and its extensions."""

_FIELD = re.compile(rb"(?m)^([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\r\n]*)\r\n")
_CONTROL = bytes({*range(0x20), 0x7F} - set(b"\t"))
_TOKEN = b"!#$%&'*+-.^_`|~" + (string.digits + string.ascii_letters).encode()
_BARE = re.compile(rb"(?<!\r)\n|\r(?!\n)(?!\Z)")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[^\x00-\x08\x0a-\x1f\x7f]*)?")

Parts: TypeAlias = tuple[bytes, Fields]
"""The first line of a head, and its fields."""


class Malformed(ValueError):
    """These bytes are no HTTP, or HTTP that others may read differently."""


class TooLong(Malformed):
    """A head is."""


class HeadBytes:
    """Collects a head that comes in pieces."""

    __slots__ = ("_bytes",)

    def __init__(self) -> None:
        self._bytes = b""

    @property
    def has_begun(self) -> bool:
        return bool(self._bytes)

    def feed(self, data: bytes) -> tuple[bytes, bytes] | None:
        """Returns the head, with the end of its last line, and what follows it; None before all of
        it is there. Raises Malformed, and TooLong."""
        looked = max(0, len(self._bytes) - 3)
        held = self._bytes + data if self._bytes else data
        end = held.find(b"\r\n\r\n", looked, HEAD_LIMIT_BYTES + 4)
        if end >= 0:
            self._bytes = b""
            return held[: end + 2], held[end + 4 :]
        if len(held) > HEAD_LIMIT_BYTES:
            raise TooLong(f"expected a head of at most {HEAD_LIMIT_BYTES} bytes")
        if _BARE.search(held, looked):
            raise Malformed("expected lines that end with CR and LF")
        self._bytes = held
        return None


def split_head(head: bytes) -> Parts:
    """Returns the first line and the fields of a head. Raises Malformed."""
    count = _count_lines(head)
    if count < 0:
        raise Malformed("expected no control characters")
    start, _, lines = head.partition(b"\r\n")
    return start, _split_fields(lines, count - 1)


def write_head(start: bytes, fields: Sequence[tuple[bytes, bytes]]) -> bytes | None:
    """Returns a head with the empty line behind it; None where it would be read as other lines than
    these."""
    names = [name for name, _ in fields]
    if b"".join(names).translate(None, _TOKEN) or not all(names):
        return None
    return write_lines(start, fields)


def write_lines(start: bytes, fields: Sequence[tuple[bytes, bytes]]) -> bytes | None:
    """Returns the same of fields with names that are known to be some."""
    head = b"\r\n".join([start, *[b": ".join(field) for field in fields], b"\r\n"])
    return head if _count_lines(head) == len(fields) + 2 else None


def _split_fields(lines: bytes, count: int) -> Fields:
    """Returns the fields that so many lines are, without control characters, each of which ends
    with CR and LF. Raises Malformed."""
    if not lines:
        return ()
    fields: list[tuple[bytes, bytes]] = _FIELD.findall(lines)  # half the time of a loop
    if len(fields) != count:
        is_folded = b"\r\n " in lines or b"\r\n\t" in lines or lines[:1] in (b" ", b"\t")
        what = "no line that begins with a blank" if is_folded else "NAME: VALUE"
        raise Malformed(f"header: expected {what}")
    if len(fields) > FIELDS_MAX:
        raise TooLong(f"expected at most {FIELDS_MAX} headers")
    if b" \r\n" in lines or b"\t\r\n" in lines:
        return tuple([(name, value.rstrip(b" \t")) for name, value in fields])
    return tuple(fields)


def _count_lines(lines: bytes) -> int:
    """How many lines end in these bytes; -1 where there are control characters in them, or one half
    alone of a line's end."""
    ends = lines.count(b"\r\n")
    return ends if len(lines) - len(lines.translate(None, _CONTROL)) == 2 * ends else -1


class Body(Protocol):
    """Reads a body off a connection."""

    done: bool
    """Whether all of it has come."""
    rest: bytes
    """What came behind it."""
    trailers: Fields

    def feed(self, data: bytes) -> bytes:
        """Returns what of these bytes is body. Raises Malformed."""


class ByLength:
    """Of a length that was told; none at all of 0."""

    __slots__ = ("done", "left_bytes", "rest", "trailers")

    def __init__(self, size_bytes: int) -> None:
        self.left_bytes = size_bytes
        self.done = not size_bytes
        self.rest = b""
        self.trailers: Fields = ()

    def feed(self, data: bytes) -> bytes:
        left_bytes = self.left_bytes - len(data)
        if left_bytes > 0:
            self.left_bytes = left_bytes
            return data
        self.done = True
        self.left_bytes = 0
        if not left_bytes:
            return data
        self.rest = data[left_bytes:]
        return data[:left_bytes]


class ToTheEnd:
    """Up to the end of the connection."""

    __slots__ = ()
    done = False
    rest = b""
    trailers: Fields = ()

    def feed(self, data: bytes) -> bytes:
        return data


_SIZE, _DATA, _BEHIND_DATA, _TRAILERS = range(4)


def _one_chunk(data: bytes) -> bytes:
    """Returns what is in a chunk, if that is all there is, with its length as most write it: as it
    mostly comes, of streams. Nothing for anything else."""
    end = data.find(b"\r\n", 1, CHUNK_LINE_MAX_BYTES)
    size_bytes = len(data) - end - 4
    if end < 0 or size_bytes <= 0 or not data.startswith(b"%x\r\n" % size_bytes):
        return b""
    return data[end + 2 : -2] if data.endswith(b"\r\n") else b""


class Chunked:
    """In chunks, with trailers. Extensions are left out."""

    __slots__ = ("_at", "_left_bytes", "_pending", "done", "rest", "trailers")

    def __init__(self) -> None:
        self._at = _SIZE
        self._left_bytes = 0
        """Of the chunk that is read."""
        self._pending = b""
        """A line that has not come whole."""
        self.done = False
        self.rest = b""
        self.trailers: Fields = ()

    def feed(self, data: bytes) -> bytes:
        looked = 0
        if self._pending:
            looked = max(0, len(self._pending) - 3)
            data, self._pending = self._pending + data, b""
        elif self._at == _SIZE and (piece := _one_chunk(data)):
            return piece
        pieces = []
        start, size = 0, len(data)
        while start < size and not self.done:
            if self._at == _DATA:
                piece = data[start : start + self._left_bytes]
                pieces.append(piece)
                start += len(piece)
                self._left_bytes -= len(piece)
                if not self._left_bytes:
                    self._at = _BEHIND_DATA
                continue
            end = self._line_end(data, start, looked)
            if end < 0:
                self._pending = data[start:]
                break
            self._take_line(data, start, end)
            start = end
        if self.done:
            self.rest = data[start:]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _line_end(self, data: bytes, start: int, looked: int) -> int:
        """Where what comes next ends, its line end included; -1 if that has not come. Of trailers,
        which may come byte by byte, the first `looked` have been looked through."""
        if self._at == _TRAILERS and not data.startswith(b"\r\n", start):
            end = data.find(b"\r\n\r\n", max(start, looked))
            limit_bytes, more = HEAD_LIMIT_BYTES, 4
        else:
            end = data.find(b"\r\n", start, start + CHUNK_LINE_MAX_BYTES)
            limit_bytes, more = CHUNK_LINE_MAX_BYTES if self._at == _SIZE else 1, 2
        if end < 0 and (len(data) - start > limit_bytes or _BARE.search(data, max(start, looked))):
            raise Malformed("body: expected chunks")
        return end + more if end >= 0 else -1

    def _take_line(self, data: bytes, start: int, end: int) -> None:
        if self._at == _BEHIND_DATA:
            if end != start + 2:
                raise Malformed("body: expected the end of a chunk where its length says")
            self._at = _SIZE
        elif self._at == _SIZE:
            told = _CHUNK.fullmatch(data, start, end - 2)
            if told is None:
                raise Malformed("body: expected the length of a chunk")
            self._left_bytes = int(told[1], 16)
            self._at = _DATA if self._left_bytes else _TRAILERS
        else:
            self.done = True
            if end > start + 2:
                lines = data[start : end - 2]
                count = _count_lines(lines)
                if len(lines) > HEAD_LIMIT_BYTES or count < 0:
                    raise Malformed("trailers: expected lines without control characters")
                self.trailers = _split_fields(lines, count)
