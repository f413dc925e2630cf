"""What nodes say to each other, as bytes. JSON by msgspec; payloads and results pass through as
they came, never decoded on the way. Where messages go, and how to change one, is in `protocol`.

Fields that are not known here are ignored, missing ones have the defaults given here; those without
one must be there. Durations travel in milliseconds, a request's deadline as what remains of it.
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
"""A header of refusals between nodes: the load of the one that refuses."""

UPSTREAM_STATUS = b"spillover-upstream-status"
"""Another: by which the service behind it has refused the work."""

NOTHING = msgspec.Raw(b"null")

_STATUS = re.compile(rb"[2-9][0-9]{2}")
_PAYLOAD = b'"payload":'
_NO_PAYLOAD = _PAYLOAD + b"null"

PATH_MAX = 1000
"""Clusters that a request was at: far more than any may visit."""

BROKEN_PROBLEM_MAX = 500
"""The longest words for why an answer broke off. Why: a frame has a place for as many, each of them
written as an escape."""

DEADLINE_MS_MAX = 7 * 86_400_000.0
"""A week: a deadline beyond it is none."""

Path = Annotated[tuple[Cluster, ...], msgspec.Meta(min_length=1, max_length=PATH_MAX)]
Status = Annotated[int, msgspec.Meta(ge=100, le=999)]
Priority = Annotated[int, msgspec.Meta(ge=0, le=9)]

T = TypeVar("T")


class MalformedMessage(ValueError):
    """These bytes are not such a message."""


class Caller(NamedTuple):
    """Who calls: its cluster, the one that it means to call, and their federation. What is None was
    not told: it is older than these fields, or its topology has no name."""

    cluster: str
    to: str | None = None
    federation: str | None = None


UNSAID = Caller("")
"""In messages on a connection that has said who calls."""


class LoadBody(msgspec.Struct, array_like=True, frozen=True):
    """What a node says of its load with another message: `model.load.LoadNow`."""

    epoch: Whole
    sequence: Whole
    ahead: Ahead
    load: Amount
    accepting: bool


class RanBody(msgspec.Struct, array_like=True, frozen=True):
    """Where a request ran: `model.affinity.RanAt`."""

    place: Whole
    taken: Work
    reused: Work


BoundedReason = Annotated[str, msgspec.Meta(max_length=64)]
BoundedKind = Annotated[str, msgspec.Meta(max_length=KIND_LENGTH_MAX)]


class ForwardBody(msgspec.Struct, omit_defaults=True):
    """A request on its way, `pulled` if the neighbor has asked for work. In version 1 `sender` is
    the cluster that hands it on, `to` the one that it means to hand it to, `federation` theirs.
    `id` is its name, and `tenant` whose that is."""

    id: str
    path: Path
    remaining_ms: float
    payload: msgspec.Raw
    keyed: bool = False
    type: str = "default"
    priority: Priority = 0
    traceparent: str | None = None
    tracestate: str = ""
    sender: str = ""
    to: str | None = None
    federation: str | None = None
    load: LoadBody | None = None
    pulled: bool = False
    tenant: str = ""
    kind: BoundedKind = ""


class AnswerBody(msgspec.Struct, omit_defaults=True):
    """An answer on its way back. `held_ms` counts from the receipt of the request's head to the
    writing of these bytes; `reading_ms` is the part of it until the body was there, and
    `answer_delay_ms` the part that emulates the link back. What was rejected travels as what has
    failed and is `rejected`: some nodes of version 1 know no such outcome, and an answer that they
    cannot read would be lost."""

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
    """Who calls wants the request of this id, which it has handed on, no longer. In version 1
    `sender`, `to` and `federation` say who that is."""

    id: str
    sender: str = ""
    to: str | None = None
    federation: str | None = None
    tenant: str = ""


class CancelAnswer(msgspec.Struct):
    """Whether a request of this id from who calls is under way here; if so, it is cancelled, and
    the answer to its forward tells how it ended."""

    found: bool


class RefusedBody(msgspec.Struct, omit_defaults=True):
    """Why a request that was handed over surely has not run: `reason` is for whoever looks at the
    wire, `load` that of the one who refuses, `upstream_status` that by which the service behind it
    has refused the work."""

    reason: BoundedReason = ""
    load: LoadBody | None = None
    upstream_status: Annotated[int, msgspec.Meta(ge=200, le=999)] | None = None


class BrokenBody(msgspec.Struct, omit_defaults=True):
    """Why no more of an answer comes: the `cause`, and the `problem` in words."""

    cause: str = ""
    problem: Problem = ""


class Forwarded(NamedTuple):
    """A forward as it is read: `caller` if the message says who that is, `remaining_s` of the
    deadline."""

    caller: Caller | None
    request: Request
    remaining_s: float
    load: LoadNow | None
    pulled: bool


class Stay(NamedTuple):
    """How long a request was at a neighbor, by the neighbor's clock: `held_s` in all, in it
    `reading_s` until its body was there and `answer_delay_s` emulating the link back. What the
    sender waited beyond `held_s` was the network, there and back."""

    held_s: float
    reading_s: float
    answer_delay_s: float

    def legs(self, decided_s: float, sent_s: float, received_s: float) -> tuple[float, float]:
        """Returns how long a request was on its way there, and what came of it on its way back."""
        round_trip_s = max(0.0, received_s - sent_s - self.held_s)
        there_s = (sent_s - decided_s) + round_trip_s / 2 + self.reading_s
        return there_s, self.answer_delay_s + round_trip_s / 2


CLOCKS_S = 10.0
"""What a neighbor tells of times may exceed what was waited here by so much: clocks differ, and one
may have been stopped."""

UNTIMED = Stay(0.0, 0.0, 0.0)
"""The times of an answer whose own are beyond their ranges."""

_NO_TIME = msgspec.Raw(b"0")

TIMES = (
    *("held_ms", "reading_ms", "answer_delay_ms", "queued_ms", "network_ms", "service_ms"),
    *("return_ms", "retry_after_ms"),
)

_CAUSES = {cause.value: cause for cause in Cause}
"""What a node of another version tells besides is nobody's business here."""

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
    caller: Caller,
    remaining_s: float,
    load: LoadNow | None = None,
    *,
    pulled: bool = False,
    payload: msgspec.Raw | None = None,
) -> tuple[Buffer, ...]:
    """Returns a request as `caller` hands it on, UNSAID but in version 1. In parts that follow each
    other: a large payload is sent as it lies. It is the request's work unless another is given."""
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
        sender=caller.cluster,
        to=caller.to,
        federation=caller.federation,
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
    """Raises MalformedMessage; what a client may not send, a neighbor may not hand on."""
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
    caller = Caller(forward.sender, forward.to, forward.federation) if forward.sender else None
    load = None if forward.load is None else load_of(forward.load)
    remaining_ms = max(-DEADLINE_MS_MAX, min(forward.remaining_ms, DEADLINE_MS_MAX))
    return Forwarded(caller, request, remaining_ms / 1e3, load, forward.pulled)


