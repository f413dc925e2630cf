"""Requests on their way to a service: their heads as they are sent, a client's or a neighbor's.
What is dropped of them and added is known to `heads`. Pure.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from spillover.live.handlers.proxy.known import Cut, KnownRequest, cut
from spillover.live.handlers.proxy.onward import (
    CHANGED,
    CHANGED_PREFIXES,
    Ingress,
    check_tunnel,
    onward,
)
from spillover.live.http1.framing import (
    count_lines,
)
from spillover.live.http1.heads import RequestHead, understood
from spillover.live.http1.known_heads import NOT_KEPT, Known
from spillover.live.http1.rules import FIELDS_MAX, Malformed, Rule
from spillover.live.http1.written import ANOTHER, head_lines, request_head
from spillover.model.passed import (
    Fields,
    PassedRequest,
    RequestLines,
    decode_lines,
    encode_lines,
    encode_request,
    length_at,
    lengthless,
    take_apart,
    with_length,
)

_AS_IT_IS = b'%b %b HTTP/1.1\r\n%bForwarded: %b;host="%b"\r\n%bX-Forwarded-Host: %b\r\n%b\r\n'
HOP_LINES = 5
"""The number of lines that describe the way."""

FIELD_BYTES = 128
"""The memory of a field besides its bytes, about."""


class OwnRequest:
    """A client's, as the door has read it: mostly it goes to the service as it is, with the way
    here behind it. What has to be changed, and what goes to a neighbor, is when it goes."""

    __slots__ = ("body", "head", "known", "way")

    def __init__(
        self, head: RequestHead, way: Ingress, body: bytes, known: KnownRequest | None = None
    ) -> None:
        self.head = head
        self.way = way
        self.body = body
        self.known = known
        """The known head of the request, if it is kept."""

    @property
    def method(self) -> str:
        return self.head.method

    @property
    def path(self) -> str:
        """Returns the target without its query."""
        return self.head.target.partition(b"?")[0].decode("latin-1")

    @property
    def size_bytes(self) -> int:
        """Returns about what it takes to hold it: a field takes more than its bytes."""
        head = self.head
        return head.length_bytes + FIELD_BYTES * len(head.fields) + len(self.body)

    def passed(self) -> PassedRequest:
        """Returns it as it travels."""
        head, body = self.head, self.body
        return PassedRequest(head.method, head.target, onward(head, self.way, len(body)), body)

    def encode(self) -> bytes:
        """Returns the bytes of the request, as `PassedRequest.encode` does."""
        known, way, body = self.known, self.way, self.body
        lines = None if known is None else known.travels(way)
        if lines is None:
            passed = self.passed()
            headers = lengthless(passed.headers, b"%d" % len(body)) or passed.headers
            lines = encode_lines(passed.method, passed.target, headers)
            if known is not None and (known.length_at is None or headers is not passed.headers):
                known.learn_travels(way, lines)
        return encode_request(lines, body)

    @property
    def goes_as_it_is(self) -> bool:
        """Returns whether nothing of its head is dropped or changed on the way to a service."""
        head, names = self.head, self.head.names
        if head.options or head.is_old or b"host" not in names or not CHANGED.isdisjoint(names):
            return False
        joined = b",".join(names)
        return not any(prefix in joined for prefix in CHANGED_PREFIXES)

    def head_with(self, added: Fields) -> bytes:
        """Returns the head to a service: its lines, the way here, and what the node adds. Raises
        ValueError if it would be read as another one."""
        head, way, known = self.head, self.way, self.known
        told = head_lines(added)
        sent = None if known is None else known.sent(head, way, told)
        if sent is not None:
            return sent
        method, host = head.method.encode(), head.host
        own = b"".join([b"%b: %b\r\n" % field for field in head.fields])
        sent = _AS_IT_IS % (method, head.target, own, way.element, host, way.lines, host, told)
        if count_lines(sent) != len(head.fields) + HOP_LINES + len(added) + 2:
            raise ValueError(ANOTHER)
        if known is not None:
            known.learn_sent(head, way, sent, told)
        return sent


class ForeignRequest:
    """A neighbor's, as it has come. Raises MalformedPassed."""

    __slots__ = ("_encoded", "_heads", "_known", "_lines", "body")

    def __init__(self, work: bytes | memoryview, heads: Known[ForeignHead]) -> None:
        self._encoded, self.body = take_apart(work)
        self._heads = heads
        self._known = known = heads.meanings.get(self._encoded)
        self._lines = decode_lines(self._encoded) if known is None else known.lines

    @property
    def method(self) -> str:
        return self._lines.method

    @property
    def path(self) -> str:
        """Returns the target without its query."""
        return self._lines.target.partition(b"?")[0].decode("latin-1")

    def passed(self) -> PassedRequest:
        """Returns it with the length of its body."""
        return PassedRequest.of(self._lines, self.body)

    def head_with(self, authority: bytes, added: Fields) -> bytes:
        """Returns the head for the service, as `upstream_head` does."""
        known, told = self._known, head_lines(added)
        if known is not None and (known.tells_size or not self.body):
            return known.cut.whole(b"%d" % len(self.body) if known.tells_size else b"", told)
        head = upstream_head(self.passed(), authority, added)
        self._learn(head, told)
        return head

    def _learn(self, written: bytes, told: bytes) -> None:
        """It is written so for a service, whichever that is, and whatever its length."""
        lines = self._lines
        names = {name.lower() for name, _ in lines.headers}
        if b"host" not in names or not NOT_KEPT.isdisjoint(names):
            return
        at = length_at(lines.headers)
        if at is not None and lines.headers[at][1]:
            return
        start = b"%b %b HTTP/1.1" % (lines.method.encode(), lines.target)
        fields = with_length(lines.headers, len(self.body))
        found = cut(written, start, fields, at, told)
        if found is not None:
            self._heads.keep(self._encoded, ForeignHead(lines, found, at is not None))


