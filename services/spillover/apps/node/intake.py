"""From the bytes of `POST /requests` to a Request, and from an Answer to bytes.

All that a client can get wrong is found here, before the machine hears of the request.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from spillover.apps.node.problems import Problem
from spillover.core.node_events import Refuse
from spillover.model.ids import RequestId
from spillover.model.request import Answer, Outcome, Refusal, Request

NAME_LENGTH_MAX = 200
TYPE_LENGTH_MAX = 100
DEADLINE_MS_MAX = 7 * 86_400_000.0
"""A week: a deadline beyond it is none."""


class RequestBody(msgspec.Struct):
    """The body of `POST /requests`; the payload stays as it came."""

    payload: msgspec.Raw
    type: str | None = None
    id: str | None = None


class Timing(msgspec.Struct):
    """`timing_ms` of an answer; total = queued + network + service."""

    queued: float
    network: float
    service: float
    return_: float = msgspec.field(name="return")
    total: float


class AnswerBody(msgspec.Struct):
    """The body of a 200 answer (contract, section 4)."""

    id: str
    result: msgspec.Raw
    cluster: str
    path: tuple[str, ...]
    hops: int
    timing_ms: Timing


_decode = msgspec.json.Decoder(RequestBody).decode
_encode = msgspec.json.Encoder().encode

_REASONS = {
    Outcome.FAILED: "handler_failed",
    Outcome.EXPIRED: "deadline_exceeded",
    Outcome.CANCELLED: "cancelled",
    Outcome.UNKNOWN: "outcome_unknown",
}

_DETAILS = {
    Outcome.FAILED: "the handler failed",
    Outcome.EXPIRED: "the deadline passed before the work was done",
    Outcome.CANCELLED: "the request was cancelled",
    Outcome.UNKNOWN: "whether the work was done is not known; it will not be tried again",
}


class Headers:
    """The request headers that mean something here. Others, hop and path headers from outside
    among them, are not even looked at."""

    __slots__ = ("content_length", "deadline_ms", "key", "priority", "traceparent", "type")

    def __init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.key: str | None = None
        self.type: str | None = None
        self.deadline_ms: float | None = None
        self.priority = 0
        self.traceparent: str | None = None
        self.content_length = 0
        for name, value in headers:
            if name == b"content-length":
                self.content_length = int(value)
            elif name == b"idempotency-key":
                self.key = _name("Idempotency-Key", value.decode("latin-1"), NAME_LENGTH_MAX)
            elif name == b"traceparent":
                self.traceparent = value.decode("latin-1")[:NAME_LENGTH_MAX]
            elif name.startswith(b"spillover-"):
                self._read_own(name, value)

    def _read_own(self, name: bytes, value: bytes) -> None:
        if name == b"spillover-deadline-ms":
            self.deadline_ms = _deadline_ms(value)
        elif name == b"spillover-type":
            self.type = _name("Spillover-Type", value.decode("latin-1"), TYPE_LENGTH_MAX)
        elif name == b"spillover-priority":
            if len(value) != 1 or not value.isdigit():
                raise Problem("invalid", "Spillover-Priority: expected one digit, 0 to 9")
            self.priority = int(value)


def read_request(headers: Headers, body: bytes) -> tuple[str | None, Request]:
    """(the name given, the request); without a name the request's id is still empty.

    Raises Problem `invalid`, one line that names the field.
    """
    try:
        parsed = _decode(body)
    except msgspec.ValidationError as error:
        raise Problem("invalid", f"body: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem("invalid", f"body: expected JSON: {error}") from error
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
    request = Request(
        id=RequestId(name or ""),
        keyed=name is not None,
        work=parsed.payload,
        type=type_ or "default",
        priority=headers.priority,
        traceparent=headers.traceparent,
    )
    return name, request


def answer_body(request_id: str, answer: Answer) -> bytes:
    """The body of the 200 answer."""
    return _encode(
        AnswerBody(
            id=request_id,
            result=answer.result if answer.result is not None else msgspec.Raw(b"null"),
            cluster=answer.path[-1],
            path=answer.path,
            hops=len(answer.path) - 1,
            timing_ms=Timing(
                queued=_ms(answer.queued_s),
                network=_ms(answer.network_s),
                service=_ms(answer.service_s),
                return_=_ms(answer.return_s),
                total=_ms(answer.total_s),
            ),
        )
    )


def problem_of(request_id: str, settled: Answer | Refuse) -> Problem:
    """What a client is told where there is no result."""
    if isinstance(settled, Answer):
        detail = settled.problem or _DETAILS[settled.outcome]
        return Problem(_REASONS[settled.outcome], detail, id=request_id)
    if settled.reason is Refusal.QUEUE_FULL:
        detail = "the queue is full, and no neighbor takes the request"
        return Problem("queue_full", detail, id=request_id, retry_after_s=settled.retry_after_s)
    return Problem("draining", "the cluster is draining", id=request_id)


def _ms(duration_s: float) -> float:
    return round(duration_s * 1e3, 3)


def _name(field: str, text: str, length_max: int) -> str:
    if not 0 < len(text) <= length_max or not text.isprintable():
        raise Problem("invalid", f"{field}: expected 1 to {length_max} printable characters")
    return text


def _deadline_ms(value: bytes) -> float:
    try:
        deadline_ms = float(value)
    except ValueError:
        deadline_ms = math.nan
    if not deadline_ms >= 0.0:
        raise Problem(
            "invalid", "Spillover-Deadline-Ms: expected a number of milliseconds, 0 or more"
        )
    return min(deadline_ms, DEADLINE_MS_MAX)
