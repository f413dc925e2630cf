"""Calls that run on a server away from the node's loop, and how they ended.

Runs in worker processes too, so it imports little. Nothing here ever raises: an exception of a
handler need not be one that can be handed to a future or to another process.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from spillover.live.handlers.results import as_json, awaited
from spillover.model.causes import Cause
from spillover.model.errors import UNREADABLE
from spillover.model.ranges import RETRY_AFTER_S_MAX

PROBLEM_LENGTH_MAX = 500

DETAILS_LENGTH_MAX = 20_000
"""The longest traceback: an exception's message may be as long as an object that could not be
used."""

RESULT_LIMIT_BYTES = 32 * 1024 * 1024
"""Half of what a node takes from a neighbor, so that every result can travel."""


@dataclass(slots=True)
class CallResult:
    """How a call ended: with an encoded result, or with a problem for the client (one line) and
    details for the log. What has a problem has failed, unless it says that it was `rejected`, or
    surely `not_run`."""

    result: bytes = b""
    problem: str | None = None
    details: str = ""
    rejected: bool = False
    """The request is at fault."""
    not_run: bool = False
    """The work surely was not done."""
    status: int | None = None
    """The upstream's, or what a rejection wants as one."""
    upstream_answered: bool = False
    """It comes from a service's answer; the details are the beginning of that, not a traceback."""
    body: bytes | None = None
    """The rest of the service's or handler's words, as JSON of at most SAID_LIMIT_BYTES."""
    is_held: bool = False
    """The whole answer is there to be passed on, if nobody else takes what was `not_run`."""
    retry_after_s: float | None = None
    out_of_memory: bool = False
    """A process in which this happened may hold what it cannot do without: it is not used again."""
    killed: bool = False
    """It did not return by itself, its result being no longer wanted."""
    cause: Cause = Cause.WORKER
    """The cause, where there is a problem."""
    upstream: str | None = None
    """The service that was asked, by its name."""


SAID_LIMIT_BYTES = 16 * 1024
"""The most that a handler may say with a rejection or a failure: it is kept with the answer."""

CUT = "..."
"""The end of what was longer."""

REJECTED_STATUS = 422
"""The status of a rejection without one of its own."""


class Unreadable(ValueError):
    """A payload that is JSON, but not what Python can hold. Nothing was called with it."""


def spin(service_s: float) -> CallResult:
    """Keep one processor busy for `service_s` of this process's own time."""
    until_s = time.process_time() + service_s
    while time.process_time() < until_s:
        pass
    return CallResult(msgspec.json.encode({"service_ms": round(service_s * 1e3, 6)}))


def call(
    function: Callable[..., Any],
    payload: bytes,
    context: object,
    with_context: bool,  # noqa: FBT001 - calls are handed on by position
) -> CallResult:
    """Decode, call, encode: all of it where the function runs, off the node's loop."""
    try:
        result = function(*arguments(payload, context, with_context))
        return encoded(awaited(result, context))
    except BaseException as error:  # noqa: BLE001 - also SystemExit: a handler must not end a node
        return failed(error)


def arguments(
    payload: bytes | msgspec.Raw,
    context: object,
    with_context: bool,  # noqa: FBT001 - see `call`
) -> tuple[object, ...]:
    """Returns what to call a function with. Raises Unreadable for JSON that Python cannot hold:
    numbers beyond its own. To find that at the door would take decoding every payload twice."""
    try:
        decoded = msgspec.json.decode(payload)
    except UNREADABLE as error:
        detail = one_line(error).partition(": ")[2]
        raise Unreadable(f"payload: expected JSON that python can hold: {detail}") from error
    return (decoded, context) if with_context else (decoded,)


def encoded(result: object) -> CallResult:
    """Returns the result as JSON; NaN and infinities become null, as in JavaScript."""
    kind = type(result).__name__
    try:
        body = _encoded(result)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        problem = f"the handler returned what JSON cannot hold ({kind}): {one_line(error)}"
        return CallResult(problem=problem)
    if len(body) > RESULT_LIMIT_BYTES:
        expected = f"more than {RESULT_LIMIT_BYTES} bytes of JSON"
        return CallResult(problem=f"the handler returned {expected} ({kind})")
    return CallResult(body)


