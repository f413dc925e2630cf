"""What nodes say to each other of requests that pass through (decision 0043), as bytes: a request,
and its answer in frames.

A frame is a kind, a length and so many bytes: the head of the answer, pieces of its body, its end.
An answer without its end is none. In a message, what is JSON (`wire`) comes first, and behind it
what is passed on as it is.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

import msgspec

from spillover.core.overflow.events import SoFar
from spillover.live.engine.write_batch import Buffer
from spillover.live.overflow.wire import (
    Caller,
    Forwarded,
    MalformedMessage,
    Path,
    Stay,
    decode_answer,
    decode_forward,
    decoded,
    encode_answer,
    encode_envelope,
)
from spillover.model.load import LoadNow
from spillover.model.passed import (
    Fields,
    PassedHead,
    PassedRequest,
    decode_fields,
    encode_fields,
)
from spillover.model.request import Answer, Request

HEAD, BODY, END = b"HBE"
_FIRST, _OTHERS = (HEAD,), (BODY, END)
_IN_A_ROW = (HEAD, BODY, END)

MESSAGE_LIMIT_BYTES = 262_144
"""Of a frame that is no piece of a body."""

FRAME: Final = struct.Struct(">BI")
_pack, _unpack_from = FRAME.pack, FRAME.unpack_from
_LENGTH: Final = struct.Struct(">I")


class HeadBody(msgspec.Struct, omit_defaults=True):
    """How an answer begins, and what it took until then; fields as in `wire.AnswerBody`."""

    path: Path
    held_ms: float
    reading_ms: float = 0.0
    answer_delay_ms: float = 0.0
    queued_ms: float = 0.0
    network_ms: float = 0.0
    service_ms: float = 0.0


_encode = msgspec.json.Encoder().encode
_decode_head = msgspec.json.Decoder(HeadBody).decode


def encode_pass(
    request: Request, caller: Caller, remaining_s: float, load: LoadNow | None, *, pulled: bool
) -> tuple[Buffer, ...]:
    """Returns a request that passes through as `caller` hands it on, in parts that follow each
    other."""
    told = encode_envelope(request, caller, remaining_s, load, pulled)
    work = request.work
    encoded = work.encode() if isinstance(work, PassedRequest) else work
    return _LENGTH.pack(len(told)) + told, encoded


def decode_pass(body: bytes) -> Forwarded:
    """Returns what was encoded; the work is a view of the body. Raises MalformedMessage."""
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


def decode_head(message: bytes) -> tuple[PassedHead, SoFar, Stay]:
    """Raises MalformedMessage."""
    told, encoded = _apart(memoryview(message))
    body = decoded(_decode_head, bytes(told))
    way = body.queued_ms / 1e3, body.network_ms / 1e3, body.service_ms / 1e3
    stay = Stay(body.held_ms / 1e3, body.reading_ms / 1e3, body.answer_delay_ms / 1e3)
    return decoded(PassedHead.decode, bytes(encoded)), SoFar(body.path, *way), stay


def piece_head(size_bytes: int) -> bytes:
    """Returns how a frame begins with so much of the body, which follows."""
    return _pack(BODY, size_bytes)


def encode_end(trailers: Fields, answer: Answer, stay: Stay) -> bytes:
    """Returns the frame that says that an answer was whole, and what it came to."""
    return _message(END, encode_answer(answer, stay), encode_fields(trailers))


def decode_end(message: bytes) -> tuple[Fields, Answer]:
    """Raises MalformedMessage."""
    told, encoded = _apart(memoryview(message))
    answer, _ = decode_answer(bytes(told))
    answer.result = None  # it has come in pieces
    return decoded(decode_fields, bytes(encoded)), answer


def encode_whole(
    head: tuple[PassedHead, SoFar], body: bytes, end: tuple[Fields, Answer], stay: Stay
) -> tuple[bytes, bytes, bytes]:
    """Returns all frames of an answer in a row, in three parts: what is before the body, and
    behind it."""
    before = encode_head(*head, stay)
    if body:
        before += piece_head(len(body))
    return before, body, encode_end(*end, stay)


def _message(kind: int, told: bytes, encoded: bytes) -> bytes:
    size_bytes = _LENGTH.size + len(told) + len(encoded)
    return b"".join((FRAME.pack(kind, size_bytes), _LENGTH.pack(len(told)), told, encoded))


def _apart(message: memoryview) -> tuple[memoryview, memoryview]:
    """What is JSON, and what is behind it."""
    if len(message) < _LENGTH.size:
        raise MalformedMessage("expected a length of 4 bytes")
    (length,) = _LENGTH.unpack_from(message)
    end = _LENGTH.size + length
    if end > len(message):
        raise MalformedMessage(f"expected {end} bytes or more, got {len(message)}")
    return message[_LENGTH.size : end], message[end:]


OnPiece: TypeAlias = Callable[[bytes], None]


class Messages(Protocol):
    """What takes one answer that comes in frames. All may raise MalformedMessage."""

    def whole(self, head: bytes, body: bytes, end: bytes) -> None:
        """All of it is there at once."""

    def begin(self, message: bytes) -> OnPiece:
        """The head. Returns what takes the body, piece by piece."""

    def end(self, message: bytes) -> None:
        """It was whole."""


def _whole(data: bytes | bytearray) -> tuple[bytes, bytes, bytes] | None:
    """The head, the body and the end, where they are all that is there: as small answers come."""
    at, size = 0, len(data)
    frames = []
    for kind in _IN_A_ROW:
        if at + FRAME.size > size:
            return None
        found, length = _unpack_from(data, at)
        begin = at + FRAME.size
        if found != kind:
            if kind != BODY:
                return None
            frames.append(b"")  # of which there is none
            continue
        at = begin + length
        if at > size or (kind != BODY and not _LENGTH.size <= length <= MESSAGE_LIMIT_BYTES):
            return None
        frames.append(bytes(data[begin:at]))
    head, body, end = frames
    return (head, body, end) if at == size else None


class FrameReader:
    """Reads the frames of one answer, as they come. Pieces of the body are handed on at once, in
    parts where they have come in parts; messages whole."""

    __slots__ = ("_has_ended", "_kept", "_kind", "_left_bytes", "_messages", "_on_piece")

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self._on_piece: OnPiece | None = None
        """Between the head and the end."""
        self._has_ended = False
        self._kind = 0
        self._left_bytes = 0
        """Of the frame that is read."""
        self._kept = b""
        """What has come of a message, or of what says how long a frame is."""

    def feed(self, data: bytes | bytearray) -> None:
        """More has come. Raises MalformedMessage."""
        if not (self._kind or self._kept):
            if self._on_piece is not None:
                size_bytes = len(data) - FRAME.size
                # A frame with a piece of the body and nothing else: as it mostly comes, of streams.
                if size_bytes > 0 and _unpack_from(data) == (BODY, size_bytes):
                    self._on_piece(bytes(data[FRAME.size :]))
                    return
            elif not self._has_ended and (frames := _whole(data)) is not None:
                self._has_ended = True
                self._messages.whole(*frames)
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
        """Read how a frame begins, as far as it is there. Returns where the rest is."""
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
