"""The messages between clients and nodes over HTTP, and the meaning of answers (docs/http.md).
Other modules send them and decide what follows from an error. Messages of errors say who is to
blame (the client, the node, the handler, the network) and what to do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias
from urllib.parse import quote

import msgspec

from spillover.live.http1.outgoing import Response
from spillover.model.arguments import wrong
from spillover.model.errors import (
    UNREADABLE,
    Cancelled,
    Expired,
    Failed,
    InputError,
    NotANode,
    NotDelivered,
    OutcomeUnknown,
    PeerError,
    Refused,
    Rejected,
    Unreachable,
)
from spillover.model.request import NAME_LENGTH_MAX, TYPE_LENGTH_MAX, is_name

PATH = "/requests"
HEALTH_PATH = "/healthz"
JSON_HEADER = (b"content-type", b"application/json")
CLUSTER = b"spillover-cluster"
"""The header by which a node of several names its cluster."""
ASYNCHRONOUS = (b"prefer", b"respond-async")

DEADLINE_S_MAX = 7 * 24 * 3600.0
SAID_LENGTH_MAX = 400
"""The most characters of an answer that errors quote."""

JobState: TypeAlias = Literal[
    "queued", "running", "forwarded", "done", "failed", "expired", "cancelled", "unknown"
]
"""The state of a job, or how it ended. A node that has never seen a job, or has forgotten it, calls
it *unknown*: after `result_ttl_s`, or with a restart."""

ENDS = frozenset({"done", "failed", "expired", "cancelled"})

_REFUSED = frozenset({408, 429, 503})
"""The statuses by which a node refuses for now; the request has not run."""

_NEVER_PASSED_ON = frozenset({501, 505})
"""The statuses of a server that knows no POST, or no HTTP like ours: it stands before no node."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a request."""

    id: str
    """The name of the request: the key, where one was given."""
    result: Any
    """The value that the handler returned."""
    cluster: str
    """The cluster that did the work."""
    path: tuple[str, ...]
    """The clusters that the request was at, the home first."""
    hops: int
    timing_ms: Mapping[str, float]
    """Times in milliseconds: `queued`, `network`, `service`, their sum `total`, and `return`, the
    way back."""
    replayed: bool = False
    """True where this is the answer to an earlier request of the same name."""


class ProblemBody(msgspec.Struct, frozen=True):
    """An answer without a result: problem+json with a reason."""

    reason: str
    detail: str = ""
    status: int = 0
    upstream_status: int | None = None
    upstream_body: Any = None


class _Said(msgspec.Struct):
    """The fields of a request in an answer."""

    id: str
    state: JobState
    problem: ProblemBody | None = None


_encode = msgspec.json.Encoder().encode
_decode_answer = msgspec.json.Decoder(Answer).decode
_decode_problem = msgspec.json.Decoder(ProblemBody).decode
_decode_said = msgspec.json.Decoder(_Said).decode

_BLAMED = {
    "unauthenticated": "This client shows no API token that is known there; give it `token=`, or "
    "set SPILLOVER_TOKEN.",
    "forbidden": "The roles of its API token do not allow it.",
    "conflict": "Use another key for another payload.",
    "too_large": "Send less, or have payload_limit_bytes raised.",
    "unknown_type": "Use a type that is served.",
    "not_found": "Check the url: its path is none of a node's.",
}
"""Advice to the client for a request that is at fault, where the detail gives none."""


_ENDED: dict[str, tuple[str, type[PeerError]]] = {
    "deadline_exceeded": ("the deadline passed: %s. Give it more time (deadline_s)", Expired),
    "cancelled": ("somebody cancelled it: %s", Cancelled),
    "outcome_unknown": ("the cluster that had it lost it: %s. It may have run", OutcomeUnknown),
}


def encode_payload(payload: object) -> bytes:
    """Returns the body of a request. Raises InputError for a payload that JSON cannot express."""
    try:
        body = b'{"payload":%b}' % _encode(payload)
        if b"null" in body:  # a number that JSON lacks would become null, in silence
            _check_numbers(payload)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        expected = f"expected what can be said in JSON: {error}"
        raise InputError("payload", "", expected) from error
    return body


