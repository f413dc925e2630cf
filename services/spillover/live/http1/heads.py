"""The meaning of heads of HTTP/1.1: whom a request is for, how bodies are framed, and whether the
connection goes on (RFC 9110, 7.6 and 10.1.1; RFC 9112, 3 and 6). Pure.

How bytes become lines is in `framing`, what a proxy drops of them and adds in
`live.handlers.proxy.onward`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from spillover.live.http1.framing import (
    Body,
    ByLength,
    Chunked,
    ToTheEnd,
    split_answer,
    split_head,
)
from spillover.live.http1.kept_for import read_keep_alive_s
from spillover.live.http1.rules import LENGTH_DIGITS_MAX, Malformed, Rule
from spillover.model.passed import METHOD_LENGTH_MAX, Fields

CHUNKED = -1
"""Stands in place of a length."""

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_START = re.compile(rb"(%b) ([!-\"$-~\x80-\xff]+) HTTP/([0-9])\.([0-9])" % _TOKEN)
_FRAGMENT = re.compile(rb"%b [!-~\x80-\xff]*#[!-~\x80-\xff]* HTTP/[0-9]\.[0-9]" % _TOKEN)
_ABSOLUTE = re.compile(rb"(?i:https?)://([^/?@]*)((?:[/?].*)?)")
_HOST = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+,;=%-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")
_ANSWER = re.compile(rb"HTTP/1\.([0-9]) +([1-9][0-9]{2})(?: +(.*))?")
_BLANKS = re.compile(rb"%b +[^ ]+ +HTTP/[0-9]\.[0-9]" % _TOKEN)
_LENGTH = re.compile(rb"[0-9]{1,%d}" % LENGTH_DIGITS_MAX)
_LENGTH_OF_ANSWER = re.compile(rb"0*([0-9]{1,%d})" % LENGTH_DIGITS_MAX)

OF_THE_HOP = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"),
        *(b"te", b"trailer", b"http2-settings", b"proxy-authenticate", b"proxy-authorization"),
    }
)
"""They mean something between two neighbors on the way only."""

NEVER_OF_THE_HOP = frozenset(
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

FRAMING = frozenset({b"content-length", b"transfer-encoding", b"host"})

NO_BODY = frozenset({204, 304})
_NONE: frozenset[bytes] = frozenset()
_Meant: TypeAlias = dict[bytes, list[bytes]]


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
    keep_alive: bool
    """Whether the connection may carry another request."""
    takes_trailers: bool
    """Whether who asks reads trailers."""

    def body(self) -> Body:
        """Returns what reads the body."""
        return Chunked() if self.size_bytes == CHUNKED else ByLength(self.size_bytes)


def values(fields: Fields, name: bytes) -> list[bytes]:
    """Returns the values of the fields of that name, which is in lower case."""
    return [value for other, value in fields if other.lower() == name]


def tokens(value: bytes) -> list[bytes]:
    """Returns the parts of a list, in lower case."""
    return [part for one in value.lower().split(b",") if (part := one.strip(b" \t"))]


def read_request(head: bytes) -> RequestHead:
    """Returns the head of a request. Raises Malformed."""
    start, fields = split_head(head)
    return understood(start, fields, [name.lower() for name, _ in fields], len(head))


def understood(
    start: bytes, fields: Fields, names: Sequence[bytes], length_bytes: int
) -> RequestHead:
    """Returns the same of a head whose lines are taken apart already."""
    method, target, is_old = _start_of(start)
    meant = _meant(fields, names)
    options = options_of(meant[b"connection"]) if b"connection" in meant else _NONE
    authority, target = (None, target) if target[:1] == b"/" else _target_of(method, target)
    hosts = meant.get(b"host", ())
    host = _host_of(hosts, authority, is_old=is_old)
    if hosts and (hosts[0] != host or not host):  # the target tells it; or empty, as good as none
        fields, names = _with_host(fields, names, host)
    size_bytes = _size_of(meant, is_old=is_old)
    awaits = b"expect" in meant and _expects(meant[b"expect"])
    tells_size = size_bytes == CHUNKED or b"content-length" in meant
    awaits = awaits and not is_old and size_bytes != 0
    keep_alive = b"close" not in options and (not is_old or b"keep-alive" in options)
    takes_trailers = b"te" in names and b"trailers" in options_of(values(fields, b"te"))
    return RequestHead(
        method, target, fields, names, options, is_old, host, size_bytes, tells_size, awaits,
        length_bytes, keep_alive, takes_trailers,
    )  # fmt: skip


def options_of(lines: Sequence[bytes]) -> frozenset[bytes]:
    """Returns the parts of lists, in lower case."""
    return frozenset([one for value in lines for one in tokens(value)])


def _expects(lines: Sequence[bytes]) -> bool:
    """Returns whether the client waits for `100 Continue`."""
    expected = options_of(lines)
    if expected - {b"100-continue"}:
        raise Malformed(Rule.EXPECTATION)
    return bool(expected)


def _start_of(start: bytes) -> tuple[str, bytes, bool]:
    line = _START.fullmatch(start)
    if line is None:
        odd = {Rule.FRAGMENT: _FRAGMENT, Rule.BLANKS: _BLANKS}
        found = (rule for rule, form in odd.items() if form.fullmatch(start) is not None)
        raise Malformed(next(found, Rule.FIRST_LINE))
    method, target, major, minor = line.groups()
    if major != b"1":
        raise Malformed(Rule.VERSION)
    if len(method) > METHOD_LENGTH_MAX:
        raise Malformed(Rule.METHOD)
    if method == b"CONNECT":
        raise Malformed(Rule.METHOD, "CONNECT is not passed through")
    return method.decode(), target, minor == b"0"


def _target_of(method: str, target: bytes) -> tuple[bytes | None, bytes]:
    """The authority, if it is told, and what does not start with / as origin-form."""
    if target == b"*":
        if method != "OPTIONS":
            raise Malformed(Rule.TARGET, "*: expected OPTIONS")
        return None, target
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None:
        raise Malformed(Rule.TARGET)
    authority, path = absolute.groups()
    if not path:
        path = b"*" if method == "OPTIONS" else b"/"
    return authority, path if path[:1] in (b"/", b"*") else b"/" + path


def _host_of(hosts: Sequence[bytes], authority: bytes | None, *, is_old: bool) -> bytes:
    """The target's, if that tells one (RFC 9112, 3.2.2). Empty where the client does not tell."""
    if len(hosts) > 1 or not (hosts or is_old):
        raise Malformed(Rule.HOST)
    told = hosts[0] if hosts else b""
    is_host = _HOST.fullmatch
    if (told and not is_host(told)) or (authority is not None and not is_host(authority)):
        raise Malformed(Rule.HOST, "Host: expected HOST[:PORT]")
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
            raise Malformed(Rule.OLD_CHUNKS)
        if lengths:
            raise Malformed(Rule.LENGTH_AND_CHUNKS)
        if len(codings) > 1 or codings[0].lower() != b"chunked":
            is_alone = tokens(b",".join(codings)) == [b"chunked"]
            raise Malformed(Rule.EMPTY_PARTS if is_alone else Rule.CODING)
        return CHUNKED
    if not lengths:
        return 0
    if len(lengths) > 1 or _LENGTH.fullmatch(lengths[0]) is None:
        _length_of(lengths)
        is_again = len(lengths) > 1 or b"," in lengths[0]
        raise Malformed(Rule.LENGTH_AGAIN if is_again else Rule.LONG_LENGTH)
    return int(lengths[0])


