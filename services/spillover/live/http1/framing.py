"""HTTP/1.1 as it stands on a connection, for both ends of a passed request: where a head ends, its
lines taken apart, and bodies by length, in chunks, or to the end of the connection.

Requests are read strictly: what two readers might read differently is malformed (RFC 9112, sections
2.2, 5, 6, 7). Of answers is borne what services write and every reader takes for the same end; it
is written anew in the strict form, and read as that. `rules` has the table. What headers mean is in
`heads`.
"""

from __future__ import annotations

import re
import string
from typing import Protocol, TypeAlias

from spillover.live.http1.rules import FIELDS_MAX, HEAD_LIMIT_BYTES, Malformed, Rule
from spillover.model.passed import Fields

CHUNK_LINE_MAX_BYTES, CHUNK_LINE_OF_ANSWER_MAX_BYTES = 256, 4096
"""The longest line with a chunk's length and its extensions, of a request and of an answer."""

_FIELD = re.compile(rb"(?m)^([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\r\n]*)\r\n")
_CONTROL = bytes({*range(0x20), 0x7F} - set(b"\t"))
TOKEN = b"!#$%&'*+-.^_`|~" + (string.digits + string.ascii_letters).encode()
_BARE = re.compile(rb"(?<!\r)\n|\r(?!\n)(?!\Z)")
_BARE_CR = re.compile(rb"\r(?!\n)(?!\Z)")
_BARE_LF = re.compile(rb"(?<!\r)\n")
_END = re.compile(rb"\n\r?\n")
_STRICT_END = re.compile(rb"(?<=\r)\n\r\n")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[^\x00-\x08\x0a-\x1f\x7f]*)?")
_CHUNK_OF_ANSWER = re.compile(rb"0*([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?")

_VERSION = b"HTTP/1."

_NAME = rb"(?m)^([!#$%&'*+\-.^_`|~0-9A-Za-z]+)"
_BLANKS_BEFORE_COLON = re.compile(_NAME + rb"[ \t]+:")
_CONTROL_IN_VALUE = re.compile(_NAME + rb":[^\r\n\0]*[\x01-\x08\x0b\x0c\x0e-\x1f\x7f][^\r\n\0]*")
_BLANKED = _CONTROL.translate(None, b"\0\r\n")
_AS_BLANKS = bytes.maketrans(_BLANKED, b" " * len(_BLANKED))
_NEVER_BLANKED = frozenset({b"connection", b"content-length", b"transfer-encoding"})
"""Fields whose bytes are never replaced: any other byte may be there so that two readers take them
for two things."""

Parts: TypeAlias = tuple[bytes, Fields]
"""The first line of a head, and its fields."""


class HeadBytes:
    """Collects a head that comes in pieces. Lines of an answer's (`of_answer`) may end with LF."""

    __slots__ = ("_of_answer", "held")

    def __init__(self, *, of_answer: bool = False) -> None:
        self.held = b""
        """What has come of it."""
        self._of_answer = of_answer

    def feed(self, data: bytes) -> tuple[bytes, bytes] | None:
        """Returns the head, with the end of its last line, and what follows it; None before all of
        it is there. Raises Malformed."""
        looked = max(0, len(self.held) - 3)
        held = self.held + data if self.held else data
        if self._of_answer:
            found = _END.search(held, looked, HEAD_LIMIT_BYTES)
            end, upto = (found.start() + 1, found.end()) if found else (-1, -1)
        else:
            end = held.find(b"\r\n\r\n", looked, HEAD_LIMIT_BYTES)
            end, upto = (end + 2, end + 4) if end >= 0 else (-1, -1)
        if end >= 0:
            self.held = b""
            return held[:end], held[upto:]
        if len(held) > HEAD_LIMIT_BYTES:
            raise Malformed(Rule.LONG)
        _refuse_bare(held, looked, of_answer=self._of_answer)
        self._check_beginning(held)
        self.held = held
        return None

    def _check_beginning(self, held: bytes) -> None:
        """Who speaks another protocol may never send the end of a head."""
        if self._of_answer:
            if not held.startswith(_VERSION[: len(held)]):
                raise Malformed(Rule.FIRST_LINE, "expected HTTP/1.1 and a status")
        elif held[:1].translate(None, TOKEN + b"\r\n"):
            raise Malformed(Rule.FIRST_LINE)


