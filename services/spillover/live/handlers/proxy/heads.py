"""Heads of passed requests and answers: what is refused of them, what is dropped, and what is added
(RFC 9110, 7.6 and 10.1.1; RFC 9112, 3 and 6; RFC 7239). Pure.

All else stays as it was written: the order of fields, the case of their names, their repetition.
How bytes become heads is in `framing`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from spillover.live.handlers.proxy.framing import (
    Body,
    ByLength,
    Chunked,
    Malformed,
    TooLong,
    ToTheEnd,
    split_answer,
    split_head,
)
from spillover.live.http.kept_for import read_keep_alive_s
from spillover.model.passed import METHOD_LENGTH_MAX, Fields, PassedHead

CHUNKED = -1
"""Stands in place of a length."""

LENGTH_DIGITS_MAX = 15
ADDED_MAX = 16
"""Headers that a node may add to those of a request."""

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_START = re.compile(rb"(%b) ([!-\"$-~\x80-\xff]+) HTTP/([0-9])\.([0-9])" % _TOKEN)
_ABSOLUTE = re.compile(rb"(?i:https?)://([^/?@]*)((?:[/?].*)?)")
_HOST = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+,;=%-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")
_LOCATION = re.compile(rb"(?i)(https?)://([^/?#@\\]*)(.*)")
_ASKED_HOST = re.compile(rb"(?i)\r\nhost: ([^\r\n]*)\r\n")
_HOST_AND_PORT = re.compile(rb"(.*?)(?::([0-9]*))?")
_ANSWER = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: (.*))?")
_LENGTH = re.compile(rb"[0-9]{1,%d}" % LENGTH_DIGITS_MAX)
_LENGTH_OF_ANSWER = re.compile(rb"0*([0-9]{1,%d})" % LENGTH_DIGITS_MAX)

_OF_THE_HOP = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"),
        *(b"te", b"trailer", b"http2-settings", b"proxy-authenticate", b"proxy-authorization"),
    }
)
"""They mean something between two neighbors on the way only."""

_NEVER_OF_THE_HOP = frozenset(
    {
        *(b"host", b"content-length", b"content-type", b"content-encoding", b"content-range"),
        *(b"authorization", b"cookie", b"set-cookie", b"cache-control", b"location", b"date"),
        *(b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host"),
        *(b"idempotency-key", b"traceparent", b"tracestate", b"proxy-status", b"server-timing"),
    }
)
"""Whoever names one of them in `Connection` would have it vanish on the way, and the service think
that it was never there."""

OURS = b"spillover-"
"""Fields that begin so have a meaning to nodes, and are not passed on."""

_FRAMING = frozenset({b"content-length", b"transfer-encoding", b"host"})

_TUNNELS = frozenset({b"connect-ip", b"connect-udp", b"spdy", b"websocket"})
"""A client that asks to upgrade to one of them cannot do without. All other upgrades are offers,
and may be ignored."""

_OURS_ALONE = frozenset({b"spillover-request-id", b"spillover-path"})
"""Fields of an answer that nodes alone write."""

_LISTS = frozenset({b"forwarded", b"x-forwarded-for", b"via"})
"""Where each hop is told."""

_X_FORWARDED = b"x-forwarded-"
"""Headers that begin so are one family that describes the way, `Forwarded` (RFC 7239) is the
other."""

_FORWARDED = frozenset({b"forwarded", b"x-real-ip"})
"""The caller in these fields, as in the family above, is passed on only from trusted proxies."""

CHANGED = _OF_THE_HOP | _LISTS | _FORWARDED | {b"expect"}
"""Requests with one of them are written anew for the service, and so are those with names that
begin as the next ones."""

CHANGED_PREFIXES = OURS, _X_FORWARDED

NO_BODY = frozenset({204, 304})
_NONE: frozenset[bytes] = frozenset()
_Meant: TypeAlias = dict[bytes, list[bytes]]


class Refused(Malformed):
    """A request that is not passed on, with the status to say so."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class RequestHead(NamedTuple):
    """The parts of a head that the door has to know."""

    method: str
    target: bytes
    fields: Fields
    names: Sequence[bytes]
    """The names of the fields, in lower case."""
    options: frozenset[bytes]
    """The options of `Connection`, in lower case."""
    is_old: bool
    """HTTP/1.0."""
    host: bytes
    size_bytes: int
    """The bytes of the body; or CHUNKED."""
    tells_size: bool
    awaits_continue: bool
    length_bytes: int
    """The bytes of the head itself."""

    @property
    def keep_alive(self) -> bool:
        options = self.options
        return b"close" not in options and (not self.is_old or b"keep-alive" in options)

    @property
    def takes_trailers(self) -> bool:
        """Returns whether who asks reads trailers."""
        return b"te" in self.names and b"trailers" in _options(values(self.fields, b"te"))

    def body(self) -> Body:
        """Returns what reads the body."""
        return Chunked() if self.size_bytes == CHUNKED else ByLength(self.size_bytes)