_MEANT = FRAMING | {b"connection", b"expect"}
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
            is_ours = with_dashes in NEVER_OF_THE_HOP | FRAMING or with_dashes.startswith(OURS)
            if is_ours and with_dashes != name:
                raise Malformed(Rule.UNDERLINE, f"header: expected {with_dashes.decode()}")
    return _picked(fields, names, _MEANT)


def _picked(fields: Fields, names: Sequence[bytes], wanted: frozenset[bytes]) -> _Meant:
    """The values of the fields of those names that are there: few of many, mostly once."""
    picked = {}
    for name in wanted.intersection(names):
        is_once = names.count(name) == 1
        picked[name] = [fields[names.index(name)][1]] if is_once else values(fields, name)
    return picked


class AnswerHead(NamedTuple):
    """The head of an answer, or of an interim one, which has no body."""

    status: int
    reason: bytes
    fields: Fields
    names: Sequence[bytes]
    """The names of the fields, in lower case."""
    options: frozenset[bytes]
    """The options of `Connection`, in lower case."""
    length: bytes | None
    """The one length that is told, without zeros before it; None where there is none."""
    body: Body
    keep_alive: bool
    keep_s: float | None
    """How long the service says that it keeps the connection, if it does."""


def read_answer(head: bytes, method: str) -> AnswerHead:
    """Returns what a service answers to a request of this method. Raises Malformed for what clients
    might read differently."""
    start, fields = split_answer(head)
    line = _ANSWER.fullmatch(start)
    if line is None:
        raise Malformed(Rule.FIRST_LINE, "expected HTTP/1.1 and a status")
    is_old, status, reason = line[1] == b"0", int(line[2]), line[3] or b""
    if status == 101:
        raise Malformed(Rule.SWITCHED)
    names = [name.lower() for name, _ in fields]
    meant = _picked(fields, names, _MEANT_OF_ANSWERS)
    options = options_of(meant[b"connection"]) if b"connection" in meant else _NONE
    told = status, reason, fields, names, options
    if status < 200:
        return AnswerHead(*told, None, ByLength(0), keep_alive=True, keep_s=None)
    length = _length_of(meant[b"content-length"]) if b"content-length" in meant else None
    body = _answer_body(length, meant.get(b"transfer-encoding", ()))
    if method == "HEAD" or status in NO_BODY:
        body = ByLength(0)
    keep_alive = not is_old and b"close" not in options and not isinstance(body, ToTheEnd)
    keep_s = None
    if b"keep-alive" in meant:
        keep_s = read_keep_alive_s(b",".join(meant[b"keep-alive"]))
        keep_alive = keep_alive and keep_s != 0.0
    return AnswerHead(*told, length, body, keep_alive, keep_s)


def _length_of(lengths: Sequence[bytes]) -> bytes:
    """The one length that is told, perhaps again and again (RFC 9110, 8.6), without zeros before
    it."""
    told = {one.strip(b" \t") for line in lengths for one in line.split(b",")}
    if len(told) > 1:
        raise Malformed(Rule.LENGTHS_DIFFER)
    number = _LENGTH_OF_ANSWER.fullmatch(told.pop())
    if number is None:
        raise Malformed(Rule.LENGTH)
    return b"%d" % int(number[1])


def _answer_body(length: bytes | None, codings: Sequence[bytes]) -> Body:
    if codings:
        if length is not None:
            raise Malformed(Rule.LENGTH_AND_CHUNKS)
        is_usual = len(codings) == 1 and codings[0].lower() == b"chunked"
        if not is_usual and tokens(b",".join(codings)) != [b"chunked"]:
            raise Malformed(Rule.CODING)
        return Chunked(of_answer=True)
    return ToTheEnd() if length is None else ByLength(int(length))