def _refuse_bare(held: bytes, looked: int, *, of_answer: bool) -> None:
    """Raises Malformed where lines end, behind the first `looked` bytes, as none may."""
    bare = (_BARE_CR if of_answer else _BARE).search(held, looked)
    if bare is not None:
        raise Malformed(Rule.LF_ALONE if bare[0] == b"\n" else Rule.CR_OR_NUL)


def split_answer(head: bytes) -> Parts:
    """Returns the same as `split_head` of an answer's head, where more is borne. Raises
    Malformed."""
    try:
        return split_head(head)
    except Malformed as error:
        if error.rule is Rule.LONG:
            raise
        start, ends, lines = _BARE_LF.sub(b"\r\n", head).partition(b"\r\n")
        return split_head(start + ends + _strict(lines), of_answer=True)


def _strict(lines: bytes) -> bytes:
    """The lines of an answer's head, or its trailers, as a strict reader takes them."""
    lines = _BARE_LF.sub(b"\r\n", lines)
    return _CONTROL_IN_VALUE.sub(_blanked, _BLANKS_BEFORE_COLON.sub(rb"\1:", lines))


def _blanked(line: re.Match[bytes]) -> bytes:
    """Returns the line with blanks for bytes that others may take for the end of a text or of a
    line (RFC 9110, 5.5)."""
    return line[0] if line[1].lower() in _NEVER_BLANKED else line[0].translate(_AS_BLANKS)


def split_head(head: bytes, *, of_answer: bool = False) -> Parts:
    """Returns the first line and the fields of a head. Raises Malformed, `of_answer` where all that
    is borne has been taken away."""
    count = count_lines(head)
    if count < 0:
        raise _refused_control(head, of_answer=of_answer)
    start, _, lines = head.partition(b"\r\n")
    return start, _split_fields(lines, count - 1)


def _refused_control(lines: bytes, *, of_answer: bool) -> Malformed:
    if b"\0" in lines or _BARE_CR.search(lines):
        return Malformed(Rule.CR_OR_NUL)
    if of_answer:  # elsewhere than in a value
        return Malformed(Rule.FIELD)
    return Malformed(Rule.LF_ALONE if _BARE_LF.search(lines) else Rule.CONTROL)


def _split_fields(lines: bytes, count: int) -> Fields:
    """Returns the fields that so many lines are, without control characters, each of which ends
    with CR and LF. Raises Malformed."""
    if not lines:
        return ()
    fields: list[tuple[bytes, bytes]] = _FIELD.findall(lines)  # half the time of a loop
    if len(fields) != count:
        if b"\r\n " in lines or b"\r\n\t" in lines or lines[:1] in (b" ", b"\t"):
            raise Malformed(Rule.FOLDED)
        has_blanks = _BLANKS_BEFORE_COLON.search(lines) is not None
        raise Malformed(Rule.BLANKS_BEFORE_COLON if has_blanks else Rule.FIELD)
    if len(fields) > FIELDS_MAX:
        raise Malformed(Rule.LONG, f"expected at most {FIELDS_MAX} headers")
    if b" \r\n" in lines or b"\t\r\n" in lines:
        return tuple([(name, value.rstrip(b" \t")) for name, value in fields])
    return tuple(fields)


def count_lines(lines: bytes) -> int:
    """How many lines end in these bytes; -1 where there are control characters in them, or one half
    alone of a line's end."""
    ends = lines.count(b"\r\n")
    return ends if len(lines) - len(lines.translate(None, _CONTROL)) == 2 * ends else -1


