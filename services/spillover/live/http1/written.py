"""Heads as they are sent, of requests and of answers: the one place where a first line, fields, how
a body is framed, and what becomes of the connection are put together. What would be read as other
lines than these raises ValueError: nothing of it holds CR, LF, NUL or another control character but
a tab.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from spillover.live.http1.framing import TOKEN, count_lines
from spillover.live.http1.heads import CHUNKED, NO_BODY

TO_THE_END = -2
"""Stands in place of a length: the body ends with its connection."""

ANOTHER = "expected fields of a head that is not read as another one"

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

CLOSE = (b"connection", b"close")
"""Among the fields of an answer it says that nothing follows on the connection."""

_PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}
STATUS_LINE = {s: b"HTTP/1.1 %d %b\r\n" % (s, _PHRASES.get(s, b"")) for s in range(100, 600)}

USUAL = b"%b%bcontent-length: %d\r\n\r\n"
"""The head of an answer behind which the connection goes on, as `answer_head` makes it, for who
cannot spare the call: its first line, its fields, its length."""

_CHUNKED_LINE = b"transfer-encoding: chunked\r\n"
_CLOSE_LINE = b"connection: close\r\n"
_KEEP_ALIVE_LINE = b"connection: keep-alive\r\n"


def head_lines(fields: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Returns fields as they are sent, whose names are known to be some."""
    lines = b"".join([b"%b: %b\r\n" % field for field in fields])
    if count_lines(lines) != len(fields):
        raise ValueError(ANOTHER)
    return lines


def named_lines(fields: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Returns the same of fields with any names."""
    names = [name for name, _ in fields]
    if b"".join(names).translate(None, TOKEN) or not all(names):
        raise ValueError(ANOTHER)
    return head_lines(fields)


def request_head(start: bytes, fields: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Returns a request's head that begins with this line; its fields tell all."""
    if count_lines(start):
        raise ValueError(ANOTHER)
    return b"%b\r\n%b\r\n" % (start, named_lines(fields))


def status_line(status: int, reason: bytes) -> bytes:
    """Returns the first line of somebody else's answer."""
    line = b"HTTP/1.1 %d %b\r\n" % (status, reason)
    if count_lines(line) != 1:
        raise ValueError(ANOTHER)
    return line


def size_sent(method: str, status: int, length: int | None, *, is_old: bool) -> int:
    """Returns how long the body is that follows a head which tells this length: or CHUNKED, or
    TO_THE_END, which closes the connection, where it tells none."""
    if method == "HEAD" or status in NO_BODY:
        return 0
    if length is not None:
        return length
    return TO_THE_END if is_old else CHUNKED


def answer_head(
    start: bytes, lines: bytes, size_bytes: int | None, *, keep_alive: bool, is_old: bool
) -> bytes:
    """Returns the head of an answer: its first line and its fields, which are written already; the
    length that is told besides, or CHUNKED, or None; and what becomes of the connection, where the
    client does not know: one of HTTP/1.0 has to be told that it stays."""
    connection = (_KEEP_ALIVE_LINE if is_old else b"") if keep_alive else _CLOSE_LINE
    if size_bytes is None:
        return b"%b%b%b\r\n" % (start, lines, connection)
    if size_bytes == CHUNKED:
        return b"%b%b%b%b\r\n" % (start, lines, _CHUNKED_LINE, connection)
    return USUAL % (start, lines + connection, size_bytes)
