"""What is known of one sent request, and what an HTTP answer says about it.

The mapping from status and reason to outcome is here and nowhere else. When requests are sent
is in `driver`; what many records come to is in `results`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from spillover.model.errors import UNREADABLE
from spillover.model.ids import ClusterId

REASON_CHARACTERS_MAX = 200


class Outcome(StrEnum):
    """How a request ended for its client. The sum over these is what was sent."""

    OK = "ok"
    REFUSED = "refused"
    """429 or 503: not accepted, so it did not run."""
    EXPIRED = "expired"
    """504: its deadline passed."""
    FAILED = "failed"
    """Any other answer that is no result."""
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"
    """It had left and no answer came, or its home says so of a forward: it may have run."""
    UNREACHABLE = "unreachable"
    """It never left: nothing took it at the target, or too many requests were waiting here."""


@dataclass(slots=True, kw_only=True)
class Record:
    """One request. Times count from its intended instant, `intended_s` from the run's start."""

    index: int
    """Its place in the schedule."""
    cluster: ClusterId
    """Its home: where it was sent."""
    intended_s: float
    sent_lag_s: float
    """How much later than intended it left."""
    outcome: Outcome
    type: str = "default"
    status: int | None = None
    reason: str | None = None
    system_time_ms: float | None = None
    """The time until the end of its service; only of `ok`."""
    response_time_ms: float | None = None
    """The time until the client had the answer, whatever it was."""
    hops: int | None = None
    path: tuple[str, ...] = ()
    executed_cluster: str | None = None
    id: str | None = None
    """The name it has at the nodes, to ask `spillover explain` for."""


class _Timing(msgspec.Struct):
    total: float


class Answer(msgspec.Struct):
    """The part of a node's 200 answer that is measured; the result is left alone."""

    id: str
    cluster: str
    path: tuple[str, ...]
    hops: int
    timing_ms: _Timing


class _Problem(msgspec.Struct):
    reason: str | None = None


_decode_answer = msgspec.json.Decoder(Answer).decode
_decode_problem = msgspec.json.Decoder(_Problem).decode


def read_answer(status: int, body: bytes) -> tuple[Outcome, Answer | None, str | None]:
    """Returns what an HTTP response means: the outcome, the answer if it is `ok`, else the reason.

    A 200 that is not a node's answer counts as failed with the reason `invalid_answer`.
    """
    if status == 200:
        try:
            return Outcome.OK, _decode_answer(body), None
        except UNREADABLE:
            return Outcome.FAILED, None, "invalid_answer"
    reason = _reason(body)
    match status, reason:
        case ((429 | 503), _):
            outcome = Outcome.REFUSED
        case 504, _:
            outcome = Outcome.EXPIRED
        case 409, "cancelled":
            outcome = Outcome.CANCELLED
        case 502, "outcome_unknown":
            outcome = Outcome.UNKNOWN
        case _:
            outcome = Outcome.FAILED
    return outcome, None, reason


def _reason(body: bytes) -> str | None:
    try:
        reason = _decode_problem(body).reason
    except UNREADABLE:
        return None
    return reason[:REASON_CHARACTERS_MAX] if reason else None