class Body(Protocol):
    """Reads a body off a connection."""

    done: bool
    """True once all of it has come."""
    rest: bytes
    """The bytes that came behind it."""
    trailers: Fields

    def feed(self, data: bytes) -> bytes:
        """Returns what of these bytes is body. Raises Malformed."""


class ByLength:
    """A body whose length the head says; with 0 there is none."""

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
    """A body in chunks, with trailers. Extensions are left out. More is borne `of_answer`s."""

    __slots__ = ("_at", "_left_bytes", "_of_answer", "_pending", "done", "rest", "trailers")

    def __init__(self, *, of_answer: bool = False) -> None:
        self._of_answer = of_answer
        self._at = _SIZE
        self._left_bytes = 0
        """The bytes to come of the chunk that is read."""
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
            line, end = self._next_line(data, start, looked)
            if end < 0:
                self._pending = data[start:]
                break
            self._take_line(line)
            start = end
        if self.done:
            self.rest = data[start:]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _next_line(self, data: bytes, start: int, looked: int) -> tuple[bytes, int]:
        """Returns the next line, without its end, and where the bytes behind it begin; -1 if that
        has not come. All trailers are one line, each with its end; of them, which may come byte by
        byte, the first `looked` have been looked through."""
        longest = CHUNK_LINE_OF_ANSWER_MAX_BYTES if self._of_answer else CHUNK_LINE_MAX_BYTES
        limit_bytes = longest if self._at == _SIZE else 1
        if self._at == _TRAILERS and data[start : start + 1] not in (b"\r", b"\n", b""):
            limit_bytes = HEAD_LIMIT_BYTES
            found = (_END if self._of_answer else _STRICT_END).search(data, max(start, looked))
            if found is not None:
                return data[start : found.start() + 1], found.end()
        else:
            end = data.find(b"\n", start, start + longest)
            if end >= 0:
                before = end - (data[start:end][-1:] == b"\r")
                if before < end or self._of_answer:
                    return data[start:before], end + 1
        _refuse_bare(data, max(start, looked), of_answer=self._of_answer)
        if len(data) - start > limit_bytes:
            rules = {_SIZE: Rule.SIZE, _BEHIND_DATA: Rule.CHUNK_END}
            raise Malformed(rules.get(self._at, Rule.LONG))
        return b"", -1

    def _take_line(self, line: bytes) -> None:
        if self._at == _BEHIND_DATA:
            if line:
                raise Malformed(Rule.CHUNK_END)
            self._at = _SIZE
        elif self._at == _SIZE:
            told = (_CHUNK_OF_ANSWER if self._of_answer else _CHUNK).fullmatch(line)
            if told is None:
                raise Malformed(_rule_of_size(line, of_answer=self._of_answer))
            self._left_bytes = int(told[1], 16)
            self._at = _DATA if self._left_bytes else _TRAILERS
        else:
            self.done = True
            if line:
                self.trailers = self._split_trailers(line)

    def _split_trailers(self, lines: bytes) -> Fields:
        if self._of_answer:
            lines = _strict(lines)
        count = count_lines(lines)
        if len(lines) > HEAD_LIMIT_BYTES:
            raise Malformed(Rule.LONG)
        if count < 0:
            raise _refused_control(lines, of_answer=self._of_answer)
        return _split_fields(lines, count)


def _rule_of_size(line: bytes, *, of_answer: bool) -> Rule:
    """Returns why this is no length of a chunk."""
    if of_answer or not _CHUNK_OF_ANSWER.fullmatch(line):
        return Rule.CR_OR_NUL if b"\r" in line or b"\0" in line else Rule.SIZE
    has_blanks = line.partition(b";")[0][-1:] in (b" ", b"\t")
    return Rule.BLANKS_BEHIND_SIZE if has_blanks else Rule.LONG_SIZE
