"""The OpenAPI of the hot paths, which FastAPI cannot see: they are dispatched before it."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, Field

from spillover.model.request import NAME_LENGTH_MAX, TYPE_LENGTH_MAX


class RequestView(BaseModel):
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
    """The result, and what it took."""

    id: str
    result: Any
    cluster: str
    path: list[str]
    hops: int
    timing_ms: TimingView


class ProblemView(BaseModel):
    """Why there is no result."""

    type: str
    title: str
    status: int
    reason: str
    detail: str
    id: str | None = None


_PROBLEMS = {
    "409": "cancelled",
    "413": "too_large",
    "422": "invalid",
    "429": "queue_full (with Retry-After)",
    "502": "handler_failed or outcome_unknown",
    "503": "draining",
    "504": "deadline_exceeded",
}

_HEADERS = {
    "Idempotency-Key": {"type": "string", "minLength": 1, "maxLength": NAME_LENGTH_MAX},
    "Spillover-Deadline-Ms": {"type": "number", "minimum": 0},
    "Spillover-Type": {"type": "string", "minLength": 1, "maxLength": TYPE_LENGTH_MAX},
    "Spillover-Priority": {"type": "integer", "minimum": 0, "maximum": 9},
}


def add_hot_paths(app: FastAPI) -> None:
    """Make `/openapi.json` describe `POST /requests` besides what FastAPI knows."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
            schema["paths"]["/requests"] = {"post": _post_requests()}
            schemas = schema.setdefault("components", {}).setdefault("schemas", {})
            for model in (RequestView, AnswerView, ProblemView):
                described = model.model_json_schema(ref_template="#/components/schemas/{model}")
                schemas.update(described.pop("$defs", {}))
                schemas[model.__name__] = described
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _post_requests() -> dict[str, Any]:
    problem = {"application/problem+json": {"schema": _reference(ProblemView)}}
    responses: dict[str, Any] = {
        status: {"description": reason, "content": problem} for status, reason in _PROBLEMS.items()
    }
    responses["200"] = {
        "description": "Done, here or at another cluster",
        "content": {"application/json": {"schema": _reference(AnswerView)}},
    }
    return {
        "summary": "Run a request and wait for its result",
        "operationId": "post_requests",
        "parameters": [
            {"name": name, "in": "header", "required": False, "schema": schema}
            for name, schema in _HEADERS.items()
        ],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": _reference(RequestView)}},
        },
        "responses": responses,
    }


def _reference(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}
