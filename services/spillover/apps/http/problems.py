"""Refusals and failures as `application/problem+json` (RFC 9457) with a `reason`, which means the
same at every service. When one is given is each service's business.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

import msgspec
from starlette.responses import Response

from spillover.model.request import NAME_LENGTH_MAX, is_name

PROBLEM_JSON = b"application/problem+json"

STATUS_BY_REASON = {
    "queue_full": 429,
    "blocked": 429,
    "draining": 503,
    "no_servers": 503,
    "not_ready": 503,
    "reconnect_limit": 503,
    "too_many_clients": 503,
    "store_full": 503,
    "store_damaged": 500,
    "unknown_grant": 404,
    "joining": 503,
    "id_taken": 503,
    "redis_down": 503,
    "store_unreachable": 503,
    "rate_limited": 429,
    "unauthenticated": 401,
    "proxy_unauthenticated": 407,
    "forbidden": 403,
    "deadline_exceeded": 504,
    "cancelled": 409,
    "too_large": 413,
    "head_too_large": 431,
    "head_too_slow": 408,
    "body_too_slow": 408,
    "invalid": 422,
    "unknown_type": 422,
    "conflict": 409,
    "version_conflict": 409,
    "servers_alike": 409,
    "not_a_neighbor": 403,
    "not_a_testbed": 403,
    "another_site": 403,
    "wrong_version": 400,
    "handler_failed": 502,
    "handler_rejected": 422,  # where the handler gave no status of its own
    "outcome_unknown": 502,
    "unknown_request": 404,
    "not_found": 404,
    "method_not_allowed": 405,
    "malformed": 400,
    "not_passed": 501,
    "loop_detected": 508,
    "internal": 500,
}

MAY_HAVE_RUN = frozenset(
    {
        *("deadline_exceeded", "cancelled", "handler_failed", "handler_rejected"),
        *("outcome_unknown", "internal"),
    }
)
"""Reasons with which the work may have been done, wholly or in part, unless the problem itself says
more. With all others it surely was not, because of this call, and the same may be sent again."""

RUNS_AGAIN = (b"x-should-retry", b"false")
"""OpenAI's clients, and others made by the same generator, send what failed again by themselves
unless they are told this."""

BUG = "internal error; the log of the service has the details"


@dataclass(eq=False)
class Problem(Exception):
    """One refusal or failure. `detail` is one line for people, `id` the request's name; `more` are
    further fields of the body."""

    reason: str
    detail: str
    id: str | None = None
    retry_after_s: float | None = None
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    more: dict[str, object] = field(default_factory=dict)
    own_status: int | None = None
    """A status in place of the one that goes with the reason; None for that one."""
    surely_not_run: bool = False
    """Whoever made the problem knows that, whatever its reason."""
    is_keyed: bool = False
    """The request has a key, by which whoever runs it can tell that it was sent again."""

    @property
    def status(self) -> int:
        return self.own_status or STATUS_BY_REASON[self.reason]

    @property
    def may_have_run(self) -> bool:
        """Returns whether the work may have been done, so that to send the same again may have it
        done twice. The one rule for all answers."""
        return self.reason in MAY_HAVE_RUN and not self.surely_not_run

    def body(self) -> bytes:
        return msgspec.json.encode(self.fields())

    def fields(self) -> dict[str, object]:
        """Returns what the body says."""
        fields: dict[str, object] = {
            "type": "about:blank",
            "title": _title(self.status),
            "status": self.status,
            "reason": self.reason,
            "detail": self.detail,
            **self.more,
        }
        if self.id is not None:
            fields["id"] = self.id
        return fields

    def all_headers(self) -> list[tuple[bytes, bytes]]:
        headers = [(b"content-type", PROBLEM_JSON), *self.headers]
        if self.id is not None and is_name(self.id, NAME_LENGTH_MAX):  # else no header can hold it
            headers.append((b"spillover-request-id", self.id.encode()))
        if self.may_have_run and not self.is_keyed:
            headers.append(RUNS_AGAIN)
        if self.retry_after_s is not None:
            seconds = max(1, math.ceil(self.retry_after_s))
            headers.append((b"retry-after", str(seconds).encode()))
        return headers


def as_response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """Returns it as FastAPI's routes answer, with these headers besides."""
    response = Response(problem.body(), problem.status, headers)
    response.raw_headers.extend(problem.all_headers())
    return response


def _title(status: int) -> str:
    """The status in words; an upstream may have one that has none."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Client Error" if 400 <= status < 500 else "Error"
