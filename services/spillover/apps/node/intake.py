"""From the bytes of `POST /requests` to a Request, and from an Answer to bytes.

All that a client can get wrong is found here, before the machine hears of the request.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from spillover.apps.node.exchange import NO_ROOM, Framing
from spillover.apps.node.preferences import MILLISECONDS, Preferences, read_preferences
from spillover.apps.node.problems import Problem
from spillover.apps.node.request_body import fault_of, read_body
from spillover.core.overflow.events import Refuse
from spillover.live.overflow.wire import DEADLINE_MS_MAX, NOTHING
from spillover.model.ids import RequestId
from spillover.model.request import (
    NAME_LENGTH_MAX,
    TYPE_LENGTH_MAX,
    Answer,
    Outcome,
    Refusal,
    Request,
    is_name,
    is_traceparent,
)


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


_encode = msgspec.json.Encoder().encode

_REASONS = {
    Outcome.FAILED: "handler_failed",
    Outcome.REJECTED: "handler_rejected",
    Outcome.EXPIRED: "deadline_exceeded",
    Outcome.CANCELLED: "cancelled",
    Outcome.UNKNOWN: "outcome_unknown",
}

_DETAILS = {
    Outcome.FAILED: "the handler failed",
    Outcome.REJECTED: "the handler rejected the request",
    Outcome.EXPIRED: "the deadline passed before the work was done",
    Outcome.CANCELLED: "the request was cancelled",
    Outcome.UNKNOWN: "whether the work was done is not known; it will not be tried again",
}


_REFUSALS = {
    Refusal.QUEUE_FULL: ("queue_full", "the queue is full, and no neighbor takes the request"),
    Refusal.MEMORY_FULL: ("queue_full", NO_ROOM),
    Refusal.TOO_LARGE: (
        "too_large",
        "the request alone is larger than all that the cluster may hold (held_limit_bytes)",
    ),
    Refusal.DRAINING: ("draining", "the cluster is draining"),
    Refusal.NO_SERVERS: ("no_servers", "nothing behind this cluster can run requests for now"),
    Refusal.DEGRADED: ("no_servers", "work fails here, and goes elsewhere for now"),
    Refusal.TOO_LATE: (
        "deadline_exceeded",
        "it would wait in the queue beyond its deadline, and no neighbor takes the request",
    ),
}


_MEANT = frozenset(
    {
        b"content-length",
        b"expect",
        b"idempotency-key",
        b"prefer",
        b"spillover-deadline-ms",
        b"spillover-priority",
        b"spillover-type",
        b"traceparent",
    }
)

NO_PREFERENCES = Preferences()

_SAID_ONCE = _MEANT - {b"expect", b"prefer", b"traceparent"}


class Headers:
    """The request headers that mean something here. Others, hop and path headers from outside
    among them, are not even looked at."""

    __slots__ = (
        "_given",
        "deadline_ms",
        "key",
        "preferences",
        "priority",
        "traceparent",
        "type",
    )

    def __init__(self) -> None:
        self._given: dict[bytes, bytes] = {}
        self.key: str | None = None
        self.type: str | None = None
        self.deadline_ms: float | None = None
        self.priority = 0
        self.preferences = NO_PREFERENCES
        self.traceparent: str | None = None

    @property
    def framing(self) -> Framing:
        return Framing.of(self._given)

    def read(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Raises Problem `invalid`; the key, if it is valid, has been read even then."""
        meant = [header for header in headers if header[0] in _MEANT]
        self._given = given = dict(meant)
        if len(meant) == 1 and b"content-length" in given:
            return  # as most come
        differing = _join(meant, given) if len(given) < len(meant) else None
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
            text = _text(traceparent)
            self.traceparent = text if is_traceparent(text) else None


def read_request(headers: Headers, body: bytes) -> Request:
    """Returns the request; keyed if it came with a name, else its id is still empty.

    Raises Problem `invalid`, one line that names the field.
    """
    try:
        parsed = read_body(body)
    except msgspec.ValidationError as error:
        raise Problem("invalid", fault_of(body, error)) from error
    except (ValueError, RecursionError) as error:  # bad JSON, bad UTF-8; nested too deep
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
    return Request(  # by position: by name takes three times as long
        RequestId(name or ""),
        name is not None,
        parsed.payload,
        (),
        type_ or "default",
        headers.priority,
        headers.traceparent,
        len(body),
    )


def answer_fields(request_id: str, answer: Answer) -> dict[str, object]:
    """Returns the fields of the 200 answer, by name."""
    return msgspec.structs.asdict(_answer_body(request_id, answer))


def answer_body(request_id: str, answer: Answer) -> bytes:
    """Returns the body of the 200 answer."""
    return _encode(_answer_body(request_id, answer))


def _answer_body(request_id: str, answer: Answer) -> AnswerBody:
    path = answer.path
    queued_s, network_s, service_s = answer.queued_s, answer.network_s, answer.service_s
    total_s = queued_s + network_s + service_s
    return AnswerBody(
        request_id,
        NOTHING if answer.result is None else answer.result,
        path[-1],
        path,
        len(path) - 1,
        Timing(
            round(queued_s * 1e3, 3) if queued_s else 0.0,
            round(network_s * 1e3, 3) if network_s else 0.0,
            round(service_s * 1e3, 3) if service_s else 0.0,
            round(answer.return_s * 1e3, 3) if answer.return_s else 0.0,
            round(total_s * 1e3, 3) if total_s else 0.0,
        ),
    )


def problem_of(request_id: str, settled: Answer | Refuse) -> Problem:
    """Returns what a client is told where there is no result."""
    if isinstance(settled, Answer):
        detail = settled.problem or _DETAILS[settled.outcome]
        problem = Problem(
            _REASONS[settled.outcome], detail, id=request_id, retry_after_s=settled.retry_after_s
        )
        if settled.upstream_status is not None:
            problem.more["upstream_status"] = settled.upstream_status
            if settled.outcome is Outcome.REJECTED and 400 <= settled.upstream_status <= 499:
                problem.own_status = settled.upstream_status
        if settled.upstream_body is not None:
            problem.more["upstream_body"] = settled.upstream_body
        return problem
    reason, detail = _REFUSALS[settled.reason]
    is_final = settled.reason in (Refusal.DRAINING, Refusal.TOO_LARGE)
    retry_after_s = None if is_final else settled.retry_after_s
    return Problem(reason, detail, id=request_id, retry_after_s=retry_after_s)


def _join(meant: list[tuple[bytes, bytes]], given: dict[bytes, bytes]) -> bytes | None:
    """Where a header comes several times: put into `given` what is meant, lines of a list as one
    list. Returns the name of one that says different things and may not, which is taken out."""
    given.clear()
    differing: bytes | None = None
    for name, value in meant:
        first = given.setdefault(name, value)
        if first is value:
            continue
        if name == b"prefer":
            given[name] = first + b"," + value
        elif name == b"traceparent":
            given[name] = b""  # not one of them is valid (W3C Trace Context, section 3.2)
        elif first != value and name in _SAID_ONCE:
            differing = differing or name
    if differing is not None:
        del given[differing]
    return differing


def _text(value: bytes) -> str:
    """A header's value as text: UTF-8, else latin-1, as older clients send it."""
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
