"""The answer of an upstream becomes a result, or a problem with the one whose fault it is.

- A status of `not_run_statuses` (429 and 503, unless the cluster says otherwise): surely not done.
- Other 4xx: the client's fault.
- All else, also 3xx, which is never followed: failed, and perhaps done in part.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from datetime import UTC
from email.utils import parsedate_to_datetime

import msgspec

from spillover.live.handlers.calls import (
    RESULT_LIMIT_BYTES,
    SAID_LIMIT_BYTES,
    CallResult,
    as_text,
    one_line,
    pause_s,
)
from spillover.live.http1.client import Response
from spillover.model.causes import Cause
from spillover.model.errors import UNREADABLE
from spillover.model.topology import NOT_RUN_STATUSES

EXCERPT_BYTES = 300
"""The log has so many bytes of the body of an answer that says no."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_check = msgspec.json.Decoder(msgspec.Raw).decode


def read_answer(
    name: str, response: Response, not_run_statuses: Collection[int] = NOT_RUN_STATUSES
) -> CallResult:
    """Returns a 2xx answer as a result: JSON as it came, nothing as null, other types wrapped in
    base64. Anything else is a problem that begins with the upstream's `name`."""
    status, body = response.status, response.body
    if not 200 <= status <= 299:
        return _refusal(name, response, not_run_statuses)
    if not body:
        return CallResult(b"null")
    coding = response.headers.get(b"content-encoding", b"identity").strip().lower()
    if coding not in (b"", b"identity"):
        shown = coding.decode("latin-1")
        problem = f"upstream {name} answered in the coding {shown}, unasked"
        return CallResult(problem=problem, cause=Cause.UPSTREAM_ANSWER)
    content_type = response.headers.get(b"content-type", b"application/octet-stream").strip()
    if not _is_json(content_type):
        return _wrapped(name, content_type, body)
    body = body.removeprefix(BYTE_ORDER_MARK)
    try:
        if not body.isascii():
            body.decode()  # the JSON decoder does not look at what it passes over
        _check(body)
    except UNREADABLE as error:
        problem = f"upstream {name} answered what is not valid JSON: {one_line(error)}"
        return CallResult(problem=problem, cause=Cause.UPSTREAM_ANSWER)
    return CallResult(body)


def _refusal(name: str, response: Response, not_run_statuses: Collection[int]) -> CallResult:
    status, body = response.status, response.body
    excerpt = " ".join(body[:EXCERPT_BYTES].decode("utf-8", "replace").split())
    problem = f"upstream {name} answered {status}"
    not_run = status in not_run_statuses
    return CallResult(
        problem=problem,
        details=f"{problem}: {excerpt}",
        upstream_answered=True,
        not_run=not_run,
        rejected=400 <= status <= 499 and not not_run,
        status=status,
        body=_said(response) if body else None,
        cause=Cause.UPSTREAM_STATUS,
        retry_after_s=read_retry_after_s(response.headers.get(b"retry-after", b""), time.time()),
    )


def _said(response: Response) -> bytes:
    """The body as JSON if it is some and short enough, else as text."""
    body = response.body.removeprefix(BYTE_ORDER_MARK)
    if len(body) > SAID_LIMIT_BYTES or not _is_json(response.headers.get(b"content-type", b"")):
        return as_text(body)
    try:
        body.decode()
        _check(body)
    except UNREADABLE:
        return as_text(body)
    return body


def read_retry_after_s(value: bytes, wall_s: float) -> float | None:
    """Returns a Retry-After (RFC 9110, section 10.2.3), in seconds or as a date, against the wall
    clock's `wall_s`. None for what is neither, or lies in the past."""
    text = value.strip().decode("latin-1")
    if text.isascii() and text.isdigit():
        return pause_s(int(text[:10]))
    try:
        date = parsedate_to_datetime(text)
        if date.tzinfo is None:  # the obsolete forms name no zone; HTTP means UTC
            date = date.replace(tzinfo=UTC)
        until_s = date.timestamp()
    except (ValueError, OverflowError, OSError):
        return None
    return pause_s(until_s - wall_s)


def _is_json(content_type: bytes) -> bool:
    media_type = content_type.partition(b";")[0].strip().lower()
    return media_type == b"application/json" or media_type.endswith(b"+json")


def _wrapped(name: str, content_type: bytes, body: bytes) -> CallResult:
    """Bytes are base64 in msgspec's JSON."""
    shown = content_type.decode("latin-1")
    result = msgspec.json.encode({"content_type": shown, "body_base64": body})
    if len(result) > RESULT_LIMIT_BYTES:
        limit = f"{RESULT_LIMIT_BYTES} bytes of JSON"
        problem = f"upstream {name} answered {shown}, which takes more than {limit}"
        return CallResult(problem=problem, cause=Cause.UPSTREAM_ANSWER)
    return CallResult(result)
