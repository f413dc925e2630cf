"""The OpenAPI of the hot paths, which FastAPI cannot see: they are dispatched before it.

A new path is an entry in HOT_PATHS, and its bodies are pydantic models here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, Field

from spillover.apps.http.openapi import SCHEMAS, problems, reference
from spillover.apps.node.doors import TABLE
from spillover.apps.node.openapi_told import tell
from spillover.apps.node.preferences import WAIT_MAX_S, WAIT_MS_MAX
from spillover.live.membership.session_wire import SESSION
from spillover.live.overflow.agreement import Terms
from spillover.live.overflow.protocol import FIRST, PASS, SHARED, SPOKEN, STREAM
from spillover.model.access import TENANT
from spillover.model.request import NAME_LENGTH_MAX, TYPE_LENGTH_MAX

TENANT_PATTERN = f"^({TENANT.pattern})?$"

Body: TypeAlias = type[BaseModel]


class RequestView(BaseModel, extra="forbid"):
    """The body of `POST /requests`."""

    payload: Any = Field(description="Any JSON; the handler gets it")
    type: str = Field("default", min_length=1, max_length=TYPE_LENGTH_MAX)
    id: str | None = Field(None, min_length=1, max_length=NAME_LENGTH_MAX)


class TimingView(BaseModel):
    """Milliseconds; total = queued + network + service, `return` is the way back."""

    queued: float
    network: float
    service: float
    return_: float = Field(alias="return")
    total: float


class AnswerView(BaseModel):
    """The result, its way and its times."""

    id: str
    result: Any
    cluster: str
    path: list[str]
    hops: int
    timing_ms: TimingView


class RequestStateView(BaseModel, extra="allow"):
    """The state of a request, or how it ended. One that is done adds the fields of the answer, and
    other ends those of their problem."""

    id: str
    state: Literal[
        "queued", "running", "forwarded", "done", "failed", "rejected", "expired", "cancelled"
    ]
    problem: dict[str, Any] | None = None


class WhoView(BaseModel):
    """A node: its cluster, which of its lives this is, and the versions that it speaks."""

    cluster: str
    epoch: int
    speaks: str


class ForwardView(BaseModel):
    """A request that a neighbor hands on; `path` lists the clusters that it was at, its home
    first."""

    id: str = Field(min_length=1, max_length=NAME_LENGTH_MAX)
    path: list[str] = Field(min_length=1, max_length=1000)
    remaining_ms: float
    payload: Any
    keyed: bool = False
    type: str = Field("default", min_length=1, max_length=TYPE_LENGTH_MAX)
    priority: int = Field(0, ge=0, le=9)
    traceparent: str | None = None
    tracestate: str = ""
    tenant: str = Field("", pattern=TENANT_PATTERN, description="Whose request it is")


class ForwardAnswerView(BaseModel, extra="allow"):
    """The end of a request that was handed on; durations are in milliseconds."""

    outcome: Literal["done", "failed", "rejected", "expired", "cancelled", "unknown"]
    path: list[str]
    held_ms: float
    result: Any = None
    problem: str | None = None


class CancelView(BaseModel):
    """The caller no longer wants the request of this id, which it has handed on."""

    id: str = Field(min_length=1, max_length=NAME_LENGTH_MAX)
    tenant: str = Field("", pattern=TENANT_PATTERN, description="Whose request it is")


class CancelAnswerView(BaseModel):
    """Whether there was a request under way, or a session, of this name."""

    found: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one hot path. `problems` are the reasons that it may give. A body that has no
    model is described by its content type alone."""

    summary: str
    operation_id: str
    answers: Mapping[int, tuple[str, Body | str]]
    problems: tuple[str, ...] = ()
    body: Body | str | None = None
    parameters: tuple[dict[str, Any], ...] = field(default=())


def header(name: str, schema: dict[str, Any], description: str = "") -> dict[str, Any]:
    """Returns a header that may be left out."""
    told = {"description": description} if description else {}
    return {"name": name, "in": "header", "required": False, "schema": schema, **told}


