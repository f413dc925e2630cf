"""Requests on their way to a service: their heads as they are sent, a client's or a neighbor's.
What is dropped of them and added is known to `heads`. Pure.
"""

from __future__ import annotations

from spillover.live.handlers.proxy.framing import (
    FIELDS_MAX,
    count_lines,
    write_head,
    write_lines,
)
from spillover.live.handlers.proxy.heads import (
    CHANGED,
    OURS,
    Refused,
    RequestHead,
    Way,
    onward,
    understood,
)
from spillover.model.passed import Fields, PassedRequest

ANOTHER = "its head would be read as another one"

_AS_IT_IS = b'%b %b HTTP/1.1\r\n%bForwarded: %b;host="%b"\r\n%bX-Forwarded-Host: %b\r\n%b\r\n'
HOP_LINES = 5
"""Of those that tell of the way."""

FIELD_BYTES = 128
"""What a field takes in memory besides its bytes, about."""


class OwnRequest:
    """A client's, as the door has read it: mostly it goes to the service as it is, with the way
    here behind it. What has to be changed, and what goes to a neighbor, is when it goes."""

    __slots__ = ("body", "head", "way")

    def __init__(self, head: RequestHead, way: Way, body: bytes) -> None:
        self.head = head
        self.way = way
        self.body = body

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
        """Of `PassedRequest`."""
        return self.passed().encode()

    @property
    def goes_as_it_is(self) -> bool:
        """Returns whether nothing of its head is dropped or changed on the way to a service."""
        head, names = self.head, self.head.names
        return (
            not (head.options or head.is_old)
            and CHANGED.isdisjoint(names)
            and b"host" in names
            and OURS not in b",".join(names)
        )

    def head_with(self, added: Fields) -> bytes:
        """Returns the head to a service: its lines, the way here, and what the node adds. Raises
        ValueError if it would be read as another one."""
        head, way = self.head, self.way
        method, host = head.method.encode(), head.host
        own = b"".join([b"%b: %b\r\n" % field for field in head.fields])
        told = b"".join([b"%b: %b\r\n" % field for field in added])
        sent = _AS_IT_IS % (method, head.target, own, way.element, host, way.lines, host, told)
        if count_lines(sent) != len(head.fields) + HOP_LINES + len(added) + 2:
            raise ValueError(ANOTHER)
        return sent


def upstream_head(request: PassedRequest, authority: bytes, added: Fields) -> bytes:
    """Returns a request's head as it is sent to a service at `authority`, with what the node adds.
    Raises ValueError if it cannot be sent so; neighbors may say anything: that it is read as these
    lines is not enough, they must mean what the door lets pass."""
    start, fields, names = _sent(request, authority, added)
    head = write_head(start, fields)
    if head is None:
        raise ValueError(ANOTHER)
    if len(fields) > FIELDS_MAX:
        raise Refused(431, f"expected at most {FIELDS_MAX} headers")
    if understood(start, fields, names, len(head)).size_bytes != len(request.body):
        raise ValueError("its head does not fit its body")
    return head


def own_head(request: PassedRequest | OwnRequest, authority: bytes, added: Fields) -> bytes:
    """Returns the same of a request that the door of this very node has read: what its lines mean
    is known."""
    if isinstance(request, OwnRequest):
        if request.goes_as_it_is:
            return request.head_with(added)
        request = request.passed()
    start, fields, _ = _sent(request, authority, added)
    head = write_lines(start, fields)
    if head is None:
        raise ValueError(ANOTHER)
    return head


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
