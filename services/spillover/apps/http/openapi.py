"""The OpenAPI of every service: its errors by their reasons, and bodies that FastAPI does not see
because they are read by `json_body`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from spillover.apps.http.problems import PROBLEM_JSON, STATUS_BY_REASON

Described: TypeAlias = dict[str, Any]

SCHEMAS = "#/components/schemas/"


class ProblemView(BaseModel):
    """Why there is no result."""

    type: str
    title: str
    status: int
    reason: str
    detail: str
    id: str | None = None


def problems(*reasons: str) -> dict[int | str, dict[str, Any]]:
    """`responses` of a route that may answer with these problems."""
    content = {PROBLEM_JSON.decode(): {"schema": reference(ProblemView)}}
    found: dict[int | str, dict[str, Any]] = {}
    for reason in reasons:
        status = STATUS_BY_REASON[reason]
        if status in found:
            found[status]["description"] += f" or {reason}"
        else:
            found[status] = {"description": reason, "content": content}
        if reason == "handler_rejected":  # else what runs requests gives the status
            found.setdefault("4XX", {"description": reason, "content": content})
    return found


def described_body(model: type[BaseModel]) -> Described:
    """`openapi_extra` of a route that reads such a body."""
    content = {"application/json": {"schema": _schema_of(model)}}
    return {"requestBody": {"required": True, "content": content}}


@cache
def _schema_of(model: type[BaseModel]) -> Described:
    """Once for all services of a process: it takes a sixth of what it takes to make one."""
    return model.model_json_schema()


def describe(app: FastAPI, tell_more: Callable[[Described], None] | None = None) -> None:
    """Have `/openapi.json` tell of problems as they are given here, and what `tell_more` adds."""

    def openapi() -> Described:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
            _tell_problems(schema)
            if tell_more is not None:
                tell_more(schema)
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def reference(model: type[BaseModel]) -> dict[str, str]:
    """Returns what stands for its schema elsewhere."""
    return {"$ref": f"{SCHEMAS}{model.__name__}"}


def _tell_problems(schema: Described) -> None:
    """FastAPI describes its own answer to what is invalid, which is not the one given here."""
    invalid = problems("invalid")[STATUS_BY_REASON["invalid"]]
    for operations in schema["paths"].values():
        for operation in operations.values():
            if "422" in operation["responses"]:
                operation["responses"]["422"] = invalid
    schemas = schema.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas[ProblemView.__name__] = ProblemView.model_json_schema()
