"""The way from the bytes of `POST /requests` to a Request. All that a client can get wrong is found
here, before the machine gets the request."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import msgspec
from pydantic_core import from_json

from spillover.apps.http.json_body import why_no_json
from spillover.apps.http.problems import Problem
from spillover.apps.node.preferences import MILLISECONDS, Preferences, read_preferences
from spillover.live.overflow.wire import DEADLINE_MS_MAX
from spillover.model.errors import UNREADABLE
from spillover.model.ids import request_id_of
from spillover.model.nearest import nearest
from spillover.model.request import (
    NAME_LENGTH_MAX,
    TYPE_LENGTH_MAX,
    Request,
    is_name,
)
from spillover.model.trace_context import TraceContext, trace_context

_MEANT = frozenset(
    {
        b"content-encoding",
        b"idempotency-key",
        b"prefer",
        b"spillover-deadline-ms",
        b"spillover-priority",
        b"spillover-type",
        b"traceparent",
        b"tracestate",
    }
)

NO_PREFERENCES = Preferences()

_LISTS = frozenset({b"content-encoding", b"prefer", b"tracestate"})
_SAID_ONCE = _MEANT - _LISTS - {b"traceparent"}


class Headers:
    """The request headers that mean something here. Others, hop and path headers from outside
    among them, are not even looked at."""

    __slots__ = (
        "coding",
        "deadline_ms",
        "key",
        "preferences",
        "priority",
        "trace",
        "type",
    )

    def __init__(self) -> None:
        self.coding = b""
        """The content coding of the body: the error about one that cannot be read names it."""
        self.key: str | None = None
        self.type: str | None = None
        self.deadline_ms: float | None = None
        self.priority = 0
        self.preferences = NO_PREFERENCES
        self.trace: TraceContext | None = None

    def read(self, meant: list[tuple[bytes, bytes]]) -> None:
        """Reads these headers. Raises Problem `invalid`; even then a valid key has been read."""
        given = dict(meant)
        differing = _join(meant, given) if len(given) < len(meant) else None
        self.coding = given.get(b"content-encoding", b"")
        if (key := given.get(b"idempotency-key")) is not None:
            self.key = _name("Idempotency-Key", _text(key), NAME_LENGTH_MAX)
        if differing is not None:
            raise Problem("invalid", f"{differing.decode().title()}: expected once")
        if (type_ := given.get(b"spillover-type")) is not None:
            self.type = _name("Spillover-Type", _text(type_), TYPE_LENGTH_MAX)
        if (deadline_ms := given.get(b"spillover-deadline-ms")) is not None:
            self.deadline_ms = _deadline_ms(deadline_ms)
        if (priority := given.get(b"spillover-priority")) is not None:
            if len(priority) != 1 or not priority.isdigit():
                raise Problem("invalid", "Spillover-Priority: expected one digit, 0 to 9")
            self.priority = int(priority)
        if (prefer := given.get(b"prefer")) is not None:
            self.preferences = read_preferences(prefer)
        if (traceparent := given.get(b"traceparent")) is not None:
            state = _text(given.get(b"tracestate", b""))
            self.trace = trace_context(_text(traceparent), state)


NO_HEADERS = Headers()
"""The headers of most requests, which say nothing. Nobody writes to this object."""


def read_headers(headers: Sequence[tuple[bytes, bytes]]) -> Headers:
    """Returns the headers that mean something. Raises Problem `invalid`, with the name of the
    request where that could be read."""
    if _MEANT.isdisjoint(dict(headers)):
        return NO_HEADERS
    read = Headers()
    try:
        read.read([header for header in headers if header[0] in _MEANT])
    except Problem as problem:
        problem.id = read.key
        raise
    return read


LARGE_BYTES = 8192
COMMAS_MAX = 16
"""The most commas of a body that holds little but long strings: with few commas it has few values,
since parsers do not nest deep."""

_PAYLOAD_FIRST = re.compile(rb'[ \t\n\r]*\{[ \t\n\r]*"payload"[ \t\n\r]*:[ \t\n\r]*')
_PAYLOAD_AGAIN = re.compile(rb',[ \t\n\r]*"(?:payload"|[^"\\]{0,6}\\)')
"""The pattern, behind a comma, of the same name, or of what may be the same name with escapes."""

_SPACE = b" \t\n\r"


class RequestBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /requests`; the payload stays as it came. An unknown field is most likely
    misspelt."""

    payload: msgspec.Raw
    type: str | None = None
    id: str | None = None


FIELDS = RequestBody.__struct_fields__

_HEADERS = {
    "deadline_ms": "Spillover-Deadline-Ms",
    "idempotency_key": "Idempotency-Key",
    "priority": "Spillover-Priority",
}
"""Fields that a client might put into the body, and that have a header instead."""

SHOWN_LENGTH_MAX = 64
UNKNOWN_MAX = 16
"""The most unknown fields of a body that are looked at."""