def load_of(load: LoadBody) -> LoadNow:
    """Returns what such a body says."""
    return LoadNow(load.epoch, load.sequence, load.ahead, load.load, load.accepting)


def encode_load(load: LoadNow) -> bytes:
    """Returns a load as the header LOAD has it."""
    return _encode(LoadBody(*load))


def decode_status(told: bytes | None) -> int | None:
    """Returns what the header UPSTREAM_STATUS says; None where that is no status."""
    return int(told) if told is not None and _STATUS.fullmatch(told) else None


def decode_load(told: bytes | None) -> LoadNow | None:
    """Returns what the header says; None where it says nothing that is understood."""
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
    """Returns the load and the status that a refusal tells; None for what it does not, or not so
    that it is understood."""
    try:
        body = _decode_refused(told)
    except UNREADABLE:
        return None, None
    return None if body.load is None else load_of(body.load), body.upstream_status


def encode_broken(cause: Cause, problem: str | None) -> bytes:
    """Returns why no more of an answer comes, cut to BROKEN_PROBLEM_MAX characters, with `?` for
    what is none (half of a surrogate pair)."""
    told = (problem or "")[:BROKEN_PROBLEM_MAX].encode(errors="replace").decode()
    return _encode(BrokenBody(cause.value, told))


def decode_broken(told: bytes) -> tuple[Cause | None, str | None]:
    """Returns the cause, and the problem in words; None for what is not told, or not so that it is
    understood."""
    try:
        body = _decode_broken(told)
    except UNREADABLE:
        return None, None
    return _CAUSES.get(body.cause), body.problem or None