REQUEST_HEADERS = (
    header("Idempotency-Key", {"type": "string", "minLength": 1, "maxLength": NAME_LENGTH_MAX}),
    header("Spillover-Deadline-Ms", {"type": "number", "minimum": 0}),
    header("Spillover-Type", {"type": "string", "minLength": 1, "maxLength": TYPE_LENGTH_MAX}),
    header(
        "Spillover-Priority",
        {"type": "integer", "minimum": 0, "maximum": 9},
        "Checked and carried along; it decides nothing yet",
    ),
    header(
        "Prefer",
        {"type": "string", "examples": ["respond-async", "respond-async, wait=10"]},
        "`respond-async`: 202 at once. With `wait=N`: the answer if it comes within N seconds "
        f"(at most {WAIT_MAX_S}), else 202; `Preference-Applied` says what was applied.",
    ),
    header("traceparent", {"type": "string"}),
    header("tracestate", {"type": "string"}),
)

REQUEST_PROBLEMS = (
    *(
        "malformed",
        "another_site",
        "deadline_exceeded",
        "body_too_slow",
        "cancelled",
        "too_large",
        "invalid",
    ),
    *("blocked", "unknown_type"),
    *(
        "queue_full",
        "rate_limited",
        "draining",
        "no_servers",
        "handler_failed",
        "outcome_unknown",
        "internal",
    ),
    "handler_rejected",
)