def _encoded(result: object) -> bytes:
    """Returns the result as JSON. One that msgspec does not take, and others do, goes the way of
    results on Dask workers."""
    try:
        return msgspec.json.encode(result)
    except TypeError:
        with contextlib.suppress(Exception):  # then the first error says why
            return msgspec.json.encode(json.loads(as_json(result)))
        raise


def failed(error: BaseException) -> CallResult:
    """Returns the end of a call that raised, or was not made for want of a payload."""
    if isinstance(error, Unreadable):
        problem = f"the handler was not called: {error}"
        return CallResult(problem=problem, rejected=True, status=REJECTED_STATUS)
    out_of_memory = isinstance(error, MemoryError)
    if out_of_memory:
        # What its frames hold is what is missing; telling of it takes memory, too.
        traceback.clear_frames(error.__traceback__)
    details = _shortened("".join(traceback.format_exception(error)))
    ended = CallResult(problem=one_line(error), details=details, out_of_memory=out_of_memory)
    with contextlib.suppress(BaseException):  # an exception's own attributes may do anything
        _classify(ended, error)
    return ended


def _shortened(text: str) -> str:
    """Its beginning and its end, where it is too long: where it happened, and what."""
    over = len(text) - DETAILS_LENGTH_MAX
    if over <= 0:
        return text
    half = DETAILS_LENGTH_MAX // 2
    return f"{text[:half]}\n... {over} characters left out ...\n{text[-half:]}"


def _classify(ended: CallResult, error: BaseException) -> None:
    """Returns the end that an exception means; see `spillover.handlers`."""
    if getattr(error, "not_run", None) is True:
        ended.not_run = True
        ended.retry_after_s = pause_s(getattr(error, "retry_after_s", None))
    elif getattr(error, "rejected", None) is True:
        ended.rejected = True
        ended.status = rejected_status(getattr(error, "status", None))
        body = getattr(error, "body", None)
        ended.body = None if body is None else said(_encoded(body))


def rejected_status(wanted: object) -> int:
    """Returns the status of a rejection that wants this one."""
    is_fit = isinstance(wanted, int) and 400 <= wanted <= 499
    return int(wanted) if is_fit else REJECTED_STATUS  # type: ignore[call-overload]


def pause_s(value: object) -> float | None:
    """Returns a pause that was asked for, within reason; None if it is none."""
    if type(value) not in (int, float) or not 0 < value < math.inf:  # type: ignore[operator]
        return None
    return float(min(value, RETRY_AFTER_S_MAX))  # type: ignore[call-overload]


def said(body: bytes) -> bytes:
    """JSON that is short enough to be handed on, else the beginning of it as text."""
    if len(body) <= SAID_LIMIT_BYTES:
        return body
    return as_text(body)


def as_text(body: bytes) -> bytes:
    """Returns the beginning of a body as JSON text of at most SAID_LIMIT_BYTES, whatever is in
    it."""
    text = body[:SAID_LIMIT_BYTES].decode("utf-8", "replace")
    said = msgspec.json.encode(text)
    if len(said) <= SAID_LIMIT_BYTES >= len(body):
        return said
    length = len(text)
    while len(said) > SAID_LIMIT_BYTES:
        # What JSON writes longer, such as control characters, leaves room for fewer.
        length = min(length - len(CUT), length * (SAID_LIMIT_BYTES - len(CUT)) // len(said))
        said = msgspec.json.encode(text[:length] + CUT)
    return said


def one_line(error: BaseException) -> str:
    """Returns an exception's kind and message, fit for JSON whatever the message holds."""
    line = traceback.format_exception_only(error)[-1]
    text = " ".join(line[: 4 * PROBLEM_LENGTH_MAX].split())
    return text[:PROBLEM_LENGTH_MAX].encode("utf-8", "replace").decode()