def _id_of(name: str, tenant: str) -> RequestId:
    """Returns the id of a request that a message names so. Raises MalformedMessage."""
    if not is_name(name, NAME_LENGTH_MAX):
        raise MalformedMessage(f"id: expected 1 to {NAME_LENGTH_MAX} printable characters")
    if not tenant:
        return RequestId(name)
    if not TENANT.fullmatch(tenant):
        raise MalformedMessage("tenant: expected the id of a tenant")
    return request_id_of(tenant, name)


def encode_answer(answer: Answer, stay: Stay) -> bytes:
    """Returns an answer as it goes back along the path."""
    rejected, retry_after_s = answer.outcome is Outcome.REJECTED, answer.retry_after_s
    return _encode(
        AnswerBody(
            outcome=Outcome.FAILED if rejected else answer.outcome,
            path=answer.path,
            held_ms=stay.held_s * 1e3,
            reading_ms=stay.reading_s * 1e3,
            answer_delay_ms=stay.answer_delay_s * 1e3,
            result=NOTHING if answer.result is None else answer.result,
            problem=answer.problem,
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
    """Returns an answer, and the request's stay at the neighbor: UNTIMED where nothing is wrong
    with the answer but times. Raises MalformedMessage."""
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
    """Returns a message that could not be read, without its times: nobody is to lose an answer for
    a number that says how long it took. Raises MalformedMessage."""
    fields = decoded(_decode_fields, body)
    return _encode(fields | {name: _NO_TIME for name in TIMES if name in fields})


def within_wait(answer: Answer, stay: Stay, waited_s: float) -> Stay:
    """Returns the stay, unless a neighbor tells of times at its end and beyond that are longer than
    its answer was waited for, clocks apart: those of the answer become as short, and of the stay is
    nothing known."""
    told_s = answer.queued_s + answer.network_s + answer.service_s
    if told_s + stay.reading_s + stay.answer_delay_s <= waited_s + CLOCKS_S:
        return stay
    share = waited_s / max(told_s, waited_s)
    answer.queued_s *= share
    answer.network_s *= share
    answer.service_s *= share
    return UNTIMED


def encode_cancel(request_id: RequestId, caller: Caller) -> bytes:
    """Returns the message that a request which `caller` has handed on is to be cancelled; UNSAID
    but in version 1."""
    tenant, name = parts_of(request_id)
    return _encode(CancelBody(name, caller.cluster, caller.to, caller.federation, tenant))


def decode_cancel(body: bytes) -> tuple[Caller | None, RequestId]:
    """(caller if it is said, id). Raises MalformedMessage."""
    cancel = decoded(_decode_cancel, body)
    caller = Caller(cancel.sender, cancel.to, cancel.federation) if cancel.sender else None
    return caller, _id_of(cancel.id, cancel.tenant)


def encode_cancel_answer(*, found: bool) -> bytes:
    """Returns the answer that says whether there was such a request under way."""
    return _encode(CancelAnswer(found))


def decode_cancel_answer(body: bytes) -> bool:
    """Returns whether there was such a request under way. Raises MalformedMessage."""
    return decoded(_decode_cancel_answer, body).found