def _check_numbers(payload: object) -> None:
    """Raise ValueError for a float that JSON cannot express."""
    if isinstance(payload, float):
        if not math.isfinite(payload):
            raise ValueError(f"{payload} is no number there")
    elif isinstance(payload, Mapping):
        for value in payload.values():
            _check_numbers(value)
    elif isinstance(payload, (list, tuple, set, frozenset)):
        for value in payload:
            _check_numbers(value)
    elif not isinstance(payload, (str, bytes, int, type(None))):
        _check_numbers(msgspec.to_builtins(payload))


def key_header(key: str) -> tuple[bytes, bytes]:
    """Returns the header that gives a request its name."""
    return (b"idempotency-key", key.encode())


def deadline_header(left_s: float) -> tuple[bytes, bytes]:
    """Returns the header with the time that the client waits."""
    return (b"spillover-deadline-ms", b"%d" % max(left_s * 1e3, 1.0))


def option_headers(type_: object, priority: object) -> tuple[tuple[bytes, bytes], ...]:
    """Returns the headers of a request's other options. Raises InputError for values that make no
    sense."""
    headers = []
    if type_ != "default":
        if not isinstance(type_, str) or not is_name(type_, TYPE_LENGTH_MAX):
            raise InputError("type", "", _name_expected(TYPE_LENGTH_MAX, type_))
        headers.append((b"spillover-type", type_.encode()))
    if not isinstance(priority, int) or isinstance(priority, bool) or priority not in range(10):
        raise wrong("priority", "0 to 9", priority)
    if priority:
        headers.append((b"spillover-priority", b"%d" % priority))
    return tuple(headers)


def checked_key(key: object) -> str:
    """Returns the key. Raises InputError for values that cannot be a name, such as numbers."""
    if not isinstance(key, str) or not is_name(key, NAME_LENGTH_MAX):
        raise InputError("key", "", _name_expected(NAME_LENGTH_MAX, key))
    return key


def job_path(name: str) -> str:
    """Returns the path at which a request is looked up and cancelled."""
    return f"{PATH}/{quote(name, safe='')}"


def read_answer(node: str, name: str, response: Response) -> Answer:
    """Returns the answer in a 200. Raises the error that any other response means, and NotANode for
    a response that no node gives."""
    if response.status == 200:
        try:
            answer = _decode_answer(response.body)
        except UNREADABLE:
            raise named(_no_node(node, response), node, name) from None
        if b"spillover-replayed" in response.headers:
            msgspec.structs.force_setattr(answer, "replayed", True)  # noqa: FBT003
        return answer
    raise error_of(node, name, response)


def read_accepted(node: str, name: str, response: Response) -> str:
    """Returns the node of a request that it has accepted, or that has ended there before. Raises
    the error that any other response means."""
    if response.status in (200, 202) or b"spillover-replayed" in response.headers:
        if b"spillover-request-id" in response.headers:
            return node
        raise named(_no_node(node, response), node, name)
    raise error_of(node, name, response)


def read_state(node: str, name: str, response: Response) -> JobState:
    """Returns the state in the response to a look-up or a cancel. Raises the error that any other
    response means."""
    if response.status in (200, 202):
        return _said(node, name, response).state
    problem = _problem_of(response)
    if problem is not None and problem.reason == "unknown_request":
        return "unknown"
    raise error_of(node, name, response)


def read_end(node: str, name: str, state: JobState, response: Response) -> Answer | JobState:
    """Returns the answer of a job that is done, or the state of one that has not ended. Raises the
    error that any other end means."""
    if state == "done":
        return read_answer(node, name, response)
    if state == "unknown":
        message = (
            f"node {node} knows no request {name!r}: it has never been sent there, or the node was"
            " started anew, or its answer is older than result_ttl_s. Whether it ran is not known"
        )
        raise named(OutcomeUnknown(message), node, name)
    if state not in ENDS:
        return state
    problem = _said(node, name, response).problem
    if problem is None:
        raise named(_no_node(node, response), node, name)
    raise named(_error(node, problem.status, problem, None), node, name)


def error_of(node: str, name: str | None, response: Response) -> PeerError:
    """Returns the error that a response without a result means."""
    problem = _problem_of(response)
    if problem is None:
        return named(_of_stranger(node, response), node, name)
    error = _error(node, response.status, problem, _retry_after_s(response))
    return named(error, node, name)


