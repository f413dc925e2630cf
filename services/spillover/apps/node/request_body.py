"""The JSON of `POST /requests`: read, found wrong, and the payload cut out as it came.

What the fields mean is `intake`'s business.
"""

from __future__ import annotations

import difflib
import re

import msgspec
from pydantic_core import from_json

LARGE_BYTES = 8192
COMMAS_MAX = 16
"""Of a body that holds little but long strings: with few commas it has few values, since parsers
do not nest deep."""

_PAYLOAD_FIRST = re.compile(rb'[ \t\n\r]*\{[ \t\n\r]*"payload"[ \t\n\r]*:[ \t\n\r]*')
_PAYLOAD_AGAIN = re.compile(rb',[ \t\n\r]*"(?:payload"|[^"\\]{0,6}\\)')
"""Behind a comma: the same name, or what may be the same name with escapes."""

_SPACE = b" \t\n\r"


class RequestBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /requests`; the payload stays as it came. A field that means nothing is
    most likely one that is written wrong."""

    payload: msgspec.Raw
    type: str | None = None
    id: str | None = None


FIELDS = RequestBody.__struct_fields__

_HEADERS = {
    "deadline_ms": "Spillover-Deadline-Ms",
    "idempotency_key": "Idempotency-Key",
    "priority": "Spillover-Priority",
}
"""What might be looked for in the body, and is said elsewhere."""

SHOWN_LENGTH_MAX = 64
UNKNOWN_MAX = 16
"""Of the unknown fields of a body that are looked at."""

_decode = msgspec.json.Decoder(RequestBody).decode
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def read_body(body: bytes) -> RequestBody:
    """Raises ValidationError for fields, ValueError or RecursionError for what is no JSON."""
    if len(body) >= LARGE_BYTES and (payload := _long_payload(body)) is not None:
        return RequestBody(payload)
    if not body.isascii():
        body.decode()  # what is passed on unread is not looked at by the JSON decoder
    return _decode(body)


def fault_of(body: bytes, error: msgspec.ValidationError) -> str:
    """Returns what is wrong with a body that `read_body` has found invalid, in one line."""
    try:
        given = _decode_fields(body)
    except (ValueError, RecursionError):
        return f"body: {error}"
    unknown = [name[:SHOWN_LENGTH_MAX] for name in given if name not in FIELDS][:UNKNOWN_MAX]
    if not unknown:
        return f"body: {error}"
    for name in unknown:
        alike = name.lower().replace("-", "_")
        closest = next(iter(difflib.get_close_matches(alike, [*FIELDS, *_HEADERS], n=1)), "")
        if header := _HEADERS.get(closest):
            return f"body: unknown field {name!r}, did you mean the header {header}?"
        if closest:
            return f"body: unknown field {name!r}, did you mean {closest}?"
    return f"body: unknown field {unknown[0]!r}, expected one of {', '.join(FIELDS)}"


def _long_payload(body: bytes) -> msgspec.Raw | None:
    """The payload of a body that has nothing else and consists of few and long strings, such as an
    image in base64. pydantic's parser reads these in a third of the time that msgspec's takes
    to skip them; the objects that it makes of them are few. Nothing is copied. None: to be read the
    other way, which also says what is wrong."""
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
    """Where they are, unless there are too many."""
    places: list[int] = []
    at = -1
    for _ in range(COMMAS_MAX):
        at = body.find(b",", at + 1)
        if at < 0:
            return places
        places.append(at)
    return None


def _end_of_value(body: bytes, end: int) -> int:
    """Of what stands before `end` with blanks behind it."""
    return len(body[:end].rstrip(_SPACE)) if body[end - 1] in _SPACE else end
