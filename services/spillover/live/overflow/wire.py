"""The messages between nodes, as bytes: JSON by msgspec. Payloads and results pass through as they
came and are never decoded on the way. `protocol` says where messages go, and how to change one.

Unknown fields are ignored, and missing ones have the defaults given here; a field without a default
must be there. Durations travel in milliseconds, and a request's deadline as the time that remains.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, NamedTuple, TypeVar

import msgspec

from spillover.live.engine.write_batch import JOIN_LIMIT_BYTES, Buffer
from spillover.model.access import TENANT
from spillover.model.affinity import RanAt
from spillover.model.causes import Cause
from spillover.model.errors import UNREADABLE
from spillover.model.ids import RequestId, parts_of, request_id_of
from spillover.model.load import LoadNow
from spillover.model.ranges import (
    Ahead,
    Amount,
    Cluster,
    Milliseconds,
    Problem,
    Whole,
    Work,
)
from spillover.model.request import (
    DONE,
    KIND_LENGTH_MAX,
    NAME_LENGTH_MAX,
    TYPE_LENGTH_MAX,
    Answer,
    Outcome,
    Request,
    is_name,
)
from spillover.model.trace_context import trace_context
from spillover.model.unlike_servers import DEFAULT_TYPE

LOAD = b"spillover-load"
"""The header of a refusal between nodes that has the load of the node that refuses."""

UPSTREAM_STATUS = b"spillover-upstream-status"
"""The header of a refusal between nodes that has the status by which the service behind the node
has refused the work."""

NOTHING = msgspec.Raw(b"null")

_STATUS = re.compile(rb"[2-9][0-9]{2}")
_PAYLOAD = b'"payload":'
_NO_PAYLOAD = _PAYLOAD + b"null"

PATH_MAX = 1000
"""The most clusters in a request's path: far more than any request may visit."""

BROKEN_PROBLEM_MAX = 500
"""The most characters of the reason why an answer broke off. Why: a frame has room for as many,
each of them written as an escape."""

DEADLINE_MS_MAX = 7 * 86_400_000.0
"""The longest deadline, in milliseconds: a week. A deadline beyond it counts as none."""

Path = Annotated[tuple[Cluster, ...], msgspec.Meta(min_length=1, max_length=PATH_MAX)]
Status = Annotated[int, msgspec.Meta(ge=100, le=999)]
Priority = Annotated[int, msgspec.Meta(ge=0, le=9)]

T = TypeVar("T")


class MalformedMessage(ValueError):
    """The bytes are not a message of the expected kind."""


class Caller(NamedTuple):
    """The sender of a call: its cluster, the cluster that it means to call, and their federation. A
    field is None if the sender did not tell it: it is older than the field, or its topology has no
    name."""

    cluster: str
    to: str | None = None
    federation: str | None = None


class LoadBody(msgspec.Struct, array_like=True, frozen=True):
    """The load of a node that goes with another message: `model.load.LoadNow`."""

    epoch: Whole
    sequence: Whole
    ahead: Ahead
    load: Amount
    accepting: bool


class RanBody(msgspec.Struct, array_like=True, frozen=True):
    """The place where a request ran: `model.affinity.RanAt`."""

    place: Whole
    taken: Work
    reused: Work


BoundedReason = Annotated[str, msgspec.Meta(max_length=64)]
BoundedKind = Annotated[str, msgspec.Meta(max_length=KIND_LENGTH_MAX)]


class ForwardBody(msgspec.Struct, omit_defaults=True):
    """A request on its way. `pulled` says that the receiver has asked for work.

    `id` is the request's name, and `tenant` is the tenant that the name belongs to.
    """

    id: str
    path: Path
    remaining_ms: float
    payload: msgspec.Raw
    keyed: bool = False
    type: str = "default"
    priority: Priority = 0
    traceparent: str | None = None
    tracestate: str = ""
    load: LoadBody | None = None
    pulled: bool = False
    tenant: str = ""
    kind: BoundedKind = ""


class AnswerBody(msgspec.Struct, omit_defaults=True):
    """An answer on its way back.

    `held_ms` counts from the receipt of the request's head to the writing of these bytes.
    `reading_ms` is the part of it until the body was there, and `answer_delay_ms` the part that
    emulates the link back. A rejected request travels as one that has failed, with `rejected` set,
    and always has: another outcome would be another version.
    """

    outcome: Outcome
    path: Path
    held_ms: Milliseconds
    reading_ms: Milliseconds = 0.0
    answer_delay_ms: Milliseconds = 0.0
    result: msgspec.Raw = NOTHING
    problem: Problem | None = None
    queued_ms: Milliseconds = 0.0
    network_ms: Milliseconds = 0.0
    service_ms: Milliseconds = 0.0
    return_ms: Milliseconds = 0.0
    upstream_status: Status | None = None
    upstream_body: msgspec.Raw = NOTHING
    retry_after_ms: Milliseconds | None = None
    rejected: bool = False
    load: LoadBody | None = None
    cause: str = ""
    ran: RanBody | None = None


