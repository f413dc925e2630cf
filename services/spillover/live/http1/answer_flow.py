"""What comes of a server on one connection: bytes in; answers out, each to the request that was
sent last. Pure; whoever has the connection does as it says.

Bytes become heads and bodies by `framing` and `heads`, or are known (`known_heads`). What an answer
means is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from spillover.live.http1.framing import Body, ByLength, Chunked, HeadBytes, ToTheEnd, split_answer
from spillover.live.http1.heads import AnswerHead, read_answer
from spillover.live.http1.known_heads import HEAD_BYTES_MAX, KnownAnswer, KnownHeads, whole_message
from spillover.live.http1.rules import INTERIM_MAX, Malformed, Rule
from spillover.model.passed import Fields

SWITCHED = b"HTTP/1.1 101 "
"""How the answer begins by which a connection becomes another protocol's that was asked to."""

Head: TypeAlias = AnswerHead | KnownAnswer

Whole: TypeAlias = tuple[Fields, bool]
"""The end of an answer that is whole: trailers, and whether the connection can carry another."""


@dataclass(slots=True, frozen=True)
class Switched:
    """The connection is another protocol's, as these fields say, of which this has come."""

    fields: Fields
    data: bytes


Came: TypeAlias = tuple[
    Sequence[AnswerHead], Head | None, bytes, Whole | Switched | Malformed | None
]
"""What has come of an answer, in its order: interim heads, the head, some of the body, the end."""


class AnswerFlow:
    """The answers of one connection. Whoever has it sets with each request what is `asked`, and
    the three things beside it."""

    __slots__ = (
        "_body", "_head_bytes", "_interim", "_keep_alive", "asked", "at_once_max_bytes", "known",
        "known_as", "may_switch",
    )  # fmt: skip

    def __init__(self) -> None:
        self.asked: str | None = None
        """The method of the request whose answer is to come; None while none is."""
        self.may_switch = False
        """Whether it asks for another protocol."""
        self.known: KnownHeads[KnownAnswer] | None = None
        """The heads of answers to it that need not be read."""
        self.at_once_max_bytes = 0
        """The most bytes of a body behind one of them that is there at once."""
        self.known_as = b""
        """The bytes by which the last head that was read will be looked for, if it may be known."""
        self._head_bytes = HeadBytes(of_answer=True)
        self._interim = 0
        self._body: Body | None = None
        """The body of the answer, while it is read."""
        self._keep_alive = False

    @property
    def has_begun(self) -> bool:
        """Returns whether some of an answer has come, which is broken off by what ends now."""
        return self._body is not None or bool(self._head_bytes.held or self._interim)

    @property
    def ends_whole(self) -> bool:
        """Returns whether the answer is whole if the connection ends now."""
        return isinstance(self._body, ToTheEnd)

    def receive(self, data: bytes) -> bytes | Came | None:
        """Returns what this means: bytes of a body that goes on, or else what has come; None where
        no answer was to come."""
        try:
            if (body := self._body) is not None:
                piece = body.feed(data)
                return ((), None, piece, self._end_of(body)) if body.done else piece
            if (method := self.asked) is None:
                return None
            # From the first byte on, whatever may be known of it.
            has_begun = self._head_bytes.held or self._interim
            known = None if has_begun or method == "HEAD" else self.known
            if known is not None and (whole := whole_message(data)) is not None:
                head = known.meanings.get(whole[0])
                if head is not None and len(whole[2]) <= self.at_once_max_bytes:
                    self.asked = None
                    return (), head, whole[2], ((), head.keep_alive)
            elif known is not None:
                end = data.find(b"\r\n\r\n", 0, HEAD_BYTES_MAX) + 4
                head = known.meanings.get(data[:end])
                if head is not None and head.is_chunked:
                    return self._start((), head, Chunked(of_answer=True), data[end:])
        except Malformed as error:
            return (), None, b"", error.with_traceback(None)  # not to hold what it went through
        return self._read(method, data, b"" if known is None else data)

    def _read(self, method: str, data: bytes, came: bytes) -> Came:
        """Read up to the end of the head, and what has come with it."""
        interim: tuple[AnswerHead, ...] = ()
        try:
            while (found := self._head_bytes.feed(data)) is not None:
                lines, data = found
                if self.may_switch and lines.startswith(SWITCHED):
                    self._interim += 1
                    return interim, None, b"", Switched(split_answer(lines)[1], data)
                head = read_answer(lines, method)
                if head.status >= 200:
                    self.known_as = _name(head, came, data) if came and not interim else b""
                    return self._start(interim, head, head.body, data)
                self._interim += 1
                if self._interim > INTERIM_MAX:
                    told = f"more than {INTERIM_MAX} interim answers"
                    return interim, None, b"", Malformed(Rule.SWITCHED, told)
                interim = (*interim, head)
        except Malformed as error:
            return interim, None, b"", error.with_traceback(None)
        return interim, None, b"", None

    def _start(self, interim: Sequence[AnswerHead], head: Head, body: Body, rest: bytes) -> Came:
        """Begin to read a body, with what has come of it. Raises Malformed."""
        self._body, self._keep_alive = body, head.keep_alive
        piece = body.feed(rest)
        return interim, head, piece, self._end_of(body) if body.done else None

    def _end_of(self, body: Body) -> Whole:
        self.asked = self._body = None
        self._interim = 0
        return body.trailers, self._keep_alive and not body.rest


def _name(head: AnswerHead, came: bytes, rest: bytes) -> bytes:
    """Returns the bytes by which a head is looked for with which all of a body of its length has
    come, or some of one in chunks."""
    lines, body = came[: len(came) - len(rest)], head.body
    if not lines.endswith(b"\r\n\r\n"):
        return b""
    if isinstance(body, ByLength) and body.left_bytes == len(rest):
        whole = whole_message(came)
        return b"" if whole is None else whole[0]
    return lines if isinstance(body, Chunked) else b""
