"""The handler `http:URL[,URL...]`: posts each payload to a service that is there already.

Where one is tried next is in `upstream_calls`, how each upstream fares in `upstreams`, what becomes
of an answer in `upstream_answers`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from spillover.core.overflow.events import Start
from spillover.live.engine.moving import Moving
from spillover.live.handlers.base import OnEnd, OnHealth
from spillover.live.handlers.calls import CallResult, one_line
from spillover.live.handlers.engine_load import ORCA_ASKED, ORCA_HEADER
from spillover.live.handlers.http.upstream_answers import read_answer
from spillover.live.handlers.http.upstream_calls import UpstreamCall, UpstreamWorkers
from spillover.live.handlers.http.upstreams import Upstream
from spillover.live.http1.client import Response
from spillover.model.causes import Cause
from spillover.model.errors import NotDelivered
from spillover.model.ids import told_inside
from spillover.model.topology import Cluster
from spillover.model.trace_context import TraceContext
from spillover.model.upstream_urls import UpstreamUrl

_FIXED_HEADERS = ((b"content-type", b"application/json"), (b"accept-encoding", b"identity"))


@dataclass(slots=True, eq=False)
class _Call(UpstreamCall):
    """One that is asked with a payload."""

    asked: asyncio.Future[Response] | None = None


class HttpWorkers(UpstreamWorkers[_Call]):
    """The handler."""

    def __init__(
        self,
        urls: Sequence[UpstreamUrl],
        cluster: Cluster,
        on_end: OnEnd,
        on_health: OnHealth,
        moving: Moving | None = None,
    ) -> None:
        super().__init__(urls, cluster, on_end, on_health, moving)
        self._not_run_statuses = frozenset(cluster.statuses_not_run)
        self._is_failure = cluster.is_failure

    def problem_with(self, payload: msgspec.Raw) -> str | None:  # noqa: ARG002 - any JSON will do
        return None

    def start(self, command: Start) -> None:
        call = _Call(command)
        if self._sessions is not None:
            self._know_session(call, command.request.work)
        self._calls[command.ref] = call
        self._send(call)

    def _session_of(self, work: Any) -> tuple[int, int]:
        assert self._sessions is not None  # noqa: S101 - asked with affinity alone
        return self._sessions.of((), work), len(memoryview(work)) or 1

    def _let_go(self, call: _Call) -> None:
        if call.asked is not None:
            call.tried[-1].running -= 1
            call.asked.cancel()
            call.asked = None

    def _send(self, call: _Call) -> None:
        call.sent_s = time.monotonic()
        if self._sessions is None:
            upstream = self.upstreams.choose(call.tried, call.sent_s)
        else:
            upstream = self._choose_by_session(call)
        if upstream is None:
            self._none_left(call)
            return
        call.tried.append(upstream)
        request = call.command.request
        payload, trace = (memoryview(request.work),), request.trace
        if trace is not None:
            trace = trace.sent_to("POST", upstream.name)
        headers = _headers(call.command, trace)
        if self.hears_orca:
            headers.append(ORCA_ASKED)
        try:
            asked = upstream.post(headers, payload, keyed=request.keyed)
        except ValueError as error:  # a name that no header can bear must not end the node
            self._end(call, CallResult(problem=one_line(error), cause=Cause.CLIENT))
            return
        upstream.running += 1
        call.asked = asked
        if trace is not None:
            trace.follow(asked)
        asked.add_done_callback(partial(self._came_back, call, upstream))

    def _came_back(self, call: _Call, upstream: Upstream, asked: asyncio.Future[Response]) -> None:
        error = None if asked.cancelled() else asked.exception()
        if call.asked is not asked:
            return
        call.asked = None
        upstream.running -= 1
        if error is None:
            self._answered(call, upstream, asked.result())
        elif isinstance(error, NotDelivered):
            self._not_delivered(call, upstream, error)
        else:
            self._no_answer(call, upstream, error)

    def _answered(self, call: _Call, upstream: Upstream, response: Response) -> None:
        upstream.attempt = 0
        upstream.answered_s = now_s = time.monotonic()
        if self.on_orca is not None and ORCA_HEADER in response.headers:
            self.on_orca(upstream.name, response.headers[ORCA_HEADER])
        ended = read_answer(upstream.name, response, self._not_run_statuses)
        if ended.not_run:
            self._not_done(call, upstream, ended)
            return
        took_s = now_s - call.sent_s
        if ended.problem is None:
            self.upstreams.began(call.dispatch)
            self.upstreams.worked(upstream, took_s)
        elif ended.rejected or not self._is_failure(ended.status):
            self.upstreams.worked(upstream, None)
        else:
            self.upstreams.failed(upstream, took_s, ended.cause)
        self._end(call, ended)


def _headers(command: Start, trace: TraceContext | None) -> list[tuple[bytes, bytes]]:
    request = command.request
    name = told_inside(request.id).encode()
    remaining_ms = max(0, int((command.deadline_s - time.monotonic()) * 1e3))
    headers = [
        *_FIXED_HEADERS,
        (b"spillover-request-id", name),
        (b"spillover-deadline-ms", b"%d" % remaining_ms),
    ]
    if request.keyed:
        headers.append((b"idempotency-key", name))
    if trace is not None:
        headers.append((b"traceparent", trace.parent.encode()))
        if trace.state:
            headers.append((b"tracestate", trace.state.encode()))
    return headers
