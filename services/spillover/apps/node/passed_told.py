"""The end of a request at the door of a service, as it is counted and, where that is asked for,
logged. `passed_answers` answers the request."""

from __future__ import annotations

from typing import Protocol

from spillover.apps.http.problems import Problem
from spillover.core.overflow.events import SoFar
from spillover.live.handlers.proxy.handler import FAILED_FROM
from spillover.live.overflow.gateway_metrics import HttpCounts
from spillover.live.overflow.relay import WHOLE
from spillover.live.overflow.request_log import REFUSED, Asked, log_passed
from spillover.model.causes import Cause
from spillover.model.request import Answer, Outcome, Request


class Passed(Protocol):
    """The known facts of the request, whose answer this is."""

    asked: Asked | None
    counts: HttpCounts
    request: Request | None
    received_bytes: int
    sent_bytes: int
    so_far: SoFar | None
    status: int

    @property
    def name(self) -> str: ...


def count_end(
    passed: Passed,
    end: str | None,
    answer: Answer | None = None,
    cause: Cause | None = None,
    problem: Problem | None = None,
) -> None:
    """Counts and logs the end of a request. `end` says how an answer that had begun ended; if none
    had, `problem` is what the client gets. `answer` is what the machine says, and `cause` the
    reason if the machine says nothing."""
    counts = passed.counts
    counts.statuses[passed.status // 100] += 1
    counts.received_bytes += passed.received_bytes
    counts.sent_bytes += passed.sent_bytes
    if passed.asked is not None:
        log_end(passed, passed.asked, end, answer, cause, problem)


def log_end(
    passed: Passed,
    asked: Asked,
    end: str | None,
    answer: Answer | None = None,
    cause: Cause | None = None,
    problem: Problem | None = None,
) -> None:
    """Logs the end of a request, where requests are logged."""
    why = None if cause is None else cause.value
    if problem is not None and why is None:
        why = problem.reason
    log_passed(
        asked,
        passed.name,
        passed.request,
        answer or _outcome(end, cause, problem, passed.status),
        status=passed.status or None,
        sizes_bytes=(passed.received_bytes, passed.sent_bytes),
        end=end,
        cause=why,
        problem=None if problem is None else problem.detail,
        path=() if passed.so_far is None else passed.so_far.path,
    )


def _outcome(end: str | None, cause: Cause | None, problem: Problem | None, status: int) -> str:
    """Returns the outcome of a request of which the machine has said nothing."""
    if cause is Cause.CLIENT:
        return Outcome.CANCELLED.value
    if problem is not None and (cause is None or problem.reason == "no_servers"):
        return REFUSED
    if cause is Cause.TIMEOUT:
        return Outcome.EXPIRED.value
    is_done = end == WHOLE and status < FAILED_FROM
    return (Outcome.DONE if is_done else Outcome.FAILED).value
