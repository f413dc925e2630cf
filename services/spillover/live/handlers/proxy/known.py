"""Heads of passed requests and answers that have come before: what was made of the same bytes holds
again, and so does what was written of them, but for the length of the body.

Nothing is understood here that `framing` and `heads` have not understood, and nothing is written
that they have not written: what is kept is cut out of that, around the digits of the length. What
is secret, or differs each time, is not kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from spillover.live.handlers.proxy.onward import Ingress
from spillover.live.http1.heads import RequestHead
from spillover.live.http1.known_heads import (
    HEAD_BYTES_MAX,
    KNOWN_MAX,
    NOT_KEPT,
    KnownHeads,
    whole_message,
)
from spillover.model.passed import LENGTH, PassedHead


class Cut(NamedTuple):
    """A head that was written, without the digits of its length and what was added at its end."""

    before: bytes
    after: bytes

    def whole(self, length: bytes, added: bytes) -> bytes:
        """Returns a head with these."""
        return b"%b%b%b%b\r\n" % (self.before, length, self.after, added)


def cut(
    written: bytes,
    start: bytes,
    fields: Sequence[tuple[bytes, bytes]],
    at: int | None,
    added: bytes,
) -> Cut | None:
    """Returns a head that was written with this first line, begins with these fields, has its
    length in that one of them, if any, and these lines at its end. None if it is another one."""
    told = written.removesuffix(b"%b\r\n" % added)
    if len(told) + len(added) + 2 != len(written):
        return None
    if at is None:
        return Cut(told, b"")
    lines = b"".join([b"%b: %b\r\n" % field for field in fields[:at]])
    name, length = fields[at]
    before = b"%b\r\n%b%b: " % (start, lines, name)
    if not told.startswith(b"%b%b\r\n" % (before, length)):
        return None
    return Cut(before, told[len(before) + len(length) :])


class KnownRequest:
    """The meaning of the head of a client's request, and the head that was passed on."""

    __slots__ = ("_sent", "_sent_from", "_travels", "_travels_from", "head", "length_at")

    def __init__(self, head: RequestHead, length_at: int | None) -> None:
        self.head = head
        """The head that came last."""
        self.length_at = length_at
        """Which of its fields is the length; None where there is none, and no body."""
        self._sent: Cut | None = None
        self._travels = b""
        # What was written tells who asked: another one may send the same head.
        self._sent_from: Ingress | None = None
        self._travels_from: Ingress | None = None

    def of_length(self, length: bytes) -> RequestHead:
        """Returns the head with this length."""
        head, at = self.head, self.length_at
        assert at is not None  # noqa: S101 - whoever asks has found one
        name, last = head.fields[at]
        if length != last:
            fields = (*head.fields[:at], (name, length), *head.fields[at + 1 :])
            longer = len(length) - len(last)
            self.head = head = head._replace(
                fields=fields, size_bytes=int(length), length_bytes=head.length_bytes + longer
            )
        return head

    @property
    def is_sent(self) -> bool:
        """Returns whether it went as it is."""
        return self._sent is not None

    def sent(self, head: RequestHead, way: Ingress, added: bytes) -> bytes | None:
        """Returns the head to a service, with these lines at its end; None if it is not known."""
        cut, at = self._sent, self.length_at
        if cut is None or way is not self._sent_from:
            return None
        return cut.whole(b"" if at is None else head.fields[at][1], added)

    def learn_sent(self, head: RequestHead, way: Ingress, written: bytes, added: bytes) -> None:
        """It was written so."""
        start = b"%b %b HTTP/1.1" % (head.method.encode(), head.target)
        self._sent = cut(written, start, head.fields, self.length_at, added)
        self._sent_from = way

    def travels(self, way: Ingress) -> bytes | None:
        """Returns its head as it goes to a neighbor; None if it is not known."""
        return self._travels if way is self._travels_from else None

    def learn_travels(self, way: Ingress, encoded: bytes) -> None:
        """It was encoded so."""
        self._travels, self._travels_from = encoded, way


class KnownRequests(KnownHeads[KnownRequest]):
    """The known requests of all connections to one door."""

    __slots__ = ()

    def find(self, data: bytes) -> tuple[KnownRequest, RequestHead, bytes] | None:
        """Returns the request that this is, all of it and nothing else, with its body; None where
        it is not known."""
        whole = whole_message(data)
        if whole is None:
            known = self.meanings.get(data) if len(data) <= HEAD_BYTES_MAX else None
            if known is None or known.length_at is not None:
                return None  # one with a length is kept without it, which is no head at all
            return known, known.head, b""
        bare, length, body = whole
        known = self.meanings.get(bare)
        return None if known is None else (known, known.of_length(length), body)

    def learn_from(self, data: bytes, head: RequestHead) -> KnownRequest | None:
        """It was read from these bytes, with which it begins and ends. Returns what is known of it
        now, if it is kept."""
        names = head.names
        if b"expect" in names or not NOT_KEPT.isdisjoint(names):  # it depends on the length
            return None
        if not head.tells_size:
            if len(data) != head.length_bytes + 2:
                return None
            known = KnownRequest(head, None)
            self.keep(data, known)
            return known
        whole = whole_message(data)
        if whole is None or names.count(LENGTH) != 1:
            return None
        bare, length, body = whole
        at = names.index(LENGTH)
        if head.fields[at][1] != length or b"%d" % len(body) != length:
            return None  # zeros before a length travel as they came
        known = KnownRequest(head, at)
        self.learn(bare, known)
        return known


class WrittenHead(NamedTuple):
    """The head of an answer, as it is written to clients."""

    head: PassedHead
    """Kept, so that no other one is taken for it."""
    cut: Cut
    is_chunked: bool
    """Whether the body comes in chunks; else its length is told."""


class WrittenHeads:
    """The written heads of answers whose length is that of their body, or which come in chunks, to
    clients without special wishes: by the very object that a known answer has."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[int, WrittenHead] = {}

    def find(self, head: PassedHead) -> WrittenHead | None:
        """Returns how it was written; None if it is not known."""
        return self._known.get(id(head))

    def learn(self, head: PassedHead, cut: Cut, *, is_chunked: bool = False) -> None:
        """It was written so."""
        is_short = len(cut.before) + len(cut.after) <= HEAD_BYTES_MAX
        # A neighbor may say such things with the length left empty.
        if is_short and NOT_KEPT.isdisjoint([name.lower() for name, _ in head.headers]):
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[id(head)] = WrittenHead(head, cut, is_chunked)