class CancelBody(msgspec.Struct, omit_defaults=True):
    """The caller no longer wants the request of this id, which it has handed on."""

    id: str
    tenant: str = ""


class CancelAnswer(msgspec.Struct):
    """Whether a request of this id and this caller is under way here. If so, it is cancelled, and
    the answer to its forward tells how it ended."""

    found: bool


class RefusedBody(msgspec.Struct, omit_defaults=True):
    """The reason why a request that was handed over surely has not run.

    `reason` is for readers of the wire, `load` is the load of the node that refuses, and
    `upstream_status` the status by which the service behind that node has refused the work.
    """

    reason: BoundedReason = ""
    load: LoadBody | None = None
    upstream_status: Annotated[int, msgspec.Meta(ge=200, le=999)] | None = None


class BrokenBody(msgspec.Struct, omit_defaults=True):
    """The reason why the rest of an answer does not come: the `cause`, and the `problem` in
    words."""

    cause: str = ""
    problem: Problem = ""


class Forwarded(NamedTuple):
    """A forward as it is read. `remaining_s` is what remains of the deadline."""

    request: Request
    remaining_s: float
    load: LoadNow | None
    pulled: bool


class Stay(NamedTuple):
    """How long a request was at a neighbor, in seconds of the neighbor's clock.

    `held_s` is the whole stay. `reading_s` is the part until the request's body was there, and
    `answer_delay_s` the part that emulated the link back. The time that the sender waited beyond
    `held_s` was spent on the network, there and back.
    """

    held_s: float
    reading_s: float
    answer_delay_s: float

    def legs(self, decided_s: float, sent_s: float, received_s: float) -> tuple[float, float]:
        """Returns how long the request was on its way there, and its answer on the way back, in
        seconds."""
        round_trip_s = max(0.0, received_s - sent_s - self.held_s)
        there_s = (sent_s - decided_s) + round_trip_s / 2 + self.reading_s
        return there_s, self.answer_delay_s + round_trip_s / 2


CLOCKS_S = 10.0
"""The time, in seconds, by which a time that a neighbor tells may exceed the wait that was measured
here. Clocks differ, and one may have been stopped."""

UNTIMED = Stay(0.0, 0.0, 0.0)
"""The times of an answer that states times beyond their ranges."""

_NO_TIME = msgspec.Raw(b"0")

TIMES = (
    *("held_ms", "reading_ms", "answer_delay_ms", "queued_ms", "network_ms", "service_ms"),
    *("return_ms", "retry_after_ms"),
)

_CAUSES = {cause.value: cause for cause in Cause}
"""The known causes by name. Any other cause, of a node of another version, is ignored."""

_encode = msgspec.json.Encoder().encode
_decode_forward = msgspec.json.Decoder(ForwardBody).decode
_decode_answer = msgspec.json.Decoder(AnswerBody).decode
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_load = msgspec.json.Decoder(LoadBody).decode
_decode_refused = msgspec.json.Decoder(RefusedBody).decode
_decode_broken = msgspec.json.Decoder(BrokenBody).decode
_decode_cancel = msgspec.json.Decoder(CancelBody).decode
_decode_cancel_answer = msgspec.json.Decoder(CancelAnswer).decode


def decoded(decode: Callable[[bytes], T], message: bytes) -> T:
    """Returns what is read of a message. Raises MalformedMessage."""
    try:
        return decode(message)
    except UNREADABLE as error:
        raise MalformedMessage(str(error)) from error


