"""The spans of a visit that has ended: one for all of it, as a server; `queue` for each wait; one
for each attempt, as a client of a neighbor or of a service.

HTTP's semantic conventions (stable, 1.23 and later) give names and attributes; those of our own
begin with `spillover.`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from spillover import __version__
from spillover.core.overflow.decisions import Decision
from spillover.core.overflow.history import Note, describe_record
from spillover.live.overflow.tracing.visits import Attempt, VisitTrace
from spillover.model.ids import told_inside
from spillover.model.request import Answer
from spillover.model.topology import Cluster

PROBLEM_LENGTH_MAX = 256

ERRORS_FROM = {SpanKind.SERVER: 500, SpanKind.CLIENT: 400}
"""The lowest status that is an error, by the kind of span: a client's fault is no error of the
server."""

METHODS = "CONNECT,DELETE,GET,HEAD,OPTIONS,PATCH,POST,PUT,TRACE"
KNOWN_METHODS = "OTEL_INSTRUMENTATION_HTTP_KNOWN_METHODS"
_OTHER = "_OTHER"
_PORTS = {"http": 80, "https": 443}
_SCOPE = InstrumentationScope("spillover", __version__)
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class SpanMaker:
    """The maker of one node's spans. `span_id` returns new numbers."""

    def __init__(self, resource: Resource, cluster: Cluster, span_id: Callable[[], int]) -> None:
        self._resource = resource
        self._span_id = span_id
        self._cluster = cluster.id
        self._door = _address(cluster.proxy_url or cluster.url or "")
        """The address of requests that pass through; all others have the cluster's own address."""
        self._own = _address(cluster.url or "")
        known = os.environ.get(KNOWN_METHODS) or METHODS
        self._methods = frozenset(method.strip() for method in known.split(","))

    def spans(self, visit: VisitTrace) -> list[ReadableSpan]:
        """Returns all spans of a visit, the server's first."""
        of_server = self._of_server(visit)
        waits = [
            self._span(visit, "queue", *wait, {}, span_id=self._span_id()) for wait in visit.waits
        ]
        resends = 0
        of_attempts = []
        for attempt in visit.attempts:
            of_attempts.append(self._of_attempt(visit, attempt, resends))
            resends += bool(attempt.method)
        return [of_server, *waits, *of_attempts]

    def _of_server(self, visit: VisitTrace) -> ReadableSpan:
        told, place = visit.told, visit.place
        method, of_method = self._method(visit.method)
        attributes: dict[str, Any] = {
            **of_method,
            **(self._own if visit.route else self._door),
            "url.path": visit.path,
            "spillover.cluster": self._cluster,
            "spillover.request.id": told_inside(visit.request_id),
            "spillover.request.type": visit.type,
            "spillover.request.keyed": visit.keyed,
        }
        if visit.route is not None:
            attributes["http.route"] = visit.route
        problem = None
        if isinstance(told, Answer):
            problem = told.problem
            attributes["spillover.outcome"] = told.outcome.value
            attributes["spillover.path"] = told.path
        else:
            attributes["spillover.outcome"] = "refused"
        parent = None
        if place.parent_id is not None:
            parent = SpanContext(place.trace_id, place.parent_id, is_remote=True)
        return self._span(
            visit,
            f"{method} {visit.route}" if visit.route else method,
            visit.began_s,
            visit.ended_s,
            attributes,
            kind=SpanKind.SERVER,
            span_id=place.span_id,
            parent=parent,
            ended=(visit.status, visit.error, problem),
            events=[_event(visit, record) for record in visit.records],
        )

    def _of_attempt(self, visit: VisitTrace, attempt: Attempt, resends: int) -> ReadableSpan:
        times = attempt.began_s, attempt.ended_s
        if not attempt.method:  # the work of a function, or of an emulated server
            ended = None, attempt.error, attempt.problem
            return self._span(visit, "run", *times, {}, span_id=attempt.span_id, ended=ended)
        name, attributes = self._method(attempt.method)
        attributes |= {key: value for key, value in _address(attempt.url).items() if key != _SCHEME}
        attributes["url.full"] = attempt.url
        if resends:
            attributes["http.request.resend_count"] = resends
        if attempt.neighbor is not None:
            name = f"{name} {urlsplit(attempt.url).path}"
            attributes["spillover.neighbor"] = attempt.neighbor
            attributes["spillover.pulled"] = attempt.pulled
        return self._span(
            visit,
            name,
            *times,
            attributes,
            kind=SpanKind.CLIENT,
            span_id=attempt.span_id,
            ended=(attempt.status, attempt.error, attempt.problem),
        )

    def _method(self, method: str) -> tuple[str, dict[str, Any]]:
        """Returns the name of a span, and the attributes of its method. A request that passes
        through may have a method that is not known."""
        if method in self._methods:
            return method, {"http.request.method": method}
        return "HTTP", {"http.request.method": _OTHER, "http.request.method_original": method}

    def _span(
        self,
        visit: VisitTrace,
        name: str,
        began_s: float,
        ended_s: float,
        attributes: dict[str, Any],
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        span_id: int,
        parent: SpanContext | None = None,
        ended: tuple[int | None, str | None, str | None] = (None, None, None),
        events: Sequence[Event] = (),
    ) -> ReadableSpan:
        """Returns a span. All but the server's are its children."""
        state = TraceState.from_header([visit.place.state]) if visit.place.state else None
        if kind is not SpanKind.SERVER:
            parent = _context(visit, visit.place.span_id, state)
        status, error, problem = ended
        if status is not None:
            attributes["http.response.status_code"] = status
        is_client_fault = status is not None and 400 <= status < ERRORS_FROM.get(kind, 400)
        if status is not None and error is None and status >= ERRORS_FROM.get(kind, 400):
            error = str(status)
        said = Status(StatusCode.UNSET)
        if error is not None and not is_client_fault:
            said = Status(StatusCode.ERROR, problem and _words(problem))
            attributes["error.type"] = error
        return ReadableSpan(
            name,
            _context(visit, span_id, state),
            parent,
            self._resource,
            attributes,
            events,
            kind=kind,
            status=said,
            start_time=_nanoseconds(visit, began_s),
            end_time=_nanoseconds(visit, ended_s),
            instrumentation_scope=_SCOPE,
        )


_SCHEME = "url.scheme"


def _context(visit: VisitTrace, span_id: int, state: TraceState | None) -> SpanContext:
    return SpanContext(
        visit.place.trace_id, span_id, is_remote=False, trace_flags=_SAMPLED, trace_state=state
    )


def _address(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    port = parts.port or _PORTS.get(parts.scheme)
    told = {_SCHEME: parts.scheme, "server.address": parts.hostname, "server.port": port}
    return {key: value for key, value in told.items() if value}


def _event(visit: VisitTrace, record: Decision | Note) -> Event:
    """Returns a record as an event of a span: as `/explain` tells it, without the values of each
    neighbor."""
    told = describe_record(record)
    told |= {f"granted.{key}": value for key, value in told.get("granted", {}).items()}
    attributes: Mapping[str, Any] = {
        f"spillover.{key}": _words(value) if isinstance(value, str) else value
        for key, value in told.items()
        if key != "event" and isinstance(value, str | float | int)
    }
    return Event(told["event"], attributes, _nanoseconds(visit, record.at_s))


def _words(text: str) -> str:
    """Returns foreign words: bounded, and such that they can be sent."""
    return text[:PROBLEM_LENGTH_MAX].encode(errors="replace").decode()


def _nanoseconds(visit: VisitTrace, at_s: float) -> int:
    return int((visit.since_epoch_s + at_s) * 1e9)
