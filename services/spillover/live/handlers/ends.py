"""The end of a call, for the machine and for the log: done, failed, rejected, or not run.

How a handler tells these apart is its own business (`calls`, `upstream_answers`, `dask.call`).
"""

from __future__ import annotations

import logging
import time

import msgspec

from spillover.core.overflow.events import NotStarted, ServiceEnded, Start
from spillover.live.handlers.calls import PROBLEM_LENGTH_MAX, CallResult
from spillover.live.process.logs import Message, OncePerPeriod, about
from spillover.model.request import DONE, Outcome

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


def event_of(command: Start, ended: CallResult) -> ServiceEnded | NotStarted:
    """Returns the event for a call that has ended by itself. What came to nothing is put in the
    log.
    """
    service_s = service_time_s(command)
    if ended.problem is None:
        result = msgspec.Raw(ended.result)
        return ServiceEnded(command.ref, DONE, service_s, result, upstream=ended.upstream)
    _tell(command, ended)
    problem = ended.problem[:PROBLEM_LENGTH_MAX]
    if ended.not_run:
        return NotStarted(
            command.ref,
            problem,
            refused=True,
            service_s=service_s,
            retry_after_s=ended.retry_after_s,
            upstream_status=ended.status if ended.is_held else None,
            cause=ended.cause,
        )
    return ServiceEnded(
        command.ref,
        Outcome.REJECTED if ended.rejected else Outcome.FAILED,
        service_s,
        problem=problem,
        upstream_status=ended.status,
        upstream_body=None if ended.body is None else msgspec.Raw(ended.body),
        retry_after_s=ended.retry_after_s,
        cause=ended.cause,
        upstream=ended.upstream,
    )


def service_time_s(command: Start) -> float:
    """Returns how long it has run until now."""
    return max(0.0, time.monotonic() - command.at_s)


def _tell(command: Start, ended: CallResult) -> None:
    words, level = "handler failed", logging.WARNING
    if ended.not_run:
        words = "handler did not run it"
    elif ended.rejected:
        words, level = "handler rejected", logging.INFO
    reason, trace = ended.problem, ended.details or None
    if ended.upstream_answered:
        reason, trace = ended.details, None
    elif ended.not_run or ended.rejected:
        trace = None  # it is no fault of the code
    told = about(command.request)
    _log.log(
        level,
        Message(words, **told, reason=reason, upstream_status=ended.status, traceback=trace),
    )