class ForeignHead(NamedTuple):
    """The meaning of the head of a neighbor's request, and how it is written for a service."""

    lines: RequestLines
    cut: Cut
    tells_size: bool
    """Its length, which is that of its body; else it has none."""


def upstream_head(request: PassedRequest, authority: bytes, added: Fields) -> bytes:
    """Returns a request's head as it is sent to a service at `authority`, with what the node adds.
    Raises ValueError if it cannot be sent so; neighbors may say anything: that it is read as these
    lines is not enough, they must mean what the door lets pass."""
    start, fields, names = _sent(request, authority, added)
    head = request_head(start, fields)
    if len(fields) > FIELDS_MAX:
        raise Malformed(Rule.LONG, f"expected at most {FIELDS_MAX} headers")
    meant = understood(start, fields, names, len(head))
    check_tunnel(meant)
    if meant.fields is not fields or meant.target != request.target:
        raise ValueError(ANOTHER)  # a door has settled which host is meant
    if meant.size_bytes != len(request.body):
        raise ValueError("its head does not fit its body")
    return head


def own_head(request: PassedRequest | OwnRequest, authority: bytes, added: Fields) -> bytes:
    """Returns the same of a request that the door of this very node has read: what its lines mean
    is known."""
    if isinstance(request, OwnRequest):
        known = request.known
        if (known is not None and known.is_sent) or request.goes_as_it_is:
            return request.head_with(added)
        request = request.passed()
    start, fields, _ = _sent(request, authority, added)
    return request_head(start, fields)


def with_host(request: PassedRequest | OwnRequest | ForeignRequest, host: bytes) -> PassedRequest:
    """Returns the request for a service that gets this `Host` in place of the client's."""
    passed = request if isinstance(request, PassedRequest) else request.passed()
    fields = [field for field in passed.headers if field[0].lower() != b"host"]
    return replace(passed, headers=((b"Host", host), *fields))


def _sent(
    request: PassedRequest, authority: bytes, added: Fields
) -> tuple[bytes, Fields, list[bytes]]:
    """The first line of a head to a service, its fields, and their names in lower case."""
    start = b"%b %b HTTP/1.1" % (request.method.encode("ascii", "replace"), request.target)
    fields = request.headers + added
    names = [name.lower() for name, _ in fields]
    if b"host" not in names:
        fields = ((b"Host", authority), *fields)
        names.insert(0, b"host")
    if b"te" in names:
        fields = (*fields, (b"Connection", b"TE"))
        names.append(b"connection")
    return start, fields, names
