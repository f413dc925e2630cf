"""Why a request was not done, in one word of a few that never change: for logs and metrics, and to
tell clients whether the work may have run. Nothing else is decided by it, and what words are said
to clients is not known here.

What runs the work, or the machine, says the cause where it is known; `cause_of` has the last word.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spillover.model.request import Answer


class Cause(StrEnum):
    """What a request that was not done came to grief over."""

    CONNECTION = "connection"
    """The service could not be reached, or its connection ended before its answer did."""
    UPSTREAM_STATUS = "upstream_status"
    """The service answered with a status that says no."""
    UPSTREAM_ANSWER = "upstream_answer"
    """The service answered what cannot be read or passed on."""
    TIMEOUT = "timeout"
    """Its service was not done by the deadline, or nothing more of its answer came."""
    QUEUE = "queue"
    """It waited in the queue until its deadline."""
    WORKER = "worker"
    """A Python or Dask handler raised, or the process or thread that ran it is gone."""
    NEIGHBOR = "neighbor"
    """It was at a neighbor that was lost, broke it off, or had not answered by the deadline.
    The log there says why."""
    CLIENT = "client"
    """Its client left, did not read the answer, cancelled it, or sent what cannot be passed on."""
    NODE = "node"
    """The node ended, or has a bug."""


DONE, REJECTED, STOPPED = "done", "rejected", "stopped"
"""What a request to a service can come to besides a failure: a stopped one is wanted no longer."""

UPSTREAM_ENDS = (
    *(DONE, REJECTED, STOPPED, Cause.CONNECTION.value, Cause.TIMEOUT.value),
    *(Cause.UPSTREAM_STATUS.value, Cause.UPSTREAM_ANSWER.value),
)
"""All that one can come to there."""


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
