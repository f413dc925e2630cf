"""The handler `http:URL[,URL...]`: posts each payload to a service that is there already.

An upstream that cannot be reached surely has not got the request, and the next one is tried; where
none is left, the work was not started. When bytes had left and no answer came, only a keyed request
is tried once more. One that answers that it has surely not done the work is left alone for as long
as it asks, and the next one is tried. Which upstream, and how each fares, is in `upstreams`; what
becomes of an answer in `upstream_answers`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from spillover.core.overflow.events import NotStarted, ServiceEnded, Start
from spillover.live.engine.moving import Moving
from spillover.live.handlers.base import OnEnd, OnHealth
from spillover.live.handlers.calls import PROBLEM_LENGTH_MAX, Ended, one_line
from spillover.live.handlers.ends import event_of, service_time_s
from spillover.live.handlers.http.upstream_answers import read_answer
from spillover.live.handlers.http.upstreams import Upstream, Upstreams, reason_of
from spillover.live.http.client import Response
from spillover.model.errors import NotDelivered
from spillover.model.ids import told_inside
from spillover.model.request import Outcome
from spillover.model.topology import Cluster
from spillover.model.trace_context import TraceContext
from spillover.model.unlike_servers import TOKENS_MAX
from spillover.model.upstream_urls import UpstreamUrl

_FIXED_HEADERS = ((b"content-type", b"application/json"), (b"accept-encoding", b"identity"))


@dataclass(slots=True, eq=False)
class _Call:
    """One request at an upstream, and those it was at before."""

    command: Start
    tried: list[Upstream] = field(default_factory=list)
    asked: asyncio.Future[Response] | None = None
    uncertain: str | None = None
    """Set once it may have run already: bytes had left, and for this reason no answer came."""
    refused: Ended | None = None
    """What the last upstream said that surely has not done the work."""
    sent_s: float = 0.0


class HttpWorkers:
    """As many requests at the upstreams of a cluster as it has servers. Made in a running loop."""

    def __init__(
        self,
        urls: Sequence[UpstreamUrl],
        cluster: Cluster,
        on_end: OnEnd,
        on_health: OnHealth,
        moving: Moving | None = None,
    ) -> None:
        usual_s = cluster.service_ms / 1e3
        # Operators may change the number of servers: connections must suffice then.
        at_once = max(cluster.server_count, TOKENS_MAX)
        self._upstreams = Upstreams(urls, at_once, usual_s, on_health, moving)
        self._not_run_statuses = frozenset(cluster.not_run_statuses)
        self._on_end = on_end
        self._calls: dict[int, _Call] = {}

    def problem_with(self, payload: msgspec.Raw) -> str | None:  # noqa: ARG002 - any JSON will do
        return None

    def start(self, command: Start) -> None:
        call = _Call(command)
        self._calls[command.ref] = call
        self._send(call)

    def stop(self, ref: int) -> None:
        """Close the connection, which is how the upstream learns of it. The server is free at
        once, whatever the upstream does."""
        call = self._calls.pop(ref, None)
        if call is None:
            return
        self._let_go(call)
        self._on_end(ServiceEnded(ref, Outcome.CANCELLED, service_time_s(call.command)), None)

    async def close(self) -> None:
        calls = list(self._calls.values())
        self._calls.clear()
        for call in calls:
            self._let_go(call)
        await self._upstreams.close()

    def _let_go(self, call: _Call) -> None:
        if call.asked is not None:
            call.tried[-1].running -= 1
            call.asked.cancel()
            call.asked = None

    def _send(self, call: _Call) -> None:
        call.sent_s = time.monotonic()
        upstream = self._upstreams.choose(call.tried, call.sent_s)
        if upstream is None:
            self._none_left(call)
            return
        call.tried.append(upstream)
        request = call.command.request
        payload, trace = (memoryview(request.work),), request.trace
        if trace is not None:
            trace = trace.sent_to("POST", upstream.name)
        try:
            asked = upstream.post(_headers(call.command, trace), payload)
        except ValueError as error:  # a name that no header can bear must not end the node
            self._end(call, Ended(problem=one_line(error)))
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
            self._not_delivered(call, upstream, reason_of(error))
        else:
            self._no_answer(call, upstream, reason_of(error))

    def _answered(self, call: _Call, upstream: Upstream, response: Response) -> None:
        upstream.attempt = 0
        ended = read_answer(upstream.name, response, self._not_run_statuses)
        took_s = time.monotonic() - call.sent_s
        if ended.problem is None or ended.rejected:
            self._upstreams.worked(upstream, None if ended.rejected else took_s)
        else:
            self._upstreams.failed(upstream, took_s)
        if not ended.not_run:
            self._end(call, ended)
            return
        self._upstreams.leave_alone(upstream, ended)
        call.refused = ended
        self._send(call)

    def _not_delivered(self, call: _Call, upstream: Upstream, reason: str) -> None:
        self._upstreams.unreachable(upstream, reason)
        if self._calls.get(call.command.ref) is call:  # told of it, the node may have stopped it
            self._send(call)

    def _no_answer(self, call: _Call, upstream: Upstream, reason: str) -> None:
        """As a failure of the upstream: one that only takes requests would be the least busy."""
        self._upstreams.failed(upstream, time.monotonic() - call.sent_s)
        problem = f"upstream {upstream.name}: {reason}; whether it did the work is not known"
        if call.command.request.keyed and call.uncertain is None:
            call.uncertain = problem
            self._send(call)
        else:
            self._end(call, Ended(problem=problem))

    def _none_left(self, call: _Call) -> None:
        """By now the node has been told if no upstream is up: what was surely not begun is decided
        again with that in mind."""
        if call.uncertain is not None:
            self._end(call, Ended(problem=call.uncertain))
            return
        rest_s = self._upstreams.rest_s(time.monotonic())
        if call.refused is not None:
            call.refused.retry_after_s = rest_s
            self._end(call, call.refused)
            return
        ref = call.command.ref
        del self._calls[ref]
        problem = self._upstreams.problem()[:PROBLEM_LENGTH_MAX]
        self._on_end(NotStarted(ref, problem, retry_after_s=rest_s), None)

    def _end(self, call: _Call, ended: Ended) -> None:
        del self._calls[call.command.ref]
        self._on_end(event_of(call.command, ended), None)


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
