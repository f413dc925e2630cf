"""A request of any method and path, and the head of its answer, as they pass through clusters, byte
for byte.

Encoded by MessagePack, which carries bytes as they are, and the body of a request behind that: so a
request is the `work` of a neighbor's `model.request.Request`; that of a client's is not encoded
before it is handed on. Later versions may add fields at the end of each; they are not read here.

A `Content-Length` that is that of the body may be left empty: what has come before is the same
bytes then, whatever its length. So it is in requests that travel, and in the heads of answers that
are there at once; no head that is read or written has an empty one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

import msgspec

from spillover.model.errors import UNREADABLE

Fields: TypeAlias = tuple[tuple[bytes, bytes], ...]
"""The fields of a head, or trailers: names as they were written, in their order, repeated ones
too."""

if TYPE_CHECKING:
    PassedBody: TypeAlias = bytes | memoryview
else:
    PassedBody = memoryview  # as which it is decoded: a body is not copied

METHOD_LENGTH_MAX = 64

LENGTH = b"content-length"

Method = Annotated[str, msgspec.Meta(min_length=1, max_length=METHOD_LENGTH_MAX)]
Status = Annotated[int, msgspec.Meta(ge=200, le=999)]

T = TypeVar("T")


class MalformedPassed(ValueError):
    """These bytes are no request or head that passes."""


class PassedRequest(msgspec.Struct, array_like=True, frozen=True):
    """The request of a client: `target` is as in the first line, and the body is whole."""

    method: Method
    target: bytes
    headers: Fields
    body: PassedBody

    @property
    def path(self) -> str:
        """Returns the target without its query, which may hold what is nobody's business."""
        return self.target.partition(b"?")[0].decode("latin-1")

    def encode(self) -> bytes:
        return encode_request(encode_lines(self.method, self.target, self.headers), self.body)

    @classmethod
    def decode(cls, work: bytes | memoryview) -> PassedRequest:
        """Returns what was encoded; its body is a view of `work`. Raises MalformedPassed."""
        encoded, body = take_apart(work)
        return cls.of(decode_lines(encoded), body)

    @classmethod
    def of(cls, lines: RequestLines, body: PassedBody) -> PassedRequest:
        headers = with_length(lines.headers, len(body))
        return cls(lines.method, lines.target, headers, body)


class RequestLines(msgspec.Struct, array_like=True, frozen=True):
    """The head of a request, as it travels."""

    method: Method
    target: bytes
    headers: Fields


class PassedHead(msgspec.Struct, array_like=True, frozen=True):
    """The beginning of an answer: the final status, not an interim one, and its fields."""

    status: Status
    reason: bytes
    headers: Fields

    def encode(self) -> bytes:
        return _encode(self)

    @classmethod
    def decode(cls, encoded: bytes | memoryview) -> PassedHead:
        """Returns what was encoded. Raises MalformedPassed."""
        return _decoded(_decode_head, encoded)


def with_length(fields: Fields, size_bytes: int) -> Fields:
    """Returns the fields of a head with this length where it was left empty."""
    at = length_at(fields)
    if at is None or fields[at][1]:
        return fields
    return (*fields[:at], (fields[at][0], b"%d" % size_bytes), *fields[at + 1 :])


def lengthless(fields: Fields, length: bytes) -> Fields | None:
    """Returns the fields with their length left empty, which is this; None if it is not."""
    at = length_at(fields)
    if at is None or fields[at][1] != length:
        return None
    return (*fields[:at], (fields[at][0], b""), *fields[at + 1 :])


def length_at(fields: Fields) -> int | None:
    """Returns which of the fields is the length; None if there is none, or more than one."""
    places = [place for place, (name, _) in enumerate(fields) if name.lower() == LENGTH]
    return places[0] if len(places) == 1 else None


_LENGTHS = struct.Struct(">II")
"""The lengths of the head and the body of a request."""


def encode_lines(method: str, target: bytes, fields: Fields) -> bytes:
    """Returns the head of a request as it travels."""
    return _encode((method, target, fields))


def encode_request(lines: bytes, body: PassedBody) -> bytes:
    """Returns a request as it travels, with this head."""
    return b"".join((_LENGTHS.pack(len(lines), len(body)), lines, body))


def take_apart(work: bytes | memoryview) -> tuple[bytes, memoryview]:
    """Returns the head and the body of a request that has travelled. Raises MalformedPassed."""
    whole = memoryview(work)
    if len(whole) < _LENGTHS.size:
        raise MalformedPassed(f"expected {_LENGTHS.size} bytes or more, got {len(whole)}")
    lines_bytes, body_bytes = _LENGTHS.unpack_from(whole)
    body_at = _LENGTHS.size + lines_bytes
    if body_at + body_bytes != len(whole):
        raise MalformedPassed(f"expected {body_at + body_bytes} bytes, got {len(whole)}")
    return bytes(whole[_LENGTHS.size : body_at]), whole[body_at:]


def decode_lines(encoded: bytes) -> RequestLines:
    """Returns the head of a request that has travelled. Raises MalformedPassed."""
    return _decoded(_decode_lines, encoded)


def encode_fields(fields: Fields) -> bytes:
    """Returns trailers as they travel."""
    return _encode(fields)


def decode_fields(encoded: bytes | memoryview) -> Fields:
    """Returns what was encoded. Raises MalformedPassed."""
    return _decoded(_decode_fields, encoded)


_encode = msgspec.msgpack.Encoder().encode
_decode_lines = msgspec.msgpack.Decoder(RequestLines).decode
_decode_head = msgspec.msgpack.Decoder(PassedHead).decode
_decode_fields = msgspec.msgpack.Decoder(Fields).decode


def _decoded(decode: Callable[[bytes | memoryview], T], encoded: bytes | memoryview) -> T:
    try:
        return decode(encoded)
    except UNREADABLE as error:
        raise MalformedPassed(str(error)) from error