def encode_forward(
    request: Request,
    remaining_s: float,
    load: LoadNow | None = None,
    *,
    pulled: bool = False,
    payload: msgspec.Raw | None = None,
) -> tuple[Buffer, ...]:
    """Returns a request as it is handed on, in parts that follow each other, so that a large
    payload is sent without a copy. The payload is the request's work unless another one is
    given."""
    payload = request.work if payload is None else payload
    is_large = len(memoryview(payload)) > JOIN_LIMIT_BYTES
    trace = request.trace
    tenant, name = parts_of(request.id)
    remaining_ms = remaining_s * 1e3
    if remaining_ms > DEADLINE_MS_MAX:  # noqa: PLR1730 - on the way of every forward
        remaining_ms = DEADLINE_MS_MAX
    body = ForwardBody(
        id=name,
        path=request.path,
        remaining_ms=remaining_ms,
        payload=NOTHING if is_large else payload,
        keyed=request.keyed,
        type=request.type,
        priority=request.priority,
        traceparent=None if trace is None else trace.parent,
        tracestate="" if trace is None else trace.state,
        load=None if load is None else LoadBody(*load),
        pulled=pulled,
        tenant=tenant,
        kind=request.kind,
    )
    envelope = _encode(body)
    if not is_large:
        return (envelope,)
    before, _, after = envelope.partition(_NO_PAYLOAD)  # no string holds a bare quote
    return before + _PAYLOAD, memoryview(payload), after


def decode_forward(body: bytes) -> Forwarded:
    """Returns the request that a message hands on. Raises MalformedMessage; what a client may not
    send, a neighbor may not hand on."""
    try:
        forward = _decode_forward(body)
    except UNREADABLE as error:
        raise MalformedMessage(str(error)) from error
    request_id = _id_of(forward.id, forward.tenant)
    if forward.type != DEFAULT_TYPE and not is_name(forward.type, TYPE_LENGTH_MAX):
        raise MalformedMessage(f"type: expected 1 to {TYPE_LENGTH_MAX} printable characters")
    parent = forward.traceparent
    request = Request(
        id=request_id,
        keyed=forward.keyed,
        work=forward.payload,
        path=forward.path,
        type=forward.type,
        priority=forward.priority,
        trace=None if parent is None else trace_context(parent, forward.tracestate),
        size_bytes=len(body),
        kind=forward.kind,
    )
    load = None if forward.load is None else load_of(forward.load)
    remaining_ms = max(-DEADLINE_MS_MAX, min(forward.remaining_ms, DEADLINE_MS_MAX))
    return Forwarded(request, remaining_ms / 1e3, load, forward.pulled)


def load_of(load: LoadBody) -> LoadNow:
    """Returns the load that a body states."""
    return LoadNow(load.epoch, load.sequence, load.ahead, load.load, load.accepting)


def encode_load(load: LoadNow) -> bytes:
    """Returns a load as the value of the header LOAD."""
    return _encode(LoadBody(*load))


def decode_status(told: bytes | None) -> int | None:
    """Returns the status that the header UPSTREAM_STATUS states; None if it is no status."""
    return int(told) if told is not None and _STATUS.fullmatch(told) else None


def decode_load(told: bytes | None) -> LoadNow | None:
    """Returns the load that the header LOAD states; None if it is missing or not understood."""
    if told is None:
        return None
    try:
        return load_of(_decode_load(told))
    except UNREADABLE:
        return None


def encode_refused(reason: str, load: LoadNow | None = None, status: int | None = None) -> bytes:
    """Returns why a request that was handed over is refused."""
    return _encode(RefusedBody(reason, None if load is None else LoadBody(*load), status))


def decode_refused(told: bytes) -> tuple[LoadNow | None, int | None]:
    """Returns the load and the status that a refusal states. Each is None if it is missing or not
    understood."""
    try:
        body = _decode_refused(told)
    except UNREADABLE:
        return None, None
    return None if body.load is None else load_of(body.load), body.upstream_status


def encode_broken(cause: Cause, problem: str | None) -> bytes:
    """Returns the reason why the rest of an answer does not come, cut to BROKEN_PROBLEM_MAX
    characters."""
    return _encode(BrokenBody(cause.value, _characters((problem or "")[:BROKEN_PROBLEM_MAX])))


def decode_broken(told: bytes) -> tuple[Cause | None, str | None]:
    """Returns the cause, and the problem in words. Each is None if it is missing or not
    understood."""
    try:
        body = _decode_broken(told)
    except UNREADABLE:
        return None, None
    return _CAUSES.get(body.cause), body.problem or None


def _characters(words: str) -> str:
    """Returns the words with a `?` for each half of a surrogate pair, which is no character and
    cannot be encoded."""
    return words.encode(errors="replace").decode()


def _id_of(name: str, tenant: str) -> RequestId:
    """Returns the id of a request that has this name and tenant. Raises MalformedMessage."""
    if not is_name(name, NAME_LENGTH_MAX):
        raise MalformedMessage(f"id: expected 1 to {NAME_LENGTH_MAX} printable characters")
    if not tenant:
        return RequestId(name)
    if not TENANT.fullmatch(tenant):
        raise MalformedMessage("tenant: expected the id of a tenant")
    return request_id_of(tenant, name)


