"""The messages between nodes about requests that pass through (decision 0043), as bytes: a request,
and its answer.

An answer that is there at once is one message. Any other comes in frames, each of them a kind, a
length and that many bytes: its head, pieces of its body, its end. Without its end it is no answer.
A message begins with what is JSON (`wire`), followed by the bytes that are passed on as they are.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol, TypeAlias

import msgspec

from spillover.core.overflow.events import SoFar
from spillover.live.engine.write_batch import JOIN_LIMIT_BYTES, Buffer
from spillover.live.http1.known_heads import NOT_KEPT, Known
from spillover.live.overflow.wire import (
    NOTHING,
    Forwarded,
    MalformedMessage,
    Path,
    Stay,
    decode_answer,
    decode_forward,
    decoded,
    encode_answer,
    encode_forward,
    without_times,
)
from spillover.model.load import LoadNow
from spillover.model.passed import Fields, PassedHead, decode_fields, encode_fields
from spillover.model.ranges import Milliseconds
from spillover.model.request import Answer, Request

HEAD, BODY, END = b"HBE"
_FIRST, _OTHERS = (HEAD,), (BODY, END)

MESSAGE_LIMIT_BYTES = 262_144
"""The largest frame, in bytes, that is no piece of a body."""

FRAME: Final = struct.Struct(">BI")
_pack, _unpack_from = FRAME.pack, FRAME.unpack_from
_LENGTH: Final = struct.Struct(">I")
_MESSAGE: Final = struct.Struct(">BII")
"""The beginning of a frame with a message: its kind and two lengths."""
_LENGTHS: Final = struct.Struct(">III")
"""The lengths of an answer that is there at once: of its JSON, its head and its body."""


class HeadBody(msgspec.Struct, omit_defaults=True):
    """The beginning of an answer, and what it took until then; fields are as in
    `wire.AnswerBody`."""

    path: Path
    held_ms: Milliseconds
    reading_ms: Milliseconds = 0.0
    answer_delay_ms: Milliseconds = 0.0
    queued_ms: Milliseconds = 0.0
    network_ms: Milliseconds = 0.0
    service_ms: Milliseconds = 0.0


_encode = msgspec.json.Encoder().encode
_decode_head = msgspec.json.Decoder(HeadBody).decode


def encode_pass(
    request: Request, remaining_s: float, load: LoadNow | None, *, pulled: bool
) -> tuple[Buffer, ...]:
    """Returns a request that passes through as it is handed on, in parts that follow each
    other."""
    (told,) = encode_forward(request, remaining_s, load, pulled=pulled, payload=NOTHING)
    work = request.work
    encoded = work if isinstance(work, bytes | memoryview) else work.encode()
    before = _LENGTH.pack(len(told)) + told
    if len(encoded) > JOIN_LIMIT_BYTES:
        return before, encoded
    return (b"".join((before, encoded)),)


def decode_pass(body: bytes) -> Forwarded:
    """Returns the request that was encoded; its work is a view of the body. Raises
    MalformedMessage."""
    told, work = _apart(memoryview(body))
    forwarded = decode_forward(bytes(told))
    forwarded.request.work, forwarded.request.size_bytes = work, len(body)
    return forwarded


def encode_head(head: PassedHead, so_far: SoFar, stay: Stay) -> bytes:
    """Returns a frame with the beginning of an answer, as it goes back along the path."""
    body = HeadBody(
        path=so_far.path,
        held_ms=stay.held_s * 1e3,
        reading_ms=stay.reading_s * 1e3,
        answer_delay_ms=stay.answer_delay_s * 1e3,
        queued_ms=so_far.queued_s * 1e3,
        network_ms=so_far.network_s * 1e3,
        service_ms=so_far.service_s * 1e3,
    )
    return _message(HEAD, _encode(body), head.encode())


def decode_head(message: bytes, known: Known[PassedHead]) -> tuple[PassedHead, SoFar, Stay]:
    """Returns the head, what the answer took so far, and the stay; `known` has the heads that have
    come before. Raises MalformedMessage."""
    told, encoded = _apart(memoryview(message))
    try:
        body = decoded(_decode_head, bytes(told))
    except MalformedMessage:
        body = decoded(_decode_head, without_times(bytes(told)))
    way = body.queued_ms / 1e3, body.network_ms / 1e3, body.service_ms / 1e3
    stay = Stay(body.held_ms / 1e3, body.reading_ms / 1e3, body.answer_delay_ms / 1e3)
    return _head(bytes(encoded), known), SoFar(body.path, *way), stay


def _head(encoded: bytes, known: Known[PassedHead]) -> PassedHead:
    head = known.meanings.get(encoded)
    if head is None:
        head = decoded(PassedHead.decode, encoded)
        if NOT_KEPT.isdisjoint([name.lower() for name, _ in head.headers]):
            known.keep(encoded, head)
    return head


def piece_head(size_bytes: int) -> bytes:
    """Returns the beginning of a frame for so much of the body, which follows."""
    return _pack(BODY, size_bytes)


def encode_end(trailers: Fields, answer: Answer, stay: Stay) -> bytes:
    """Returns the frame that says that an answer was whole, and what its outcome is."""
    return _message(END, encode_answer(answer, stay), encode_fields(trailers))


def decode_end(message: bytes) -> tuple[Fields, Answer]:
    """Returns the trailers and the answer. Raises MalformedMessage."""
    told, encoded = _apart(memoryview(message))
    answer, _ = decode_answer(bytes(told))
    answer.result = None  # it has come in pieces
    return decoded(decode_fields, bytes(encoded)), answer


def encode_whole(
    head: PassedHead, body: bytes, trailers: Fields, answer: Answer, stay: Stay
) -> bytes:
    """Returns an answer that is there at once, without frames, so that its times are stated
    once."""
    told, encoded = encode_answer(answer, stay), head.encode()
    lengths = _LENGTHS.pack(len(told), len(encoded), len(body))
    behind = encode_fields(trailers) if trailers else b""
    return b"".join((lengths, told, encoded, body, behind))


class Whole(NamedTuple):
    """An answer that came at once."""

    head: PassedHead
    body: bytes
    trailers: Fields
    answer: Answer
    stay: Stay


def decode_whole(message: bytes, known: Known[PassedHead]) -> Whole:
    """Returns the answer that was encoded; `known` has the heads that have come before. Raises
    MalformedMessage."""
    if len(message) < _LENGTHS.size:
        raise MalformedMessage(f"expected {_LENGTHS.size} bytes or more, got {len(message)}")
    told_bytes, head_bytes, body_bytes = _LENGTHS.unpack_from(message)
    head_at = _LENGTHS.size + told_bytes
    body_at = head_at + head_bytes
    end = body_at + body_bytes
    if end > len(message) or max(told_bytes, head_bytes) > MESSAGE_LIMIT_BYTES:
        raise MalformedMessage(f"expected {end} bytes or more, got {len(message)}")
    answer, stay = decode_answer(message[_LENGTHS.size : head_at])
    answer.result = None  # it is the body
    head = _head(message[head_at:body_at], known)
    trailers = decoded(decode_fields, message[end:]) if end < len(message) else ()
    return Whole(head, message[body_at:end], trailers, answer, stay)


def _message(kind: int, told: bytes, encoded: bytes) -> bytes:
    length = len(told)
    size_bytes = _LENGTH.size + length + len(encoded)
    return _MESSAGE.pack(kind, size_bytes, length) + told + encoded


def _apart(message: memoryview) -> tuple[memoryview, memoryview]:
    """Returns the part that is JSON, and the part behind it."""
    if len(message) < _LENGTH.size:
        raise MalformedMessage("expected a length of 4 bytes")
    (length,) = _LENGTH.unpack_from(message)
    end = _LENGTH.size + length
    if end > len(message):
        raise MalformedMessage(f"expected {end} bytes or more, got {len(message)}")
    return message[_LENGTH.size : end], message[end:]


OnPiece: TypeAlias = Callable[[bytes], None]


class Messages(Protocol):
    """The receiver of one answer that comes in frames. Each call may raise MalformedMessage."""

    def begin(self, message: bytes) -> OnPiece:
        """Take the head. Returns the callable that takes the body, piece by piece."""

    def end(self, message: bytes) -> None:
        """Take the end, which says that the answer was whole."""


class FrameReader:
    """A reader of the frames of one answer, as they come. It hands pieces of the body on at once,
    in parts where they have come in parts, and messages whole."""

    __slots__ = ("_has_ended", "_kept", "_kind", "_left_bytes", "_messages", "_on_piece")

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self._on_piece: OnPiece | None = None
        """The callable that takes pieces of the body; None except between the head and the end."""
        self._has_ended = False
        self._kind = 0
        self._left_bytes = 0
        """The number of bytes of the current frame that have not come yet."""
        self._kept = b""
        """The bytes that have come of a message, or of the start of a frame."""

    def feed(self, data: bytes | bytearray) -> None:
        """Read more bytes of the answer. Raises MalformedMessage."""
        if self._on_piece is not None and not (self._kind or self._kept):
            size_bytes = len(data) - FRAME.size
            # A frame with a piece of the body and nothing else: as it mostly comes, of streams.
            if size_bytes > 0 and _unpack_from(data) == (BODY, size_bytes):
                self._on_piece(bytes(data[FRAME.size :]))
                return
        at, end = 0, len(data)
        while at < end:
            if not self._kind:
                at = self._begin(data, at)
                continue
            part = bytes(data[at : at + self._left_bytes])
            at += len(part)
            self._left_bytes -= len(part)
            if self._kind != BODY:
                self._kept += part
            elif part and self._on_piece is not None:
                self._on_piece(part)
            if not self._left_bytes:
                self._finish()

    def _begin(self, data: bytes | bytearray, at: int) -> int:
        """Read the start of a frame, as far as it is there. Returns the position behind it."""
        upto = at + FRAME.size - len(self._kept)
        self._kept += data[at:upto]
        if len(self._kept) < FRAME.size:
            return len(data)
        kind, length = FRAME.unpack(self._kept)
        self._kept = b""
        if self._has_ended or kind not in (_FIRST if self._on_piece is None else _OTHERS):
            raise MalformedMessage(f"expected another kind of frame, got {kind}")
        if kind != BODY and not _LENGTH.size <= length <= MESSAGE_LIMIT_BYTES:
            limits = f"{_LENGTH.size} to {MESSAGE_LIMIT_BYTES} bytes"
            raise MalformedMessage(f"expected a message of {limits}, got {length}")
        self._kind, self._left_bytes = kind, length
        if not length:
            self._finish()
        return upto

    def _finish(self) -> None:
        kind, message, self._kind, self._kept = self._kind, self._kept, 0, b""
        if kind == HEAD:
            self._on_piece = self._messages.begin(message)
        elif kind == END:
            self._on_piece, self._has_ended = None, True
            self._messages.end(message)
