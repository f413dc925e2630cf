"""Heads of messages that have come before. Most clients, and all neighbors, send the same bytes
over and over, but for the length of the body: what a parser has made of them holds for them again.

Nothing is understood here that a parser has not understood: what is known are bytes, as they came.
"""

from __future__ import annotations

import re
from typing import Any, Generic, NamedTuple, TypeVar

HEAD_BYTES_MAX = 2048
"""Longer heads are not remembered."""

KNOWN_MAX = 64
"""One more, and all are forgotten: what comes again and again is soon known anew."""

NOT_KEPT = frozenset(
    {b"authorization", b"cookie", b"idempotency-key", b"proxy-authorization", b"set-cookie",
     b"traceparent", b"tracestate"}
)  # fmt: skip
"""Heads with one of them are not remembered: secret, or another each time."""

_LENGTH = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: (0|[1-9][0-9]{0,14})(?=\r\n)")
_NAME = b"\r\ncontent-length:"
_KEY = re.compile(rb"\r\n[Ii]dempotency-[Kk]ey: ([!-~]{1,200})(?=\r\n)")

T = TypeVar("T")


class Known(Generic[T]):
    """The meaning of bytes that have come before."""

    __slots__ = ("meanings",)

    def __init__(self) -> None:
        self.meanings: dict[bytes, T] = {}

    def keep(self, told: bytes, meaning: T) -> None:
        """These bytes have been found to mean this."""
        if len(told) > HEAD_BYTES_MAX:
            return
        if len(self.meanings) >= KNOWN_MAX:
            self.meanings.clear()
        self.meanings[told] = meaning


class KnownHeads(Known[T]):
    """The meanings of heads, by their bytes without the digits of the length."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[int] = set()

    def comes_again(self, head: bytes) -> bool:
        """Returns whether the head has come before, lately: one that differs each time, by a name
        or an instant, is not worth keeping."""
        mark = hash(head)
        if mark in self._seen:
            return True
        if len(self._seen) >= KNOWN_MAX:
            self._seen.clear()
        self._seen.add(mark)
        return False

    def learn(self, head: bytes, meaning: T) -> None:
        """A parser has found that it means this, whatever the length."""
        if head.lower().count(_NAME) == 1:  # else the length may be another one than was taken out
            self.keep(head, meaning)


def without_key(head: bytes) -> tuple[bytes, bytes] | None:
    """Returns (head without its `Idempotency-Key`, that key); None where it has none that is
    usual. The name of the field stays."""
    found = _KEY.search(head)
    if found is None:
        return None
    first, last = found.span(1)
    return head[:first] + head[last:], found[1]


class KnownAnswer(NamedTuple):
    """The meaning of the head of an answer, whatever its length: that of its body, unless that
    comes in chunks."""

    status: int
    keep_alive: bool
    keep_s: float | None
    meaning: Any
    """What it means to exchanges of its kind (`outgoing`)."""
    is_chunked: bool = False


def whole_message(data: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Returns (head without the digits of its length, these digits, body) of what may be one whole
    message with a body, and nothing else; None of all else."""
    end = data.find(b"\r\n\r\n", 0, HEAD_BYTES_MAX)
    length = _LENGTH.search(data, 0, end + 2) if end > 0 else None
    if length is None or len(data) != end + 4 + int(length[1]):
        return None
    first, last = length.span(1)
    return data[:first] + data[last : end + 4], length[1], data[end + 4 :]
