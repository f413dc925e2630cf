"""Heads of requests and answers as they pass on: what is dropped of them, and what is added (RFC
9110, 7.6; RFC 7239). Pure.

All else stays as it was written: the order of fields, the case of their names, their repetition.
What heads mean is in `live.http1.heads`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from spillover.live.http1.framing import Chunked
from spillover.live.http1.heads import (
    CHUNKED,
    NEVER_OF_THE_HOP,
    OF_THE_HOP,
    OURS,
    AnswerHead,
    RequestHead,
    options_of,
    tokens,
    values,
)
from spillover.live.http1.rules import Malformed, Rule
from spillover.model.passed import Fields, PassedHead

_LOCATION = re.compile(rb"(?i)(https?)://([^/?#@\\]*)(.*)")
_ASKED_HOST = re.compile(rb"(?i)\r\nhost: ([^\r\n]*)\r\n")
_HOST_AND_PORT = re.compile(rb"(.*?)(?::([0-9]*))?")

_TUNNELS = frozenset({b"connect-ip", b"connect-udp", b"spdy", b"websocket"})
"""A client that offers nothing else cannot do without. After any other protocol in its list (`h2c,
websocket`) it would read an answer in HTTP, so all may be ignored."""

_OURS_ALONE = frozenset({b"spillover-request-id", b"spillover-path"})
"""Fields of an answer that nodes alone write."""

_LISTS = frozenset({b"forwarded", b"x-forwarded-for", b"via"})
"""Where each hop is told."""

_X_FORWARDED = b"x-forwarded-"
"""Headers that begin so are one family that describes the way, `Forwarded` (RFC 7239) is the
other."""

_FORWARDED = frozenset({b"forwarded", b"x-real-ip"})
"""The caller in these fields, as in the family above, is passed on only from trusted proxies."""

CHANGED = OF_THE_HOP | _LISTS | _FORWARDED | {b"expect"}
"""Requests with one of them are written anew for the service, and so are those with names that
begin as the next ones."""

CHANGED_PREFIXES = OURS, _X_FORWARDED


def is_check(head: RequestHead) -> bool:
    """Returns whether this is how HAProxy asks, unless told otherwise, whether to send requests:
    `OPTIONS / HTTP/1.0`. Who names no host asks for nothing of a service."""
    is_whole = head.method == "OPTIONS" and head.target in (b"/", b"*")
    return is_whole and head.is_old and b"host" not in head.names and not head.size_bytes


def check_tunnel(head: RequestHead) -> None:
    """Raises Malformed where the client asks for a protocol that it cannot do without (RFC 9110,
    7.8)."""
    if b"upgrade" in head.options and not head.is_old:
        offered = options_of(values(head.fields, b"upgrade"))
        if offered and _TUNNELS.issuperset([one.partition(b"/")[0] for one in offered]):
            raise Malformed(Rule.TUNNEL)


class Ingress:
    """Where a request comes in: what is told about it. `client` is the address of who asks, empty
    if that is not known; `pseudonym` this door's among all that a request may pass. Where who asks
    `is_trusted`, what it tells of the way up to there is told on."""

    __slots__ = (
        "address",
        "client",
        "element",
        "is_trusted",
        "lines",
        "pseudonym",
        "scheme",
        "via",
    )

    def __init__(
        self, client: str, scheme: str, pseudonym: str, *, is_trusted: bool = True
    ) -> None:
        self.client = client
        self.pseudonym = pseudonym
        self.is_trusted = is_trusted
        node = f'"[{client}]"' if ":" in client else client or "unknown"
        self.scheme = scheme.encode()
        # As they are told, in `X-Forwarded-For`, `Forwarded` and `Via`.
        self.address = (client or "unknown").encode()
        self.element = f"for={node};proto={scheme}".encode()
        self.via = pseudonym.encode()
        told = self.address, self.via, self.scheme
        self.lines = b"X-Forwarded-For: %b\r\nVia: 1.1 %b\r\nX-Forwarded-Proto: %b\r\n" % told


def has_passed(fields: Fields, pseudonym: str) -> bool:
    """Returns whether the request was here before: then it goes in a loop."""
    ours = pseudonym.encode().lower()
    hops = [hop.split() for value in values(fields, b"via") for hop in tokens(value)]
    return any(len(hop) > 1 and hop[1] == ours for hop in hops)


def onward(head: RequestHead, way: Ingress, size_bytes: int) -> Fields:
    """Returns the fields that the service gets, of a request with a body of this size.

    The way is told once: lines of one list become one, to which this hop is added. Of the two
    families that tell who asks, `Forwarded` and `X-Forwarded-...`, those are told on that came,
    and nothing is added to what was told in them but the address: the other one would contradict
    them, which tells of the hop to this door alone. Where none came, both tell of that one.
    """
    dropped = _dropped(head.options)
    names, host = head.names, head.host
    lists: dict[bytes, list[bytes]] = {}
    kept: list[tuple[bytes, bytes]] = []
    has_x = False
    for name, field in zip(names, head.fields, strict=True):
        is_x = name.startswith(_X_FORWARDED)
        if (is_x or name in _FORWARDED) and not way.is_trusted:
            continue
        if name in _LISTS and not field[1]:  # it would be read as a hop without a name
            continue
        has_x = has_x or is_x
        if name in _LISTS:
            lists.setdefault(name, []).append(field[1])
        elif not (name in dropped or name == b"expect" or name.startswith(OURS)):
            kept.append(field)
    if head.size_bytes == CHUNKED:
        kept.append((b"Content-Length", b"%d" % size_bytes))
    if host and b"host" not in names:
        kept.insert(0, (b"Host", host))
    if head.takes_trailers:
        kept.append((b"TE", b"trailers"))
    return (*kept, *_told_of_the_way(head, way, lists, has_x=has_x))


def _told_of_the_way(
    head: RequestHead, way: Ingress, lists: dict[bytes, list[bytes]], *, has_x: bool
) -> Fields:
    """Returns the fields about the way, to stand behind those lists as they came, and perhaps
    behind `X-Forwarded-...`."""
    host = head.host
    is_new = not (has_x or b"forwarded" in lists)
    element = b'%b;host="%b"' % (way.element, host) if host else way.element
    via = (b"1.0 " if head.is_old else b"1.1 ") + way.via
    hop = [
        (b"Forwarded", element, is_new or b"forwarded" in lists),
        (b"X-Forwarded-For", way.address, is_new or has_x),
        (b"Via", via, True),
        (b"X-Forwarded-Proto", way.scheme, is_new),
        (b"X-Forwarded-Host", host, is_new and bool(host)),
    ]
    return tuple([
        (title, b", ".join([*lists.get(title.lower(), ()), added]))
        for title, added, is_told in hop
        if is_told
    ])  # fmt: skip


def _dropped(options: frozenset[bytes]) -> frozenset[bytes]:
    if not options:
        return OF_THE_HOP
    named = (one for one in options if not one.startswith(OURS))
    return OF_THE_HOP | (frozenset(named) - NEVER_OF_THE_HOP)


def passed_head(answer: AnswerHead) -> PassedHead:
    """Returns the head of an answer without what is of the hop, its length told once."""
    status, reason, fields, names, options, length, body, *_ = answer
    dropped = _dropped(options) | _OURS_ALONE
    if status < 200 or status == 204:  # clients take a length for a fault there
        fields = _kept(fields, names, dropped | {b"content-length"}, None)
    elif _tells_length_oddly(answer) or not dropped.isdisjoint(names):
        kept = dropped - {b"trailer"} if isinstance(body, Chunked) else dropped
        fields = _kept(fields, names, kept, length)
    return PassedHead(status, reason, fields)


def _tells_length_oddly(answer: AnswerHead) -> bool:
    if answer.length is None:
        return False
    told = values(answer.fields, b"content-length") if b"content-length" in answer.names else []
    return told != [answer.length]


def at_the_door(head: PassedHead, origin: str, asked: bytes) -> PassedHead:
    """Returns the head of an answer of the service at `origin` to a request with this head, as the
    client should read it. A service builds absolute locations from its own port and its own name,
    or the one that the client knows: such a one leads past the door, and becomes a path."""
    if head.status // 100 != 3 and head.status != 201:
        return head
    at = next((i for i, (name, _) in enumerate(head.headers) if name.lower() == b"location"), None)
    told = None if at is None else _LOCATION.fullmatch(head.headers[at][1])
    host = _ASKED_HOST.search(asked)
    if at is None or told is None:
        return head
    scheme, _, own = origin.lower().encode().partition(b"://")
    name, port = _host_and_port(told[2].lower(), scheme)
    own_name, own_port = _host_and_port(own, scheme)
    names = own_name, _host_and_port(host[1].lower(), scheme)[0] if host else own_name
    if told[1].lower() != scheme or port != own_port or name not in names:
        return head
    path = told[3] if told[3][:1] == b"/" else b"/" + told[3]
    if path[1:].lstrip(b"\t")[:1] in (b"/", b"\\"):  # browsers leave out tabs
        path = b"/." + path  # else what follows would be read as another host
    fields = head.headers
    moved = (*fields[:at], (fields[at][0], path), *fields[at + 1 :])
    return PassedHead(head.status, head.reason, moved)


def _host_and_port(authority: bytes, scheme: bytes) -> tuple[bytes, bytes]:
    name, port = _HOST_AND_PORT.fullmatch(authority).groups()  # type: ignore[union-attr] # any is
    return name, port or (b"443" if scheme == b"https" else b"80")


def _kept(
    fields: Fields, names: Sequence[bytes], dropped: frozenset[bytes], length: bytes | None
) -> Fields:
    """Returns the fields of an answer that pass: its length once, and last which trailers
    follow."""
    kept: list[tuple[bytes, bytes]] = []
    for name, field in zip(names, fields, strict=True):
        if name == b"content-length" and name not in dropped and length is not None:
            kept.append((field[0], length))
            length = None
        elif not (name in dropped or name in (b"content-length", b"trailer")):
            kept.append(field)
    if b"trailer" not in dropped:
        kept += [field for name, field in zip(names, fields, strict=True) if name == b"trailer"]
    return tuple(kept)
