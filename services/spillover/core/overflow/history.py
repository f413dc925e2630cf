"""The history of the requests of the last while: decisions, and what followed from them, for those
who ask why. It is a ring of fixed size; the oldest records go first."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from spillover.core.overflow.decisions import Decision, describe
from spillover.model.ids import ClusterId, RequestId
from spillover.model.request import Outcome

ENDED = "ended"
REFUSED_BY = "refused_by"
LOST_AT = "lost_at"
"""The note that no answer will come, or that it is so late that it is not waited for."""
CANCEL_ASKED = "cancel_asked"
NOT_STARTED = "not_started"
FAILED_HERE = "failed_here"
FAILED_AT = "failed_at"
"""The note that a probe has failed at a place that fails its work: the request has a key, and is
decided again."""
GIVEN_BACK = "given_back"
PULLED_BY = "pulled_by"
BEGAN = "answer_began"
"""The note that the answer has begun: nothing more is decided about the request."""
WENT_FIRST = "went_first"
"""The note that a request was handed on in place of a newer one, for which the policy had chosen
it."""
WENT_AS_PROBE = "went_as_probe"
"""The note that a request which waited was handed on to a neighbor that fails work, to find out
whether it still does."""
LEFT_IN_TIME = "left_in_time"
"""The note that a request was handed on in place of a newer one, which the policy had sent away."""


@dataclass(slots=True)
class Note:
    """One thing that happened to a request besides decisions, at a neighbor or not."""

    at_s: float
    request_id: RequestId
    event: str
    neighbor: ClusterId | None = None
    problem: str | None = None
    server: str | None = None
    """The server at which it happened, where servers are unlike."""
    granted: Any = None
    """The grant of a request that starts, where servers are unlike."""


@dataclass(slots=True)
class Ending:
    """The end of a visit, without its result."""

    at_s: float
    request_id: RequestId
    outcome: Outcome
    path: tuple[str, ...]
    queued_s: float
    network_s: float
    service_s: float
    problem: str | None
    upstream_status: int | None


class History:
    """The last `limit` records of one cluster."""

    def __init__(self, limit: int) -> None:
        self._ring: deque[Decision | Note | Ending] = deque(maxlen=limit)
        self.add: Callable[[Decision | Note], None] = self._ring.append
        self.add_end: Callable[[Ending], None] = self._ring.append
        """Keeps how a visit has ended. The listener does not get it."""

    def __len__(self) -> int:
        return len(self._ring)

    def listen(self, hear: Callable[[Decision | Note], None]) -> None:
        """Has `hear` called with each record from now on, ends aside."""
        keep = self._ring.append

        def add(record: Decision | Note) -> None:
            keep(record)
            hear(record)

        self.add = add

    @property
    def last(self) -> Decision | Note | Ending | None:
        return self._ring[-1] if self._ring else None

    def of(self, request_id: str) -> list[Decision]:
        """Returns the decisions still held that concern one request, oldest first."""
        return [record for record in self._of(request_id) if isinstance(record, Decision)]

    def newest(self, limit: int) -> list[Decision]:
        """Returns the newest decisions, newest first, of no more than the newest 4 x `limit`
        records.
        """
        records = islice(reversed(self._ring), 4 * limit)
        return list(islice((one for one in records if isinstance(one, Decision)), limit))

    def tell(self, request_id: str) -> list[dict[str, Any]]:
        """Returns all that is still known of one request, oldest first, as users read it. `at_ms`
        counts from the first record.
        """
        records = self._of(request_id)
        return [
            {"at_ms": round((record.at_s - records[0].at_s) * 1e3, 3)} | describe_record(record)
            for record in records
        ]

    def _of(self, request_id: str) -> list[Decision | Note | Ending]:
        return [record for record in self._ring if record.request_id == request_id]


def describe_record(record: Decision | Note | Ending) -> dict[str, Any]:
    """Returns a record as users read it, without its instant."""
    if isinstance(record, Decision):
        return {"event": "decided", **describe(record)}
    if isinstance(record, Note):
        told: dict[str, Any] = {"event": record.event}
        if record.neighbor is not None:
            told["neighbor"] = record.neighbor
        if record.problem is not None:
            told["problem"] = record.problem
        if record.server is not None:
            told["server"] = record.server
        if record.granted is not None:
            told["granted"] = record.granted.as_dict()
        return told
    told = {
        "event": ENDED,
        "outcome": record.outcome.value,
        "path": list(record.path),
        "queued_ms": round(record.queued_s * 1e3, 3),
        "network_ms": round(record.network_s * 1e3, 3),
        "service_ms": round(record.service_s * 1e3, 3),
        "problem": record.problem,
    }
    if record.upstream_status is not None:
        told["upstream_status"] = record.upstream_status
    return told
