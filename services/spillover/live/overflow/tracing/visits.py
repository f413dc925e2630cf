"""The record of a visit that is traced, and the contexts for the calls that it makes. `watching`
writes the record; `spans` are made of it once the visit has ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from spillover.core.overflow.decisions import Decision
from spillover.core.overflow.events import Refuse
from spillover.core.overflow.history import Note
from spillover.model.ids import ClusterId, RequestId
from spillover.model.request import Answer, Request
from spillover.model.trace_context import TraceContext

RECORDS_MAX = 128
"""The most records of one visit. OpenTelemetry has this limit for events, too; a request that is
tried again and again reaches it."""

URL_LENGTH_MAX = 2048
"""The most characters of a URL that are told."""

REQUESTS = "/requests"
NO_ANSWER = "no_answer"
"""The error of a call after which another one was tried, if no status says why."""


class SpanPlace(NamedTuple):
    """The place of a visit in its trace. `parent_id` is the span of its sender; None where the
    trace begins here."""

    trace_id: int
    span_id: int
    parent_id: int | None
    state: str
    is_sampled: bool

    def parent(self, span_id: int) -> str:
        """Returns the traceparent for what this span calls."""
        return f"00-{self.trace_id:032x}-{span_id:016x}-{int(self.is_sampled):02x}"


@dataclass(slots=True, eq=False)
class Attempt:
    """One call of a neighbor or of a service, or the work of a server that makes no call that we
    know of (`method` is empty then)."""

    span_id: int
    began_s: float
    ended_s: float = 0.0
    method: str = ""
    url: str = ""
    neighbor: ClusterId | None = None
    pulled: bool = False
    status: int | None = None
    error: str | None = None
    problem: str | None = None


class VisitTrace:
    """One visit of a request that is sampled. Times are of the node's clock; `since_epoch_s` makes
    wall times of them."""

    told: Answer | Refuse
    """The outcome of the visit. It is set at the end, as are `status` and `error`."""

    def __init__(
        self, place: SpanPlace, request: Request, began_s: float, *, is_home: bool
    ) -> None:
        self.place = place
        self.request_id: RequestId = request.id
        self.type = request.type
        self.keyed = request.keyed
        self.is_home = is_home
        self.began_s = self.ended_s = began_s
        self.method, self.path = "POST", REQUESTS
        self.route: str | None = None
        """The attribute `http.route`; None for a request that passes through, whose paths are the
        service's."""
        self.attempts: list[Attempt] = []
        self.under_way: Attempt | None = None
        self.waits: list[tuple[float, float]] = []
        """The times at which it was in the queue, from and to."""
        self.records: list[Decision | Note] = []
        self.head_status: int | None = None
        """The status of an answer that passes through, once it has begun."""
        self.status: int | None = None
        self.error: str | None = None
        self.since_epoch_s = 0.0

    @property
    def span_count(self) -> int:
        return 1 + len(self.attempts) + len(self.waits)

    def begin(self, span_id: int, at_s: float) -> Attempt:
        self._wait_until(at_s)
        attempt = self.under_way = Attempt(span_id, at_s)
        if len(self.attempts) < RECORDS_MAX:
            self.attempts.append(attempt)
        return attempt

    def end_attempt(self, at_s: float, error: str | None, problem: str | None = None) -> None:
        attempt, self.under_way = self.under_way, None
        if attempt is not None:
            attempt.ended_s = self.ended_s = max(at_s, attempt.began_s)
            attempt.error, attempt.problem = error, problem

    def end(
        self, at_s: float, delay_s: float, told: Answer | Refuse, status: int | None, reason: str
    ) -> None:
        """End the visit; those who wait for it are told `delay_s` later."""
        self.end_attempt(at_s, reason or None)
        self._wait_until(at_s)
        self.ended_s = max(at_s, self.ended_s) + delay_s
        self.told, self.status, self.error = told, status, reason or None
        self.since_epoch_s = time.time() - time.monotonic()

    def _wait_until(self, at_s: float) -> None:
        """Note that the visit has waited, if nothing was under way."""
        if at_s > self.ended_s and len(self.waits) < RECORDS_MAX:
            self.waits.append((self.ended_s, at_s))


class AttemptContext(TraceContext):
    """The trace context of an attempt."""

    __slots__ = ("_attempt", "_span_id", "_visit")

    def __init__(self, visit: VisitTrace, attempt: Attempt, span_id: Callable[[], int]) -> None:
        super().__init__(visit.place.parent(attempt.span_id), visit.place.state)
        self._visit, self._attempt, self._span_id = visit, attempt, span_id

    def sent_to(self, method: str, url: str) -> TraceContext:
        """Returns the context of a call: each is an attempt. The first began when the server took
        the request."""
        way = self
        if self._attempt.method:
            now_s = time.monotonic()
            before = self._visit.under_way
            has_status = before is not None and before.status is not None
            self._visit.end_attempt(now_s, None if has_status else NO_ANSWER)
            way = AttemptContext(
                self._visit, self._visit.begin(self._span_id(), now_s), self._span_id
            )
        way._attempt.method, way._attempt.url = method, url[:URL_LENGTH_MAX]
        return way

    def follow(self, asked: Any) -> None:
        asked.add_done_callback(self._answered)

    def _answered(self, asked: Any) -> None:
        if not asked.cancelled() and asked.exception() is None:
            self._attempt.status = asked.result().status
