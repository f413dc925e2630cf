"""The JSON of `POST /requests`: read, found wrong, and the payload cut out as it came.

What the fields mean is `intake`'s business.
"""

from __future__ import annotations

import re

import msgspec
from pydantic_core import from_json

LARGE_BYTES = 8192
MARKS_MAX = 16
"""Quotes, and commas, of a body that holds little but long strings."""

_PAYLOAD_FIRST = re.compile(rb'[ \t\n\r]*\{[ \t\n\r]*"payload"[ \t\n\r]*:')
_SPACE = b" \t\n\r"


class RequestBody(msgspec.Struct):
    """The body of `POST /requests`; the payload stays as it came."""

    payload: msgspec.Raw
    type: str | None = None
    id: str | None = None


_decode = msgspec.json.Decoder(RequestBody).decode


def read_body(body: bytes) -> RequestBody:
    """Raises ValidationError for fields, ValueError or RecursionError for what is no JSON."""
    if len(body) >= LARGE_BYTES and (payload := _long_payload(body)) is not None:
        return RequestBody(payload)
    if not body.isascii():
        body.decode()  # what is passed on unread is not looked at by the JSON decoder
    return _decode(body)


def _long_payload(body: bytes) -> msgspec.Raw | None:
    """The payload of a body that has nothing else and consists of few and long strings, such as an
    image in base64. pydantic's parser reads these in a third of the time that msgspec's takes
    to skip them; the objects that it makes of them are few. None: to be read the other way, which
    also says what is wrong."""
    begin = _PAYLOAD_FIRST.match(body)
    if begin is None or body[-1:] != b"}" or not (_are_few(b'"', body) and _are_few(b",", body)):
        return None
    payload = body[begin.end() : -1].strip(_SPACE)
    try:
        from_json(payload, allow_inf_nan=False, cache_strings=False)
    except ValueError:
        return None
    return msgspec.Raw(payload)  # one value, so that no other field can be in it


def _are_few(mark: bytes, body: bytes) -> bool:
    at = -1
    for _ in range(MARKS_MAX):
        at = body.find(mark, at + 1)
        if at < 0:
            return True
    return False