def encode_answer(answer: Answer, stay: Stay) -> bytes:
    """Returns an answer as it goes back along the path. Its problem may be the words of a user's
    error."""
    rejected, retry_after_s = answer.outcome is Outcome.REJECTED, answer.retry_after_s
    return _encode(
        AnswerBody(
            outcome=Outcome.FAILED if rejected else answer.outcome,
            path=answer.path,
            held_ms=stay.held_s * 1e3,
            reading_ms=stay.reading_s * 1e3,
            answer_delay_ms=stay.answer_delay_s * 1e3,
            result=NOTHING if answer.result is None else answer.result,
            problem=None if answer.problem is None else _characters(answer.problem),
            queued_ms=answer.queued_s * 1e3,
            network_ms=answer.network_s * 1e3,
            service_ms=answer.service_s * 1e3,
            return_ms=answer.return_s * 1e3,
            upstream_status=answer.upstream_status,
            upstream_body=NOTHING if answer.upstream_body is None else answer.upstream_body,
            retry_after_ms=None if retry_after_s is None else retry_after_s * 1e3,
            rejected=rejected,
            load=None if answer.load is None else LoadBody(*answer.load),
            cause=answer.cause or "",
            ran=None if answer.ran is None else RanBody(*answer.ran),
        )
    )


def decode_answer(body: bytes) -> tuple[Answer, Stay]:
    """Returns an answer, and the request's stay at the neighbor. The stay is UNTIMED if only times
    are wrong with the answer. Raises MalformedMessage."""
    is_timed = True
    try:
        message = _decode_answer(body)
    except UNREADABLE:
        message, is_timed = decoded(_decode_answer, without_times(body)), False
    answer = Answer(
        Outcome.REJECTED if message.rejected else message.outcome,
        message.path,
        message.result,
        message.problem,
        message.queued_ms / 1e3,
        message.network_ms / 1e3,
        message.service_ms / 1e3,
        message.return_ms / 1e3,
    )
    if message.load is not None:
        answer.load = load_of(message.load)
    if (ran := message.ran) is not None:
        answer.ran = RanAt(ran.place, ran.taken, ran.reused)
    if message.outcome is not DONE:
        answer.upstream_status = message.upstream_status
        if message.upstream_body != NOTHING:
            answer.upstream_body = message.upstream_body
        if message.retry_after_ms is not None:
            answer.retry_after_s = message.retry_after_ms / 1e3
        answer.cause = _CAUSES.get(message.cause)
    if not is_timed:
        return answer, UNTIMED
    stay = Stay(message.held_ms / 1e3, message.reading_ms / 1e3, message.answer_delay_ms / 1e3)
    return answer, stay


def without_times(body: bytes) -> bytes:
    """Returns a message that could not be read, without its times, so that no answer is lost for a
    number that says how long it took. Raises MalformedMessage."""
    fields = decoded(_decode_fields, body)
    return _encode(fields | {name: _NO_TIME for name in TIMES if name in fields})


def within_wait(answer: Answer, stay: Stay, waited_s: float) -> Stay:
    """Returns the stay, or UNTIMED if it or the answer has times that are longer than the wait for
    the answer, with an allowance for clocks. The times of the answer are then cut to the wait."""
    told_s = answer.queued_s + answer.network_s + answer.service_s
    if told_s + stay.reading_s + stay.answer_delay_s <= waited_s + CLOCKS_S:
        return stay
    share = waited_s / max(told_s, waited_s)
    answer.queued_s *= share
    answer.network_s *= share
    answer.service_s *= share
    return UNTIMED


def encode_cancel(request_id: RequestId) -> bytes:
    """Returns the message that cancels a request which was handed on."""
    tenant, name = parts_of(request_id)
    return _encode(CancelBody(name, tenant))


def decode_cancel(body: bytes) -> RequestId:
    """Returns the id of the request. Raises MalformedMessage."""
    cancel = decoded(_decode_cancel, body)
    return _id_of(cancel.id, cancel.tenant)


def encode_cancel_answer(*, found: bool) -> bytes:
    """Returns the answer that says whether there was such a request under way."""
    return _encode(CancelAnswer(found))


def decode_cancel_answer(body: bytes) -> bool:
    """Returns whether there was such a request under way. Raises MalformedMessage."""
    return decoded(_decode_cancel_answer, body).found
