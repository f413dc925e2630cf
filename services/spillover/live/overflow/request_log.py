"""One line in the log for each request of a client that has ended, for operators who ask for it:
what was asked, the outcome and its reason, where it ran, and how long it took.

A path is logged without its query, which may be private, and cut where it is long.
"""

from __future__ import annotations

import logging
import time
from functools import partial

from spillover.core.overflow.idempotency import IdempotencyRecord
from spillover.live.process.logs import REQUESTS_LOGGER, Message
from spillover.model.causes import cause_of
from spillover.model.ids import ClusterId, told_inside
from spillover.model.request import Answer, Request

PATH_LENGTH_MAX = 200

REFUSED = "refused"
"""The outcome of a request that was not accepted; its cause is the reason that its client got."""

_WORDS = "request ended"

_log = logging.getLogger(REQUESTS_LOGGER)

is_logged = partial(_log.isEnabledFor, logging.INFO)
"""Returns whether these lines are wanted. It is a partial, since it is called for each request."""


class Asked:
    """A client's request at a door, while it is under way; made only where it `is_logged`."""

    __slots__ = ("first_byte_s", "method", "path", "received_s", "route")

    def __init__(self, method: str, target: str) -> None:
        self.method = method
        self.path = shown_path(target)
        self.route: str | None = None
        """The configured route that fits."""
        self.received_s = time.monotonic()
        """The time when the request's head had come."""
        self.first_byte_s: float | None = None
        """The time when the head of its answer was there."""

    def first_byte_now(self) -> None:
        """Note that the head of the answer is there."""
        self.first_byte_s = time.monotonic()


def shown_path(target: str) -> str:
    """Returns the path of a request's target, without its query or other parts that may be
    secret."""
    path = target.partition("?")[0].partition("#")[0]
    if not path.startswith("/") and "://" in path:  # of a proxy: an authority may tell a password
        path = "/" + path.partition("://")[2].partition("/")[2]
    return path if len(path) <= PATH_LENGTH_MAX else path[:PATH_LENGTH_MAX] + "..."


def log_request(
    entry: IdempotencyRecord, answer: Answer, status: int | None = None, *, replayed: bool = False
) -> None:
    """Write the line of a request that was accepted at `POST /requests`, if it `is_logged`, or of
    one that gets the answer of an earlier request of its name. That answer comes in one piece."""
    total_ms = _ms(answer.total_s + answer.return_s)
    _log.info(
        Message(
            _WORDS,
            request_id=told_inside(entry.id),
            method="POST",
            path="/requests",
            status=status,
            **_told_by(answer),
            replayed=replayed or None,
            received_bytes=entry.received_bytes,
            sent_bytes=0 if answer.result is None else len(memoryview(answer.result)),
            first_byte_ms=total_ms,
            total_ms=total_ms,
            system_time_ms=_ms(answer.total_s),
            type=entry.type,
            problem=answer.problem,
            traceparent=None if entry.trace is None else entry.trace.parent,
        )
    )


def log_passed(
    asked: Asked,
    name: str,
    request: Request | None,
    came_to: Answer | str,
    *,
    status: int | None,
    sizes_bytes: tuple[int, int],
    end: str | None = None,
    cause: str | None = None,
    problem: str | None = None,
    path: tuple[ClusterId, ...] = (),
) -> None:
    """Write the line of a request at a door, if it `is_logged`.

    `came_to` is an answer of the machine or, where there is none, an outcome. `sizes_bytes` are the
    sizes of the bodies there and back, `end` is how an answer that had begun ended, and `path` is
    the way to where that ran.
    """
    now_s = time.monotonic()
    if isinstance(came_to, Answer):
        told = _told_by(came_to)
        problem = problem or came_to.problem
        if len(path) > len(came_to.path):  # of what broke off on its way back
            told |= _way(path)
    else:
        told = {"outcome": came_to, "cause": cause, **_way(path)}
    trace = None if request is None else request.trace
    first_s = asked.first_byte_s
    _log.info(
        Message(
            _WORDS,
            request_id=name or None,
            method=asked.method or None,
            path=asked.path or None,
            route=asked.route,
            status=status,
            end=end,
            **told,
            received_bytes=sizes_bytes[0],
            sent_bytes=sizes_bytes[1],
            first_byte_ms=None if first_s is None else _ms(first_s - asked.received_s),
            total_ms=_ms(now_s - asked.received_s),
            type=None if request is None else request.type,
            problem=problem,
            traceparent=None if trace is None else trace.parent,
        )
    )


def log_turned_away(
    method: str, target: bytes, status: int, reason: str, name: str | None = None
) -> None:
    """Write the line of a request that was not even taken in, if it `is_logged`."""
    path = shown_path(target.decode("latin-1")) or None
    told = {"method": method, "path": path, "status": status}
    _log.info(Message(_WORDS, request_id=name, **told, outcome=REFUSED, cause=reason))


def _told_by(answer: Answer) -> dict[str, object]:
    cause = cause_of(answer)
    return {
        "outcome": answer.outcome.value,
        "cause": None if cause is None else cause.value,
        **_way(answer.path),
        "upstream": answer.upstream,
        "upstream_status": answer.upstream_status,
    }


def _way(path: tuple[ClusterId, ...]) -> dict[str, object]:
    return {"ended_at": path[-1], "hops": len(path) - 1} if path else {}


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 3)
