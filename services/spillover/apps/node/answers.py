"""The answers that clients and neighbors get at the end of a request: its result, why there is
none, or that there is a bug."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from spillover.apps.http.exchange import NO_ROOM, Exchange
from spillover.apps.http.problems import BUG, Problem
from spillover.core.overflow.events import Refuse
from spillover.core.overflow.quotas import Excess
from spillover.live.overflow.shell import NodeShell
from spillover.live.overflow.wire import NOTHING
from spillover.live.process.logs import Message, OncePerPeriod
from spillover.model.ids import name_of, told_inside
from spillover.model.request import Answer, Outcome, Refusal

JSON_LINE = b"content-type: application/json\r\n"

WORTH_BYTES = 16_384
"""The least size, in bytes, of an answer that is encoded once: a smaller one is copied into each
write anyway."""

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class Timing(msgspec.Struct):
    """The field `timing_ms` of an answer; total = queued + network + service."""

    queued: float
    network: float
    service: float
    return_: float = msgspec.field(name="return")
    total: float


class AnswerBody(msgspec.Struct):
    """The body of a 200 answer (docs/http.md)."""

    id: str
    result: msgspec.Raw
    cluster: str
    path: tuple[str, ...]
    hops: int
    timing_ms: Timing


encode = msgspec.json.Encoder().encode

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
    Refusal.RATE_LIMITED: ("rate_limited", "the tenant's quota is used up at this cluster"),
    Refusal.BLOCKED: ("blocked", "no server that fits the request has a place for it now"),
    Refusal.UNKNOWN_TYPE: ("unknown_type", "no cluster in reach serves its type"),
}

_FINAL = frozenset({Refusal.DRAINING, Refusal.TOO_LARGE, Refusal.UNKNOWN_TYPE})
"""The refusals after which it does not help to try again."""

TYPES_MAX = 20
"""The most served types that a problem names."""


def answer_fields(request_id: str, answer: Answer) -> dict[str, object]:
    """Returns the fields of the 200 answer, by name."""
    return msgspec.structs.asdict(answer_body(request_id, answer))


def answer_body(request_id: str, answer: Answer) -> AnswerBody:
    """Returns the body of the 200 answer, for `encode`."""
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
    """Returns the problem that a client gets where there is no result."""
    if isinstance(settled, Answer):
        detail = settled.problem or _DETAILS[settled.outcome]
        problem = Problem(
            _REASONS[settled.outcome], detail, id=request_id, retry_after_s=settled.retry_after_s
        )
        problem.surely_not_run = settled.has_not_run
        if settled.upstream_status is not None:
            problem.more["upstream_status"] = settled.upstream_status
            if settled.outcome is Outcome.REJECTED and 400 <= settled.upstream_status <= 499:
                problem.own_status = settled.upstream_status
        if settled.upstream_body is not None:
            problem.more["upstream_body"] = settled.upstream_body
        return problem
    reason, detail = _REFUSALS[settled.reason]
    retry_after_s = None if settled.reason in _FINAL else settled.retry_after_s
    problem = Problem(
        reason, detail, id=request_id, retry_after_s=retry_after_s, surely_not_run=True
    )
    if settled.reason is Refusal.UNKNOWN_TYPE:
        named = settled.types[:TYPES_MAX]
        more = ", ..." if len(settled.types) > TYPES_MAX else ""
        problem.detail = f"type: expected one that is served: {', '.join(named)}{more}"
        problem.more["types"] = named
    return problem


def status_of(settled: Answer | Refuse) -> tuple[int, str]:
    """Returns the status that a client gets where there is no result, and the reason."""
    problem = problem_of("", settled)
    return problem.status, problem.reason


def with_lines(problem: Problem, lines: bytes) -> Problem:
    """Returns the problem, with these lines of a header."""
    for line in lines.splitlines():
        header, _, value = line.partition(b": ")
        problem.headers.append((header, value))
    return problem


def rate_limited(name: str, excess: Excess) -> Problem:
    """Returns why a tenant may not make this request now."""
    detail = f"the tenant's quota is used up at this cluster ({excess.limit})"
    problem = Problem("rate_limited", detail, name or None, excess.retry_after_s)
    problem.more["limit"] = excess.limit
    return problem


def no_results(name: str) -> Problem:
    """Returns why a node that drains takes no request whose result is to be fetched later: the node
    may have ended by then."""
    return Problem("draining", "the cluster is draining", name or None, retry_after_s=1.0)


def node_ended(name: str, *, has_not_run: bool) -> Problem:
    """Returns the problem for callers that still wait when the node ends. A neighbor may decide a
    keyed request again, and any that surely has not run: it takes this for a refusal."""
    if has_not_run:
        detail = "the node ended before the request was begun: it has not run"
        return Problem("draining", detail, id=name)
    detail = "the node ended before the work did; whether it was done is not known"
    return Problem("outcome_unknown", detail, id=name)


def answer_internal_error(shell: NodeShell, exchange: Exchange, request_id: str | None) -> None:
    """Answers with a bug, and logs it with the story of the request if that is known. It has to be
    called where the exception is handled."""
    story = [] if request_id is None else shell.machine.decider.log.tell(request_id)
    _log.exception(
        Message(
            "internal error",
            request_id=None if request_id is None else told_inside(request_id),
            method=exchange.method,
            path=exchange.path,
            story=story or None,
        )
    )
    internal = Problem("internal", BUG, id=None if request_id is None else name_of(request_id))
    if story:
        internal.more["story"] = story
    exchange.refuse(internal)


class EncodedOnce:
    """The bodies of large answers, each encoded once for all who get it in a turn of the loop: a
    thousand clients that wait for a result of a mebibyte must not hold a thousand copies of it."""

    __slots__ = ("_answer", "_body", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._answer: Answer | None = None
        self._body = b""

    def body(self, answer: Answer, encoded: Callable[[], bytes]) -> bytes:
        """Returns what `encoded` gives, or gave for the same answer before in this turn."""
        if answer is self._answer:
            return self._body
        body = encoded()
        if len(body) > WORTH_BYTES:
            if self._answer is None:
                self._loop.call_soon(self._forget)
            self._answer, self._body = answer, body
        return body

    def _forget(self) -> None:
        self._answer, self._body = None, b""


def why_not_ready(shell: NodeShell) -> Problem | None:
    """Returns why balancers should send requests elsewhere; None if they need not."""
    machine = shell.machine
    if machine.draining:
        return Problem("draining", "the cluster is draining")
    if machine.servers.down and not any(machine.neighbors.accepting):
        return Problem("no_servers", "nothing here runs requests, and no neighbor takes them")
    return None