def query(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Returns a parameter of the query that may be left out."""
    return {"name": name, "in": "query", "required": False, "schema": schema}


HELLO_HEADER = header(
    "Spillover-Peer",
    {"type": "string", "examples": ["from=a&to=b&federation=ring5&speaks=3%202"]},
    "Who calls: its cluster, the one that it means, the name of their federation and the versions "
    "of the protocol that it speaks. It holds for the connection, and is needed on it once.",
)

REPORTS_QUERY = tuple(query(one.name, {"type": "number", "minimum": 0}) for one in fields(Terms))
"""The terms in the caller's topology that the two clusters share."""

_LOOKUP_PARAMETERS = (
    {"name": "request_id", "in": "path", "required": True, "schema": {"type": "string"}},
    {
        "name": "wait_ms",
        "in": "query",
        "required": False,
        "schema": {"type": "number", "minimum": 0},
        "description": "Answer when the request has ended, or after this time with its state. "
        f"More than {WAIT_MS_MAX} is taken as {WAIT_MS_MAX}. Answered at once where too many "
        "wait for this request.",
    },
    header(
        "Prefer",
        {"type": "string", "examples": ["wait=10"]},
        f"`wait=N`: the same in seconds, at most {WAIT_MAX_S}; `wait_ms` counts if both are given. "
        "`Preference-Applied` says how long; it is missing where there was no waiting to be had.",
    ),
)

_CLIENT = query("client", {"type": "string", "minLength": 1, "maxLength": NAME_LENGTH_MAX}) | {
    "required": True,
    "description": "The name of the client; with a session here already, it replaces that.",
}

HOT_PATHS: dict[str, dict[str, Operation]] = {
    "/requests": {
        "post": Operation(
            summary="Run a request and wait for its result",
            operation_id="post_requests",
            body=RequestView,
            parameters=REQUEST_HEADERS,
            answers={
                200: ("Done, here or at another cluster", AnswerView),
                202: ("Accepted; `Location` tells where to ask (respond-async)", RequestStateView),
            },
            problems=(*REQUEST_PROBLEMS, "conflict"),
        )
    },
    "/requests/{request_id}": {
        "get": Operation(
            summary="Where a request is, or how it ended; its home knows most",
            operation_id="get_request",
            parameters=_LOOKUP_PARAMETERS,
            answers={200: ("As it is now, or at its end", RequestStateView)},
            problems=("unknown_request", "invalid", "internal"),
        )
    },
    SESSION: {
        "get": Operation(
            summary="Have a session here: what changes in the federation, as long as it lasts",
            operation_id="get_session",
            parameters=(_CLIENT,),
            answers={
                200: ("Announcements, and empty objects as signs of life", "application/x-ndjson")
            },
            problems=(
                *("another_site", "invalid", "not_ready", "draining"),
                *("reconnect_limit", "too_many_clients"),
            ),
        ),
        "delete": Operation(
            summary="End a session in an orderly way",
            operation_id="delete_session",
            parameters=(
                _CLIENT,
                query("moved", {"type": "string", "enum": ["1"]})
                | {"description": "The client has another server now."},
            ),
            answers={200: ("Whether there was one", CancelAnswerView)},
            problems=("another_site", "invalid"),
        ),
    },
    FIRST: {
        "get": Operation(
            summary="Between neighbors: who this is, first on each connection with TLS",
            operation_id="get_hello",
            parameters=(HELLO_HEADER,),
            answers={200: ("A neighbor is believed here", WhoView)},
            problems=("not_a_neighbor", "another_site", "internal"),
        )
    },
    SHARED: {
        "get": Operation(
            summary="Between neighbors: have requests that are handed on share this connection",
            operation_id="get_shared",
            parameters=(HELLO_HEADER,),
            answers={101: ("Frames follow, no longer HTTP", "application/octet-stream")},
            problems=("not_a_neighbor", "another_site", "invalid"),
        )
    },
    SPOKEN[0].forward: {
        "post": Operation(
            summary="Between neighbors: run a request that is handed on",
            operation_id="post_forward",
            body=ForwardView,
            parameters=(HELLO_HEADER,),
            answers={200: ("It has ended, in whatever way", ForwardAnswerView)},
            problems=(*REQUEST_PROBLEMS, "not_a_neighbor"),
        )
    },
    PASS: {
        "post": Operation(
            summary="Between neighbors: run a request that passes through",
            operation_id="post_pass",
            body="application/octet-stream",
            parameters=(HELLO_HEADER,),
            answers={200: ("Its answer has begun, and comes in frames", STREAM.decode())},
            problems=(*REQUEST_PROBLEMS, "not_a_neighbor"),
        )
    },
    SPOKEN[0].cancel: {
        "post": Operation(
            summary="Between neighbors: cancel a request that was handed on",
            operation_id="post_cancel",
            body=CancelView,
            parameters=(HELLO_HEADER,),
            answers={200: ("What came of it is in the answer to the request", CancelAnswerView)},
            problems=(
                *("not_a_neighbor", "another_site", "invalid", "too_large", "body_too_slow"),
                "internal",
            ),
        )
    },
    SPOKEN[0].reports: {
        "get": Operation(
            summary="Between neighbors: load reports for as long as the connection lasts",
            operation_id="get_reports",
            parameters=(HELLO_HEADER, *REPORTS_QUERY),
            answers={200: ("Reports, and empty objects as signs of life", "application/x-ndjson")},
            problems=("not_a_neighbor", "another_site", "invalid", "not_ready"),
        )
    },
}


def tell_hot_paths(schema: dict[str, Any], *, has_tokens: bool = False) -> None:
    """Add the hot paths to a description: what FastAPI and types do not say, and who is let in
    where the node `has_tokens`."""
    for path, operations in HOT_PATHS.items():
        described = {method: _described(one) for method, one in operations.items()}
        schema["paths"].setdefault(path, {}).update(described)
        for operation in operations.values():
            for model in _bodies(operation):
                schema["components"]["schemas"].update(_schemas(model))
    if has_tokens:
        TABLE.tell(schema)
    tell(schema)


def _described(operation: Operation) -> dict[str, Any]:
    responses = {str(status): told for status, told in problems(*operation.problems).items()}
    for status, (description, body) in operation.answers.items():
        responses[str(status)] = {"description": description, "content": _content(body)}
    described: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": operation.operation_id,
        "responses": responses,
    }
    if operation.parameters:
        described["parameters"] = list(operation.parameters)
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": _content(operation.body)}
    return described


def _bodies(operation: Operation) -> Iterator[Body]:
    said = (operation.body, *(body for _, body in operation.answers.values()))
    yield from (body for body in said if not (body is None or isinstance(body, str)))


def _content(body: Body | str) -> dict[str, Any]:
    """Returns JSON of this model, or bytes of this type of content."""
    if isinstance(body, str):
        return {body: {"schema": {"type": "string", "format": "binary"}}}
    return {"application/json": {"schema": reference(body)}}


def _schemas(model: Body) -> dict[str, Any]:
    """Returns the model's schema and those that it refers to, by name."""
    described = model.model_json_schema(ref_template=SCHEMAS + "{model}")
    schemas: dict[str, Any] = described.pop("$defs", {})
    schemas[model.__name__] = described
    return schemas
