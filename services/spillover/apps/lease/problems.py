"""What a lease member's service cannot do, as `application/problem+json` with a `reason`."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

PROBLEM_JSON = "application/problem+json"

STATUS_BY_REASON = {
    "joining": 503,
    "id_taken": 503,
    "draining": 503,
    "redis_down": 503,
    "not_ready": 503,
    "another_site": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "invalid": 400,
    "internal": 500,
}

_REASON_BY_STATUS = {404: "not_found", 405: "method_not_allowed"}


class ProblemView(BaseModel):
    """Why there is no other answer."""

    type: str
    title: str
    status: int
    reason: str
    detail: str


class Problem(Exception):
    """One of them. `detail` is one line for people."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def problems(*reasons: str) -> dict[int | str, dict[str, Any]]:
    """`responses` of a route that may answer with these, all of the same status."""
    schema = {"$ref": f"#/components/schemas/{ProblemView.__name__}"}
    told = {"description": " or ".join(reasons), "content": {PROBLEM_JSON: {"schema": schema}}}
    return {STATUS_BY_REASON[reasons[0]]: told}


def add_problem_handlers(app: FastAPI) -> None:
    """Have every failure answered so."""

    @app.exception_handler(Problem)
    async def on_problem(_: Request, problem: Problem) -> JSONResponse:
        return _response(problem.reason, problem.detail)

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> JSONResponse:
        reason = _REASON_BY_STATUS.get(error.status_code, "invalid")
        detail = f"{request.method} {request.url.path}: {error.detail}"
        return _response(reason, detail, error.headers)

    @app.exception_handler(Exception)
    async def on_error(_: Request, __: Exception) -> JSONResponse:
        return _response("internal", "internal error; the member's log has the details")


def _response(reason: str, detail: str, headers: Any = None) -> JSONResponse:
    status = STATUS_BY_REASON[reason]
    body = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "reason": reason,
        "detail": detail,
    }
    return JSONResponse(body, status, headers, PROBLEM_JSON)
