"""A request of any method and path, and the head of its answer, as they pass through clusters: what
came, byte for byte. What is dropped, added or refused of heads is not known here.

Encoded by MessagePack, which carries bytes as they are: so a request is the `work` of a neighbor's
`model.request.Request`; that of a client's is not encoded before it is handed on. Later versions
may add fields at the end of each; they are not read here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

import msgspec

Fields: TypeAlias = tuple[tuple[bytes, bytes], ...]
"""Of a head, or trailers: names as they were written, in their order, repeated ones too."""

if TYPE_CHECKING:
    PassedBody: TypeAlias = bytes | memoryview
else:
    PassedBody = memoryview  # as which it is decoded: a body is not copied

METHOD_LENGTH_MAX = 64

Method = Annotated[str, msgspec.Meta(min_length=1, max_length=METHOD_LENGTH_MAX)]
Status = Annotated[int, msgspec.Meta(ge=200, le=999)]

T = TypeVar("T")


class MalformedPassed(ValueError):
    """These bytes are not what they are taken for."""


class PassedRequest(msgspec.Struct, array_like=True, frozen=True):
    """What a client asks: `target` as it stands in the first line, the body whole."""

    method: Method
    target: bytes
    headers: Fields
    body: PassedBody

    @property
    def path(self) -> str:
        """Returns the target without its query, which may hold what is nobody's business."""
        return self.target.partition(b"?")[0].decode("latin-1")

    def encode(self) -> bytes:
        """Returns it as it travels."""
        return _encode(self)

    @classmethod
    def decode(cls, work: bytes | memoryview) -> PassedRequest:
        """Returns what was encoded; its body is a view of `work`. Raises MalformedPassed."""
        return _decoded(_decode_request, work)


class PassedHead(msgspec.Struct, array_like=True, frozen=True):
    """How an answer begins: the final status, not an interim one."""

    status: Status
    reason: bytes
    headers: Fields

    def encode(self) -> bytes:
        """Returns it as it travels."""
        return _encode(self)

    @classmethod
    def decode(cls, encoded: bytes | memoryview) -> PassedHead:
        """Returns what was encoded. Raises MalformedPassed."""
        return _decoded(_decode_head, encoded)


def encode_fields(fields: Fields) -> bytes:
    """Returns trailers as they travel."""
    return _encode(fields)


def decode_fields(encoded: bytes | memoryview) -> Fields:
    """Returns what was encoded. Raises MalformedPassed."""
    return _decoded(_decode_fields, encoded)


_encode = msgspec.msgpack.Encoder().encode
_decode_request = msgspec.msgpack.Decoder(PassedRequest).decode
_decode_head = msgspec.msgpack.Decoder(PassedHead).decode
_decode_fields = msgspec.msgpack.Decoder(Fields).decode


def _decoded(decode: Callable[[bytes | memoryview], T], encoded: bytes | memoryview) -> T:
    try:
        return decode(encoded)
    except (ValueError, RecursionError) as error:
        raise MalformedPassed(str(error)) from error