def without_answer(node: str, name: str | None, error: PeerError) -> PeerError:
    """Returns the error that a call without an answer means."""
    if isinstance(error, NotDelivered):
        message = f"no node can be reached at {node}: {_why(node, error)}. Nothing was sent"
        return named(Unreachable(message), node, name)
    message = (
        f"the connection to node {node} broke before its answer: {_why(node, error)}. The request"
        " may have run, or may yet"
    )
    return named(OutcomeUnknown(message), node, name)


def named(error: PeerError, node: str, name: str | None) -> PeerError:
    """Returns the error, which names its node and request now."""
    error.node, error.id = node, name
    return error


def _error(node: str, status: int, problem: ProblemBody, retry_after_s: float | None) -> PeerError:
    reason, detail = problem.reason, problem.detail[:SAID_LENGTH_MAX].rstrip(".")
    said = f"{detail or 'without a detail'} ({reason})"
    match reason:
        case "handler_rejected":
            body = problem.detail if problem.upstream_body is None else problem.upstream_body
            message = f"the handler rejected the request: {said}, status {status}. Correct it"
            return Rejected(message, status, reason, body=body, surely_did_not_run=False)
        case "handler_failed" | "internal":
            who = "the handler failed" if reason == "handler_failed" else f"node {node} failed"
            return Failed(
                f"{who}: {said}. The request may have run in part",
                reason,
                upstream_status=problem.upstream_status,
                upstream_body=problem.upstream_body,
            )
        case "deadline_exceeded" | "cancelled" | "outcome_unknown":
            what, error = _ENDED[reason]
            return error(what % said)
    if status in _REFUSED:
        when = "later" if retry_after_s is None else f"in {retry_after_s:g} s"
        message = f"node {node} takes nothing now: {said}. It has not run; try again {when}"
        return Refused(message, reason, retry_after_s)
    if 400 <= status <= 499:
        message = f"the request is at fault, says node {node}: {said}, status {status}"
        todo = _BLAMED.get(reason)
        return Rejected(f"{message}. {todo}" if todo else message, status, reason)
    return Failed(f"node {node} failed: {said}, status {status}", reason)


def _of_stranger(node: str, response: Response) -> PeerError:
    """Returns the error of an answer without a reason: it is not a node's, but may come from a
    server in front of one."""
    if response.status == 429:
        message = f"what stands before node {node} takes nothing now (status 429). It has not run"
        return Refused(message, "rate_limited", _retry_after_s(response))
    if response.status >= 500 and response.status not in _NEVER_PASSED_ON:
        message = f"what stands before node {node} answered {response.status}: {_shown(response)}"
        return OutcomeUnknown(f"{message}. Whether the request got to the node is not known")
    return _no_node(node, response)


def _no_node(node: str, response: Response) -> NotANode:
    where = response.headers.get(b"location")
    to = f", to {where.decode('latin-1')[:SAID_LENGTH_MAX]}" if where is not None else ""
    return NotANode(
        f"what answers at {node} is no node of Spillover: status {response.status}{to},"
        f" {_shown(response)}. Check the url"
    )


def _shown(response: Response) -> str:
    kind = response.headers.get(b"content-type", b"no content type").decode("latin-1")[:80]
    body = " ".join(response.body[:120].decode("utf-8", "replace").split())
    return f"{kind}, {body!r}"


def _said(node: str, name: str, response: Response) -> _Said:
    try:
        return _decode_said(response.body)
    except UNREADABLE:
        raise named(_no_node(node, response), node, name) from None


def _problem_of(response: Response) -> ProblemBody | None:
    try:
        return _decode_problem(response.body)
    except UNREADABLE:
        return None


def _retry_after_s(response: Response) -> float | None:
    told = response.headers.get(b"retry-after", b"")
    return float(told) if told.isdigit() and len(told) < 9 else None


def _why(node: str, error: PeerError) -> str:
    """Returns the words of HTTP's client, without the call and the url before them."""
    text = str(error)
    at = text.find(node)
    return text[at + len(node) :].partition(": ")[2] or text if at >= 0 else text


def _name_expected(length_max: int, got: object) -> str:
    return (
        f"expected 1 to {length_max} printable characters, no blank at either end, not . or ..,"
        f" got {got!r:.80}"
    )