def is_check(head: RequestHead) -> bool:
    """Returns whether this is how HAProxy asks, unless told otherwise, whether to send requests:
    `OPTIONS / HTTP/1.0`. Who names no host asks for nothing of a service."""
    is_whole = head.method == "OPTIONS" and head.target in (b"/", b"*")
    return is_whole and head.is_old and b"host" not in head.names and not head.size_bytes


def values(fields: Fields, name: bytes) -> list[bytes]:
    """Returns the values of the fields of that name, which is in lower case."""
    return [value for other, value in fields if other.lower() == name]


def tokens(value: bytes) -> list[bytes]:
    """Returns the parts of a list, in lower case."""
    return [part for one in value.lower().split(b",") if (part := one.strip(b" \t"))]


def read_request(head: bytes) -> RequestHead:
    """Returns the head of a request. Raises Refused for what is not passed on."""
    try:
        start, fields = split_head(head)
    except TooLong as error:
        raise Refused(431, str(error)) from error
    except Malformed as error:
        raise Refused(400, str(error)) from error
    return understood(start, fields, [name.lower() for name, _ in fields], len(head))


def understood(
    start: bytes, fields: Fields, names: Sequence[bytes], length_bytes: int
) -> RequestHead:
    """Returns the same of a head whose lines are taken apart already."""
    method, target, is_old = _start_of(start)
    meant = _meant(fields, names)
    options = _options(meant[b"connection"]) if b"connection" in meant else _NONE
    authority, target = (None, target) if target[:1] == b"/" else _target_of(method, target)
    hosts = meant.get(b"host", ())
    host = _host_of(hosts, authority, is_old=is_old)
    if hosts and (hosts[0] != host or not host):  # the target tells it; or empty, as good as none
        fields, names = _with_host(fields, names, host)
    size_bytes = _size_of(meant, is_old=is_old)
    awaits = b"expect" in meant and _expects(meant[b"expect"])
    if b"upgrade" in options and not is_old:  # RFC 9110, 7.8
        offered = _options(meant.get(b"upgrade", ()))
        if not _TUNNELS.isdisjoint([one.partition(b"/")[0] for one in offered]):
            raise Refused(501, "Upgrade: another protocol is not passed through")
    tells_size = size_bytes == CHUNKED or b"content-length" in meant
    awaits = awaits and not is_old and size_bytes != 0
    return RequestHead(
        method, target, fields, names, options, is_old, host, size_bytes, tells_size, awaits,
        length_bytes,
    )  # fmt: skip


def _options(lines: Sequence[bytes]) -> frozenset[bytes]:
    return frozenset([one for value in lines for one in tokens(value)])