_decode = msgspec.json.Decoder(RequestBody).decode
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def read_request(headers: Headers, body: bytes, tenant: str = "") -> Request:
    """Returns the request of a tenant. It is keyed if it came with a name; else its name is still
    empty. Raises Problem `invalid`, one line that names the field."""
    try:
        parsed = read_body(body)
    except msgspec.ValidationError as error:
        raise Problem("invalid", fault_of(body, error)) from error
    except UNREADABLE as error:  # bad JSON, bad UTF-8; nested too deep
        why = why_no_json(body, headers.coding) or f"body: expected JSON: {error}"
        raise Problem("invalid", why) from error
    name = headers.key
    if parsed.id is not None:
        given = _name("id", parsed.id, NAME_LENGTH_MAX)
        if name is not None and name != given:
            raise Problem(
                "invalid", "id: expected the same as Idempotency-Key, where both are given"
            )
        name = given
    type_ = headers.type
    if parsed.type is not None:
        given = _name("type", parsed.type, TYPE_LENGTH_MAX)
        if type_ is not None and type_ != given:
            raise Problem(
                "invalid", "type: expected the same as Spillover-Type, where both are given"
            )
        type_ = given
    return Request(  # by position: by name takes three times as long
        request_id_of(tenant, name or ""),
        name is not None,
        parsed.payload,
        (),
        type_ or "default",
        headers.priority,
        headers.trace,
        len(body),
    )


def asked_name(headers: Headers, body: bytes) -> str | None:
    """Returns the name that a client gives its request, before the request is read; None without a
    name, or if `read_request` will not take the body."""
    if headers.key is not None or not (b'"id"' in body or b"\\u006" in body):
        return headers.key  # as is mostly so; an escape may be of either letter
    try:
        name = read_body(body).id
    except UNREADABLE:
        return None
    return name if name is not None and is_name(name, NAME_LENGTH_MAX) else None


def read_body(body: bytes) -> RequestBody:
    """Returns the body, parsed. Raises ValidationError for wrong fields, and ValueError or
    RecursionError for a body that is no JSON."""
    if len(body) >= LARGE_BYTES and (payload := _long_payload(body)) is not None:
        return RequestBody(payload)
    if not body.isascii():
        body.decode()  # the JSON decoder does not look at what is passed on unread
    return _decode(body)


def fault_of(body: bytes, error: msgspec.ValidationError) -> str:
    """Returns the fault of a body that `read_body` has found invalid, in one line."""
    try:
        given = _decode_fields(body)
    except UNREADABLE:
        return f"body: {error}"
    unknown = [name[:SHOWN_LENGTH_MAX] for name in given if name not in FIELDS][:UNKNOWN_MAX]
    if not unknown:
        return f"body: {error}"
    for name in unknown:
        alike = name.lower().replace("-", "_")
        closest = nearest(alike, [*FIELDS, *_HEADERS])
        if closest is not None:
            meant = f"the header {_HEADERS[closest]}" if closest in _HEADERS else closest
            return f"body: unknown field {name!r}, did you mean {meant}?"
    return f"body: unknown field {unknown[0]!r}, expected one of {', '.join(FIELDS)}"


def _long_payload(body: bytes) -> msgspec.Raw | None:
    """Returns the payload of a body that has nothing else and consists of few and long strings,
    such as an image in base64; None for any other body, which is read the usual way.

    pydantic's parser reads such bodies in a third of the time that msgspec's takes to skip them,
    and makes few objects of them. Nothing is copied.
    """
    begin = _PAYLOAD_FIRST.match(body)
    if begin is None or (commas := _commas(body)) is None:
        return None
    try:
        fields = from_json(body, allow_inf_nan=False, cache_strings=False)
    except ValueError:
        return None
    if len(fields) > 1 or any(_PAYLOAD_AGAIN.match(body, comma) for comma in commas):
        return None
    end = _end_of_value(body, _end_of_value(body, len(body)) - 1)
    return msgspec.Raw(memoryview(body)[begin.end() : end])


def _commas(body: bytes) -> list[int] | None:
    """Returns the positions of the commas, or None if there are too many."""
    places: list[int] = []
    at = -1
    for _ in range(COMMAS_MAX):
        at = body.find(b",", at + 1)
        if at < 0:
            return places
        places.append(at)
    return None


def _end_of_value(body: bytes, end: int) -> int:
    """Returns the end of the value before `end`, without the blanks behind it."""
    return len(body[:end].rstrip(_SPACE)) if body[end - 1] in _SPACE else end


def _join(meant: list[tuple[bytes, bytes]], given: dict[bytes, bytes]) -> bytes | None:
    """Puts into `given` what headers mean that come several times, with the lines of a list as one.
    Returns the name of one that says different things and may not, which is taken out."""
    given.clear()
    differing: bytes | None = None
    for name, value in meant:
        first = given.setdefault(name, value)
        if first is value:
            continue
        if name in _LISTS:
            given[name] = first + b"," + value
        elif name == b"traceparent":
            given[name] = b""  # not one of them is valid (W3C Trace Context, section 3.2)
        elif first != value and name in _SAID_ONCE:
            differing = differing or name
    if differing is not None:
        del given[differing]
    return differing


def _text(value: bytes) -> str:
    """Returns a header's value as text: UTF-8, else latin-1, as older clients send it."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _name(field: str, text: str, length_max: int) -> str:
    if not is_name(text, length_max):
        expected = (
            f"expected 1 to {length_max} printable characters, no blank at either end, not . or .."
        )
        raise Problem("invalid", f"{field}: {expected}")
    return text


def _deadline_ms(value: bytes) -> float:
    deadline_ms = float(value) if MILLISECONDS.fullmatch(value) else math.inf
    if deadline_ms == math.inf:
        raise Problem(
            "invalid", "Spillover-Deadline-Ms: expected a number of milliseconds, 0 or more"
        )
    return min(deadline_ms, DEADLINE_MS_MAX)
