"""The causes for which requests are not done, each one of a few words that never change: for logs
and metrics, and to tell clients whether the work may have run. Nothing else is decided by them.

What runs the work, or the machine, says the cause where it is known; `cause_of` has the last word.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spillover.model.request import Answer


class Cause(StrEnum):
    """The cause for which a request was not done."""

    CONNECTION = "connection"
    """The service could not be reached, or its connection ended before its answer did."""
    UPSTREAM_STATUS = "upstream_status"
    """The service answered with a status that says no."""
    UPSTREAM_ANSWER = "upstream_answer"
    """The service gave an answer that cannot be read or passed on."""
    TIMEOUT = "timeout"
    """The service was not done by the deadline, or no more of its answer came."""
    QUEUE = "queue"
    """The request waited in the queue until its deadline."""
    WORKER = "worker"
    """A Python or Dask handler raised, or the process or thread that ran it is gone."""
    NEIGHBOR = "neighbor"
    """The request was at a neighbor that was lost, ended, broke it off without a word, or had not
    answered by the deadline. The log there says why."""
    CLIENT = "client"
    """The client left, did not read the answer, cancelled the request, or sent one that cannot be
    passed on."""
    NODE = "node"
    """The node ended, or has a bug."""


DONE, REJECTED, STOPPED = "done", "rejected", "stopped"
"""Ends of a request to a service besides failures; nobody wants a stopped one any longer."""

UPSTREAM_ENDS = (
    *(DONE, REJECTED, STOPPED, Cause.CONNECTION.value, Cause.TIMEOUT.value),
    *(Cause.UPSTREAM_STATUS.value, Cause.UPSTREAM_ANSWER.value),
)
"""All ends of a request at a service."""


def cause_of(answer: Answer) -> Cause | None:
    """Returns why this request was not done; None where it was."""
    outcome = answer.outcome
    if outcome == "done":
        return None
    if answer.cause is not None:
        return answer.cause
    if outcome == "cancelled":
        return Cause.CLIENT
    if outcome == "unknown":
        return Cause.NEIGHBOR
    if outcome == "expired":
        return Cause.TIMEOUT
    return Cause.WORKER if answer.upstream_status is None else Cause.UPSTREAM_STATUS