def _expects(lines: Sequence[bytes]) -> bool:
    """Returns whether the client waits for `100 Continue`."""
    expected = _options(lines)
    if expected - {b"100-continue"}:
        raise Refused(417, "Expect: expected 100-continue or nothing")
    return bool(expected)


def _start_of(start: bytes) -> tuple[str, bytes, bool]:
    line = _START.fullmatch(start)
    if line is None:
        raise Refused(400, "expected METHOD TARGET HTTP/1.1")
    method, target, major, minor = line.groups()
    if major != b"1":
        raise Refused(505, "expected HTTP/1.1 or HTTP/1.0")
    if len(method) > METHOD_LENGTH_MAX:
        raise Refused(501, f"expected a method of at most {METHOD_LENGTH_MAX} characters")
    if method == b"CONNECT":
        raise Refused(501, "CONNECT is not passed through")
    return method.decode(), target, minor == b"0"


def _target_of(method: str, target: bytes) -> tuple[bytes | None, bytes]:
    """The authority, if it is told, and what does not start with / as origin-form."""
    if target == b"*":
        if method != "OPTIONS":
            raise Refused(400, "*: expected OPTIONS")
        return None, target
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None:
        raise Refused(400, "expected a target that starts with /")
    authority, path = absolute.groups()
    if not path:
        path = b"*" if method == "OPTIONS" else b"/"
    return authority, path if path[:1] in (b"/", b"*") else b"/" + path


def _host_of(hosts: Sequence[bytes], authority: bytes | None, *, is_old: bool) -> bytes:
    """The target's, if that tells one (RFC 9112, 3.2.2). Empty where the client does not tell."""
    if len(hosts) > 1 or not (hosts or is_old):
        raise Refused(400, "Host: expected once")
    told = hosts[0] if hosts else b""
    is_host = _HOST.fullmatch
    if (told and not is_host(told)) or (authority is not None and not is_host(authority)):
        raise Refused(400, "Host: expected HOST[:PORT]")
    return told if authority is None or authority.lower() == told.lower() else authority


def _with_host(
    fields: Fields, names: Sequence[bytes], host: bytes
) -> tuple[Fields, Sequence[bytes]]:
    """The same with this for a host; without any where it is empty."""
    at = names.index(b"host")
    if host:
        return (*fields[:at], (fields[at][0], host), *fields[at + 1 :]), names
    return (*fields[:at], *fields[at + 1 :]), [*names[:at], *names[at + 1 :]]


def _size_of(meant: _Meant, *, is_old: bool) -> int:
    lengths = meant.get(b"content-length", [])
    codings = meant.get(b"transfer-encoding", [])
    if codings:
        if is_old:
            raise Refused(400, "Transfer-Encoding: expected none in HTTP/1.0")
        if lengths:
            raise Refused(400, "expected one of Content-Length and Transfer-Encoding")
        if len(codings) > 1 or codings[0].lower() != b"chunked":
            raise Refused(400, "Transfer-Encoding: expected chunked alone")
        return CHUNKED
    if not lengths:
        return 0
    if len(lengths) > 1 or _LENGTH.fullmatch(lengths[0]) is None:
        raise Refused(400, "Content-Length: expected one number")
    return int(lengths[0])


_MEANT = _FRAMING | {b"connection", b"expect", b"upgrade"}
_MEANT_OF_ANSWERS = frozenset(
    {b"connection", b"content-length", b"keep-alive", b"transfer-encoding"}
)


def _meant(fields: Fields, names: Sequence[bytes]) -> _Meant:
    """Returns the fields that have a meaning to the door. A name written with _ is another one to
    us and the same one to services that know headers as variables: it is refused, where it could do
    harm."""
    if b"_" in b",".join(names):
        for name in names:
            with_dashes = name.replace(b"_", b"-")
            is_ours = with_dashes in _NEVER_OF_THE_HOP | _FRAMING or with_dashes.startswith(OURS)
            if is_ours and with_dashes != name:
                raise Refused(400, f"header: expected {with_dashes.decode()}")
    return _picked(fields, names, _MEANT)


def _picked(fields: Fields, names: Sequence[bytes], wanted: frozenset[bytes]) -> _Meant:
    """The values of the fields of those names that are there: few of many, mostly once."""
    picked = {}
    for name in wanted.intersection(names):
        is_once = names.count(name) == 1
        picked[name] = [fields[names.index(name)][1]] if is_once else values(fields, name)
    return picked


# --- what is passed on ------------------------------------------------------------------------


class Way:
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


def onward(head: RequestHead, way: Way, size_bytes: int) -> Fields:
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
    head: RequestHead, way: Way, lists: dict[bytes, list[bytes]], *, has_x: bool
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
        return _OF_THE_HOP
    named = (one for one in options if not one.startswith(OURS))
    return _OF_THE_HOP | (frozenset(named) - _NEVER_OF_THE_HOP)


class AnswerHead(NamedTuple):
    """The head of an answer, or of an interim one, which has no body."""

    head: PassedHead
    body: Body
    keep_alive: bool
    keep_s: float | None = None
    """How long the service says that it keeps the connection, if it does."""


def read_answer(head: bytes, method: str) -> AnswerHead:
    """Returns what a service answers to a request of this method. Raises Malformed for what clients
    might read differently."""
    start, fields = split_answer(head)
    line = _ANSWER.fullmatch(start)
    if line is None:
        raise Malformed("expected HTTP/1.1 and a status")
    is_old, status, reason = line[1] == b"0", int(line[2]), line[3] or b""
    if status == 101:
        raise Malformed("it switched to another protocol without being asked")
    names = [name.lower() for name, _ in fields]
    meant = _picked(fields, names, _MEANT_OF_ANSWERS)
    options = _options(meant[b"connection"]) if b"connection" in meant else _NONE
    dropped = _dropped(options)
    if status < 200:
        fields = _kept(fields, names, dropped | _FRAMING | _OURS_ALONE, None)
        return AnswerHead(PassedHead(status, reason, fields), ByLength(0), keep_alive=True)
    lengths = meant.get(b"content-length", ())
    length = _length_of(lengths) if lengths else None
    body = _answer_body(length, meant.get(b"transfer-encoding", ()))
    if method == "HEAD" or status in NO_BODY:
        body = ByLength(0)
    is_odd = length is not None and list(lengths) != [length]
    if is_odd or not (dropped.isdisjoint(names) and _OURS_ALONE.isdisjoint(names)):
        kept = dropped - {b"trailer"} if isinstance(body, Chunked) else dropped
        fields = _kept(fields, names, kept | _OURS_ALONE, length)
    keep_alive = not is_old and b"close" not in options and not isinstance(body, ToTheEnd)
    keep_s = None
    if b"keep-alive" in meant:
        keep_s = read_keep_alive_s(b",".join(meant[b"keep-alive"]))
        keep_alive = keep_alive and keep_s != 0.0
    return AnswerHead(PassedHead(status, reason, fields), body, keep_alive, keep_s)


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


def _length_of(lengths: Sequence[bytes]) -> bytes:
    """The one length that is told, perhaps again and again (RFC 9110, 8.6), without zeros before
    it."""
    told = {one.strip(b" \t") for line in lengths for one in line.split(b",")}
    number = _LENGTH_OF_ANSWER.fullmatch(told.pop()) if len(told) == 1 else None
    if number is None:
        raise Malformed("Content-Length: expected one number")
    return b"%d" % int(number[1])


def _answer_body(length: bytes | None, codings: Sequence[bytes]) -> Body:
    if codings:
        if length is not None or len(codings) > 1 or codings[0].lower() != b"chunked":
            raise Malformed("Transfer-Encoding: expected chunked alone, and no length besides")
        return Chunked(of_answer=True)
    return ToTheEnd() if length is None else ByLength(int(length))
